# SPDX-License-Identifier: Apache-2.0
"""Lines about a long step while it runs, for action plugins. Ansible itself shows a task again when it has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

QUIET_S = 3.0
"""A step that is over within this time is not shown."""
AGAIN_S = 10.0
"""Time between two lines of the same step."""
POLL_S = 0.2


class Steps:
    """Which lines are due, from the present step and the time.

    Args:
        subject: what the lines begin with.
        step: the first step; empty for none yet.
        now_s: monotonic seconds.
    """

    def __init__(self, subject: str, step: str, now_s: float) -> None:
        self._subject = subject
        self._step = step
        self._begun_s = now_s
        self._next_s = now_s + QUIET_S

    def begin(self, step: str, now_s: float) -> None:
        """Another step has begun; the same one goes on."""
        if step != self._step:
            self._step, self._begun_s, self._next_s = step, now_s, now_s + QUIET_S

    def due(self, now_s: float) -> str:
        """The line to show now; empty if none is."""
        if not self._step or now_s < self._next_s:
            return ""
        self._next_s = now_s + AGAIN_S
        return f"{self._subject}: {self._step} ({now_s - self._begun_s:.0f} s)"


@contextmanager
def shown(steps: Steps, show: Callable[[str], None], file: Path | None = None) -> Iterator[None]:
    """Show the lines of steps while the block runs.

    Args:
        steps: which lines.
        show: is called with each line, on a thread.
        file: of which the last line is the present step; None: the step does not change.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            now_s = time.monotonic()
            lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
            if lines:
                steps.begin(lines[-1], now_s)
            line = steps.due(now_s)
            if line:
                show(line)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
