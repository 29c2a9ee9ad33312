"""Whether another node may take over from this one: read from a node, and logged when it changes (ADR 0153).

Loaded with every node, so it needs nothing of the management server.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from understudy.ha.life.node import NodeLife
from understudy.ha.life.policy import NodeState, Role
from understudy.ha.replication.policy import ReplicationPolicy
from understudy.management.protection import Facts, Protection, protection_of
from understudy.replication.active_link import LinkState
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.node.activation import Activation
from understudy.runtime.node.opened_store import OpenedStore
from understudy.runtime.node.serving import Serving
from understudy.runtime.node.standby import NodeStandby
from understudy.runtime.replica.replication import NodeReplication

log = logging.getLogger(__name__)

#: Time for which an active node may be without another node before this is logged: in a failback or a start of both
#: nodes the other one connects a little later.
ALONE_MS: Final = 5_000
#: Reason of an active node that is not ready.
CLOSED: Final = "no acceptor is open: clients cannot connect (autoStart=false, or no protocol that this version has)"


#: Kinds of activations in the place of another node: of a backup, and of a primary that serves again.
SWITCHES: Final = ("take-over", "failback")
#: States of the link to a replica that gets a copy of the store.
_COPYING: Final = (LinkState.COPYING, LinkState.FREEZING, LinkState.FROZEN)


class NodeProtection:
    """The protection of one node."""

    def __init__(
        self,
        parts: NodeParts,
        life: NodeLife,
        standby: NodeStandby,
        opened: OpenedStore,
        serving: Serving,
        replication: NodeReplication | None,
        activation: Activation,
    ) -> None:
        """Nothing is logged yet."""
        self._parts = parts
        self._life = life
        self._standby = standby
        self._opened = opened
        self._serving = serving
        self._replication = replication
        self._activation = activation
        self._other: str | None = None
        """The other node of the pair, as it was last known in the present state."""
        self.switches = dict.fromkeys(SWITCHES, 0)
        """Activations of this process in the place of another node, by kind."""
        self._served = False
        """Whether the log says that this node serves."""
        self._timer: asyncio.TimerHandle | None = None
        self._alone = False
        """Whether the log says that no node takes over."""
        parts.topology.listen(lambda member: self.changed(), lambda node_id, event_id: self.changed())

    # --- values ------------------------------------------------------------------------------------

    def find(self) -> Protection:
        """The answer at present."""
        policy, configuration, replication = self._life.policy, self._parts.configuration.current, self._replication
        without = policy.without_manager
        passive, peer = self._life.state.shown == "passive", self.peer()
        return protection_of(
            Facts(
                policy=policy.name,
                role=policy.role.value,
                state=self._life.state.shown,
                persistent=configuration.persistence_enabled,
                peer=peer,
                peer_name=None if peer is None else self._parts.topology.names.of(peer),
                copying=replication is not None and replication.link.state in _COPYING,
                manager_fault=None if without is None else f"{without.manager}: {without.reason}",
                unfit=self._unfit() if passive else None,
                in_line=policy.in_line is not None,
            )
        )

    def peer(self) -> str | None:
        """host:port of the other server of the pair, as far as it is known."""
        if self._life.state is NodeState.ACTIVE:
            member = self._parts.topology.member(self._parts.lock.node_id)
            return None if member is None or member.backup is None else f"{member.backup.host}:{member.backup.port}"
        return self._standby.announced_to if self._replication is None else self._life.policy.active_node

    def trouble(self) -> str | None:
        """Reason why the node is not ready although its state is."""
        if self._life.state is NodeState.ACTIVE:
            store = self._opened.store
            if store is not None and store.full:
                return f"disk full: {store.full_reason}"
            return None if self._serving.is_open else CLOSED
        return self._standby.following_error or self._waiting_because() or self._standby.why_not_take_over()

    def _waiting_because(self) -> str | None:
        policy = self._life.policy
        return policy.standby_life.waiting_because if isinstance(policy, ReplicationPolicy) else None

    def _unfit(self) -> str | None:
        found = self.trouble() or self._life.policy.stays_passive
        if found is not None or self._life.policy.in_line is not None:
            return found
        follower = self._standby.follower
        if follower is None:
            return "it follows no log"
        return None if follower.caught_up else f"it has still to read {follower.lag_bytes} bytes of the log"

    # --- log ---------------------------------------------------------------------------------------

    def changed(self) -> None:
        """The state of the node or the topology has changed."""
        self._say_changes()
        if self._life.state is not NodeState.ACTIVE or self._life.policy.role is Role.PRIMARY_ONLY:
            self._cancel()
            self._alone = False
        elif self.peer() is not None:
            self._cancel()
            if self._alone:
                self._alone = False
                log.info("this node is protected again: %s", self.find().sentence)
        elif self._timer is None and not self._alone:
            self._timer = self._parts.loop.call_later(ALONE_MS / 1000, self._say)

    def _say_changes(self) -> None:
        """Log that this node serves instead of another one, or gave the service back."""
        state = self._life.state
        if state is NodeState.ACTIVE and not self._served:
            self._served = True
            facts, store = self._activation.facts(), self._opened.store
            if self._other is not None and facts is not None and store is not None:
                names = self._parts.topology.names
                values = (store.epoch, facts.took_ms)
                if self._life.policy.role is Role.BACKUP:
                    self.switches["take-over"] += 1
                    log.warning(
                        "took over from %s, which %s: epoch %s, %s ms, no confirmed durable message is lost",
                        names.shown(self._other),
                        "stopped" if names.has_stopped(self._other) else "vanished",
                        *values,
                    )
                else:
                    self.switches["failback"] += 1
                    log.info("serves again instead of %s: epoch %s, %s ms", names.shown(self._other), *values)
        elif state is NodeState.YIELDED and self._served:
            other = "its primary" if self._other is None else self._parts.topology.names.shown(self._other)
            log.info("gave back to %s", other)
        self._served = self._served and state not in (NodeState.YIELDED, NodeState.STOPPED, NodeState.ISOLATED)
        if state in (NodeState.PASSIVE, NodeState.QUEUED, NodeState.ACTIVE):
            self._other = self.peer() or (None if state is NodeState.ACTIVE else self._other)

    def _say(self) -> None:
        self._timer = None
        self._alone = True
        log.warning("this node is not protected: %s", self.find().sentence)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
