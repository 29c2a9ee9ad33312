"""The parts of exchange routing of one node, put together."""

from __future__ import annotations

from understudy.ports import Clock, Timers
from understudy.routing.acceptance import Acceptance
from understudy.routing.addresses.directory import Directory
from understudy.routing.exchanges.exchanges import Exchanges
from understudy.routing.exchanges.expiry import ExpiryTimers
from understudy.routing.exchanges.publishing import Publishing
from understudy.routing.lifecycle.redelivery import Redelivery
from understudy.store.state import StoreState


class ExchangeRouting:
    """Exchanges, publishing and timers of a node."""

    def __init__(
        self, directory: Directory, acceptance: Acceptance, redelivery: Redelivery, clock: Clock, timers: Timers
    ) -> None:
        self.exchanges = Exchanges(directory, acceptance.store)
        self.expiry = ExpiryTimers(directory, redelivery, clock, timers)
        self.publishing = Publishing(self.exchanges, directory, acceptance, self.expiry, acceptance.memory)
        redelivery.bury = self.publishing.bury
        redelivery.watch_expiry = self.expiry.arrived

    def restore(self, state: StoreState) -> None:
        """Take over the exchanges of the log, when the queues have their messages. Raises StoreError."""
        self.exchanges.restore(state)
        self.expiry.restore()

    def close(self) -> None:
        """Cancel the timers."""
        self.expiry.close()
