"""Carries out the steps of an activation, and undoes them (``ha.life.activation``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from understudy.errors import BrokerError, DiskFailed, StoreError
from understudy.ha.life.activation import Act, ActivationFacts, Step, StepTime
from understudy.ports import Clock

log = logging.getLogger(__name__)

#: A step that takes longer is logged.
SLOW_STEP_MS: Final = 1_000


class Activation:
    """The activations of one node, one after the other: at most one is done, or undone, at a time."""

    def __init__(self, clock: Clock, failed: Callable[[], BrokerError | None] = lambda: None) -> None:
        """Begin before the first step.

        Args:
            clock: Measures the steps.
            failed: Returns the error because of which the node ends, or None. A disk or a lock may fail between two
                steps, or beside one that does not use it.
        """
        self._clock = clock
        self._failed = failed
        self._begun: list[tuple[Step, int]] = []
        """Steps that are to be undone, with the time that each took, in milliseconds."""
        self._step: str | None = None
        """The step that is being done or undone."""
        self._since_ms = 0
        self._undoing = False

    async def run(self, steps: Sequence[Step]) -> None:
        """Execute the steps in order. If one fails, it and the earlier ones remain to be undone. No step begins once
        the node has failed, least of all the commit of the activation sequence (ADR 0112).

        Raises:
            BrokerError: a step or the node failed.
        """
        self._undoing = False
        for step in steps:
            self._end_if_failed()
            self._begun.append((step, 0))
            try:
                await self._act(step.name, step.do)
            except OSError as error:
                raise DiskFailed(f"cannot activate: {error}") from error
            finally:
                took_ms = self._clock.monotonic_ms() - self._since_ms
                self._begun[-1] = (step, took_ms)
                if took_ms > SLOW_STEP_MS:
                    log.warning("slow step of the activation", extra={"step": step.name, "took_ms": took_ms})
        self._end_if_failed()

    def _end_if_failed(self) -> None:
        error = self._failed()
        if error is not None:
            raise error

    async def undo(self) -> BrokerError | None:
        """Undo the steps that were begun, the last first. An error in one does not keep the others from being undone.

        Returns:
            The first error.
        """
        self._undoing = True
        first: BrokerError | None = None
        while self._begun:
            step, _ = self._begun[-1]
            try:
                if step.undo is not None:
                    await self._act(step.name, step.undo)
            except BrokerError as error:
                first = first or error
            except OSError as error:
                first = first or DiskFailed(f"cannot deactivate: {error}")
            except Exception as error:
                log.critical("internal error", exc_info=error)
                first = first or StoreError(f"internal error: {error!r}")
            finally:
                self._begun.pop()
        return first

    async def _act(self, name: str, act: Act) -> None:
        self._step, self._since_ms = name, self._clock.monotonic_ms()
        try:
            answer = act()
            if answer is not None:
                await answer
        finally:
            self._step = None

    def facts(self) -> ActivationFacts | None:
        """Progress of the activation; None when no step is done, being undone, or to be undone."""
        if not self._begun:
            return None
        took_ms = [each for _, each in self._begun]
        if self._step is not None and not self._undoing:
            took_ms[-1] = self._clock.monotonic_ms() - self._since_ms
        steps = tuple(StepTime(step.name, each) for (step, _), each in zip(self._begun, took_ms, strict=True))
        return ActivationFacts(self._step, self._undoing, sum(took_ms), steps)
