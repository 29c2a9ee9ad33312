"""The thread that calls listeners and the callbacks of futures, one for each process.

It holds no lock while it calls, so a callback may use the client, and may block; later callbacks wait meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger("understudy.client")


class Callbacks:
    """Makes the given calls in order, on a daemon thread that starts with the first one."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew without a thread. Called in the child after a fork: the thread and its calls are the parent's."""
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._started = False

    def call(self, call: Callable[[], object]) -> None:
        """Call soon. Does not block."""
        self._calls.put(call)
        if not self._started:
            with self._lock:
                started, self._started = self._started, True
            if not started:
                threading.Thread(target=self._run, name="understudy-client-callbacks", daemon=True).start()

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call()
            except Exception:
                _log.exception("a callback of the client raised an error")


callbacks = Callbacks()
os.register_at_fork(after_in_child=callbacks.forget)
