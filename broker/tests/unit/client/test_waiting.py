"""``sync.waiting``: the lock of a connection around a wait that a signal handler interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from understudy.client.sync.waiting import Turn, Waiters


class Stop(BaseException):
    """The exception of a signal handler."""


class SignalledLock:
    """A lock of a connection during whose ``method`` a signal comes, once, after its work is done."""

    def __init__(self, method: str) -> None:
        self.lock: Any = threading.RLock()
        self.method: str | None = method

    def __getattr__(self, name: str) -> Callable[..., Any]:
        wrapped = getattr(self.lock, name)
        if name != self.method:
            return wrapped  # type: ignore[no-any-return]

        def call(*values: Any) -> Any:
            result = wrapped(*values)
            if self.method is not None:
                self.method = None
                signal.raise_signal(signal.SIGALRM)
            return result

        return call


@pytest.mark.parametrize("method", ["_release_save", "_is_owned", "_acquire_restore"])
def test_a_signal_beside_each_step_of_a_wait_leaves_the_lock_with_its_thread(method: str) -> None:
    lock = SignalledLock(method)
    waiters = Waiters(lock)
    woken = Turn(lambda: False, 1)
    woken.wake()

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    lock.lock.acquire()
    try:
        with pytest.raises(Stop):
            waiters._unlocked(woken, lambda: woken.pause(1.0))
        assert lock.lock._is_owned(), "the block that waits releases the lock at its end"
    finally:
        signal.signal(signal.SIGALRM, before)
        lock.lock.release()
        waiters.dispose()
