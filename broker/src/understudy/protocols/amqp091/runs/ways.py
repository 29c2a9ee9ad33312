"""Results of runs: how many frames were taken together, and the ways of publishes that are remembered."""

from __future__ import annotations

from typing import NamedTuple

from understudy.kernel.amqp091 import PublishTarget
from understudy.routing.exchanges.exchange import Exchange
from understudy.routing.exchanges.publishing import KeyRoute


class Run(NamedTuple):
    """Result of an attempt to take publishes or settlements together."""

    taken: int
    """Number of publishes or settlements."""
    awaits: bool
    """Whether more bytes are needed for the next publish."""


class Way(NamedTuple):
    """The way of publishes with one method frame on one channel, as long as nothing changes that leads elsewhere
    (``Exchanges.changes``).
    """

    exchange: Exchange
    route: KeyRoute
    target: PublishTarget
    """Values of their messages."""
    name: str
    """Name to which the session may send."""


class Ways:
    """The ways of publishes that were found on one connection, by their method frames."""

    __slots__ = ("changes", "found")

    def __init__(self) -> None:
        self.changes = 0
        """``Exchanges.changes`` at the time when they were found."""
        self.found: dict[bytes, Way] = {}
        """At most ``WAYS_MAX``."""
