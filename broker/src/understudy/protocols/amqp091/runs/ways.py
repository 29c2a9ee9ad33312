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
    """The way of publishes with one method frame on one channel, as long as nothing but such publishes and settlements
    is carried out.
    """

    exchange: Exchange
    route: KeyRoute
    target: PublishTarget
    """Values of their messages."""
