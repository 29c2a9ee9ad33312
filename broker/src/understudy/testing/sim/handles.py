"""Handles of the simulated loop: asyncio's, made at less cost.

Those of asyncio ask the loop whether it is in debug mode, which a loop of the simulation never is, and timers compare
by methods in Python; the loop orders them by tuples.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any


class SimHandle(asyncio.Handle):
    """A call that is ready to run."""

    __slots__ = ()

    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: asyncio.AbstractEventLoop
    _repr: str | None
    _source_traceback: None

    def __init__(
        self,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = arguments
        self._cancelled = False
        self._repr = self._source_traceback = None


class SimTimerHandle(asyncio.TimerHandle):
    """A call at a virtual time."""

    __slots__ = ()

    _callback: Callable[..., object]
    _context: contextvars.Context
    _loop: asyncio.AbstractEventLoop
    _repr: str | None
    _scheduled: bool
    _source_traceback: None
    _when: float

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = arguments
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True
