"""Activation as data: a list of named steps, each with its undo.

The shell (``runtime.node.activation``) carries out the steps in order. If the node is deactivated, or a step fails, the
steps that were begun are undone in reverse order; there is no other way to close what an activation opened. The list
and the time of each step are part of the status of the node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from understudy.dataclass import dataclass

Act = Callable[[], Awaitable[None] | None]
"""Action of a step: it is done when it returns None, else when the returned awaitable has ended."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an activation."""

    name: str
    """Name for the status and the log: "begin epoch"."""
    do: Act
    undo: Act | None = None
    """Also called if ``do`` has failed part of the way; None: there is nothing to undo."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step that was begun."""

    name: str
    took_ms: int
    """Milliseconds that the step took, or has taken so far."""


@dataclass(frozen=True, slots=True)
class ActivationFacts:
    """The progress of an activation."""

    step: str | None
    """The step that is being done or undone; None if none is."""
    undoing: bool
    """The node is being deactivated."""
    took_ms: int
    """Milliseconds of all steps that were begun."""
    steps: tuple[StepTime, ...]
    """Steps in the order in which they were begun. While the activation is undone: those that are not undone yet."""
