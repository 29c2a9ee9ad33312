"""The blocking client's thread: one per process, an event loop that carries out every call.

It starts with the first connection and ends with the interpreter, which closes what was left open. A
forked child starts its own; connections are not inherited. Part of ``sync``.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from understudy.client import aio
from understudy.errors import IllegalState, ObjectClosed

T = TypeVar("T")
_EXIT_TIMEOUT_S: Final = 5.0


class LoopThread:
    """The thread and its loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.connections: weakref.WeakSet[aio.Connection] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._run, name="understudy-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine run there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalState("a blocking call from a callback of the client would wait for itself without end")
        if self.loop.is_closed():
            work.close()
            raise ObjectClosed("the interpreter is exiting")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt ends the wait: end the work too
            raise

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a plain function called there."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def stop(self) -> None:
        """Close every connection left and end the thread."""
        if not self._thread.is_alive():
            return

        async def close_all() -> None:
            for connection in tuple(self.connections):
                connection.warn_if_open()
                connection.abandon()

        try:
            asyncio.run_coroutine_threadsafe(close_all(), self.loop).result(_EXIT_TIMEOUT_S)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_EXIT_TIMEOUT_S)


_lock = threading.Lock()
_thread: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The thread, started if need be."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = LoopThread()
        return _thread


def _stop() -> None:
    global _thread
    with _lock:
        thread, _thread = _thread, None
    if thread is not None:
        thread.stop()


def _forget_after_fork() -> None:
    global _lock, _thread
    _lock = threading.Lock()
    _thread = None


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget_after_fork)
