"""Replication of one node while it is active: its replica (ADR 0057). Implements ``ha.replication.ports.Replication``.

Not here: when to do any of it (``ha.replication.policy``), and the copy on a node that is not active
(``runtime.replica.copied_store``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from understudy.config.high_availability import ReplicationConfiguration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.life.activation import Step
from understudy.ha.locks.local_sequence import LocalSequence
from understudy.ha.replication.ports import Authority
from understudy.ports import Worker
from understudy.replication.active_link import ActiveLink, CopyOwner, LinkOptions
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.node.standby import NodeStandby
from understudy.runtime.node.store_position import StorePosition
from understudy.runtime.replica.copied_store import EarlierNote, adopt_identity, earlier_data, own_data
from understudy.runtime.replica.copying import DamagedFiles, FileExchange, SourceCopy, StoreOwner
from understudy.runtime.replica.sequence_commit import SequenceCommit
from understudy.store.replication.shipping import Shipping
from understudy.wire.core import packets


@dataclass(frozen=True, slots=True)
class ReplicationParts:
    """Objects that the active and the passive side of the replication of one node share."""

    settings: ReplicationConfiguration
    authority: Authority
    local: LocalSequence
    worker: Worker
    """Reads and writes files."""
    place: Callable[[str, packets.ReplicaRegistration], str | None]
    """Reason why a node may not be the replica (``LinkOptions.place``)."""
    shipping: Shipping
    """Sends the operations on the files of this node while it is active."""


class NodeReplication:
    """The replication of one node. Implements ``Replication`` and ``LinkEvents``."""

    def __init__(
        self, parts: NodeParts, used: ReplicationParts, owner: Owner, stores: StoreOwner, standby: NodeStandby
    ) -> None:
        """No replica is taken.

        Args:
            owner: Ends when the node may not go on without its replica.
            stores: Has the store while the node is active.
            standby: Reads the log before that.
        """
        self._parts = parts
        self.used = used
        self._owner = owner
        self._stores = stores
        environment, settings = parts.environment, used.settings
        connection = parts.configuration.current.cluster_connection(settings.cluster_name)
        self.link = ActiveLink(
            LinkOptions(
                group=settings.group_name,
                sync_timeout_ms=settings.initial_replication_sync_timeout_ms,
                call_timeout_ms=connection.call_timeout_ms,
                silence_ms=settings.silence_ms,
                protocol=environment.replication_protocol,
                place=used.place,
            ),
            used.authority,
            used.shipping,
            self,
            environment.lock_clock or environment.clock,
            parts.turn,
            parts.formats,
        )
        self._damaged = DamagedFiles(environment.clock)
        self._protocol = 0
        """Version of the replication protocol that the replica speaks."""
        self.files = FileExchange(parts, used.worker, self.link.copy_send)
        self.position = StorePosition(parts, used.authority, used.worker, standby)
        self.sequence = SequenceCommit(used.authority, lambda: owner.error)
        """The commit of the activation sequence."""
        self._replica_asks: Callable[[], None] | None = None
        if parts.membership is not None:
            parts.membership.pair_state = self._pair_state

    def _pair_state(self) -> packets.PairState:
        return packets.PairState(self._parts.lock.node_id, self.used.authority.sequence, self.link.in_sync)

    def make_copy(self, owner: CopyOwner, protocol: int) -> SourceCopy:
        self._protocol = protocol
        return SourceCopy(
            self._parts, self._stores, self.used.worker, self.used.authority, owner, protocol, self._damaged
        )

    def adopt_identity(self) -> None:
        """At the start of the node, once its lock directory is open."""
        adopt_identity(self._parts, self.used.settings.coordination_id)

    @property
    def replicas(self) -> ActiveLink:
        """The replicas for the connections of an active node."""
        return self.link

    def earlier_data(self) -> EarlierNote | None:
        """Data of this node that another active node did not have; see ``runtime.replica.copied_store``."""
        return earlier_data(self._parts)

    # --- the active node -----------------------------------------------------------------------------

    @property
    def congested(self) -> bool:
        """Whether the replica has so much to execute that no client should be read."""
        return self.link.congested

    # --- ha.replication.ports.Replication ---------------------------------------------------------------

    def steps(self) -> Sequence[Step]:
        compare, note = self.position.steps()
        return (
            compare,
            Step("claim the activation sequence", self._claim, self._take_back),
            note,
            Step("prepare replication", self._prepare, self._finish),
        )

    def accept_step(self) -> Step:
        return Step("accept replicas", self._accept)

    async def _claim(self) -> None:
        self.sequence.begin()
        await self._answer_of(lambda answer: self.used.authority.claim(answer, alone=False))

    async def _answer_of(self, ask: Callable[[Callable[[BrokerError | None], None]], None]) -> None:
        answered: asyncio.Future[BrokerError | None] = self._parts.loop.create_future()
        ask(answered.set_result)
        error = await answered
        if error is not None:
            raise error

    async def _take_back(self) -> None:
        ended: asyncio.Future[None] = self._parts.loop.create_future()
        self.sequence.take_back(lambda: ended.set_result(None))
        await ended

    def commit_steps(self) -> Sequence[Step]:
        if self._parts.configuration.current.ha_policy.moves_instead_of_serving:
            # the scale-down commits before the first message moves; see ``Serving.steps``
            return ()
        return (Step("commit the activation sequence", self.commit),)

    async def commit(self) -> None:
        """Commit the activation sequence, if that was not done in this activation."""
        await self._answer_of(self.sequence.commit)

    def _prepare(self) -> None:
        self.used.shipping.begin()

    async def _finish(self) -> None:
        finished: asyncio.Future[None] = self._parts.loop.create_future()
        self.link.finish(lambda: finished.set_result(None))
        await finished

    def _accept(self) -> None:
        store = self._stores.store
        assert store is not None
        self.link.open(store.node_id, store.epoch, store.context)
        self.position.open(store)

    def watch(self, replica_asks: Callable[[], None]) -> None:
        self._replica_asks = replica_asks
        # after the commit, so that nothing of it can fail there; before any replica can come into sync
        own_data(self._parts)

    def has_replica(self) -> bool:
        return self.link.in_sync

    def wants_failback(self) -> bool:
        return self.link.in_sync and self.link.wants_failback

    def leave(self) -> None:
        self.link.leave()

    def close(self, closed: Callable[[], None]) -> None:
        def ended() -> None:
            self.used.worker.close()
            closed()

        self.files.close(ended)

    # --- replication.active_link.LinkEvents -----------------------------------------------------------

    def replica_in_sync(self, registration: packets.ReplicaRegistration) -> None:
        parts = self._parts
        parts.topology.set_backup(parts.lock.node_id, registration.connector, registration.group)
        if parts.membership is not None:
            # voters let this replica take over from now on (``cluster.membership.held_votes``)
            parts.membership.join(parts.lock.node_id)
        store = self._stores.store
        assert store is not None
        self.files.attach(store, registration.name, self._protocol)
        if registration.wants_failback and self._replica_asks is not None:
            self._replica_asks()

    def replica_lost(self, registration: packets.ReplicaRegistration) -> None:
        self._parts.topology.set_backup(self._parts.lock.node_id, None)
        self.files.detach(self._stores.store)

    def copy_received(self, data: bytes) -> None:
        self.files.receive(data)

    def cannot_go_on(self, error: BrokerError) -> None:
        self.files.detach(self._stores.store)
        self._owner.fail(error)

    def put_back(self, registration: packets.ReplicaRegistration) -> BrokerError | None:
        store = self._stores.store
        if store is None:
            return None
        return self._parts.watch.put_back(store, registration.had_epoch, registration.had_sequence)
