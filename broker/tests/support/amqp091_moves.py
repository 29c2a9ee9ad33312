"""Nodes of a cluster between which sessions of AMQP 0-9-1 move, message by message: no links, no loop."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, cast

from support.amqp091 import AmqpClient, AmqpNode
from support.amqp091_sessions import UUID, asked
from support.routing import World
from understudy.cluster.membership.session_moves import Receiver
from understudy.ports import Timer
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.protocols.amqp091.moves.mover import SessionMover
from understudy.protocols.amqp091.sessions import State
from understudy.routing.restore import restore, settle
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import PROTOCOL_HEADER
from understudy.wire.core.packets import SessionMove

__all__ = ["Cluster", "FakeMembers", "InFlight", "Timer"]


class InFlight(NamedTuple):
    """A message on its way."""

    sender: str
    receiver: str
    move: SessionMove


class FakeMembers:
    """The other nodes, as ``moves.members.Members`` shows them."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.node_id = name
        self.lost = False
        """Whether a member was lost shortly before."""
        self._cluster = cluster

    def listen(self, receiver: Receiver) -> None:
        self._cluster.receivers[self.node_id] = receiver

    def close(self) -> None:
        del self._cluster.receivers[self.node_id]

    def reached(self) -> list[str]:
        return [each for each in self._cluster.nodes if each != self.node_id and self._cluster.connects(self, each)]

    def send(self, node_id: str, move: SessionMove) -> None:
        if self._cluster.connects(self, node_id):
            self._cluster.in_flight.append(InFlight(self.node_id, node_id, move))

    def missing(self) -> bool:
        return self.lost


class Cluster:
    """Some nodes, by the letters of their names."""

    def __init__(self, names: str = "ab") -> None:
        self.in_flight: deque[InFlight] = deque()
        self.receivers: dict[str, Receiver] = {}
        self.cut: set[str] = set()
        """Nodes that are not reached."""
        self.nodes: dict[str, AmqpNode] = {}
        self.members: dict[str, FakeMembers] = {}
        for name in names:
            self._begin(name, AmqpNode())

    def _begin(self, name: str, node: AmqpNode) -> None:
        self.nodes[name] = node
        members = self.members[name] = FakeMembers(self, name)
        services = node.services
        node.amqp.mover = SessionMover(node.amqp.sessions, cast(Any, members), services.clock, Tokens(name))

    def connects(self, members: FakeMembers, node_id: str) -> bool:
        return members.node_id not in self.cut and node_id in self.nodes and node_id not in self.cut

    def crash(self, name: str) -> None:
        """The node of a name crashes, and another one takes over, with the log as far as it was on disk."""
        self.in_flight = deque(each for each in self.in_flight if name not in (each.sender, each.receiver))
        world = World(store=self.nodes[name].store.restarted())
        world.office.routing.exchanges.carrier = MessageCarrier()
        restore(world.office, world.store.state)
        settle(world.office, "$.internal")
        self._begin(name, AmqpNode(world=world))

    def sync_by_hand(self) -> None:
        """Records are durable only when ``sync`` is called from now on."""
        for node in self.nodes.values():
            node.store.automatic = False

    def deliver(self) -> bool:
        """Deliver the next message. Returns whether there was one."""
        if not self.in_flight:
            return False
        sent = self.in_flight.popleft()
        receiver = self.receivers.get(sent.receiver)
        if receiver is not None and not self.cut & {sent.sender, sent.receiver}:

            def answer(move: SessionMove) -> None:
                self.in_flight.append(InFlight(sent.receiver, sent.sender, move))

            receiver(sent.move, answer)
            self.turn()
        return True

    def turn(self) -> None:
        for node in self.nodes.values():
            node.world.turn()

    def run(self) -> None:
        """Carry everything out, with a disk that keeps up."""
        while True:
            for node in self.nodes.values():
                node.settle()
            if not self.deliver():
                return

    def pass_ms(self, duration_ms: int) -> None:
        for node in self.nodes.values():
            node.world.clock.advance(duration_ms)
        self.turn()
        self.run()

    def seek(self, name: str, user: str = "u", **more: Any) -> AmqpClient:
        """A client that has asked a node for its session, and has no answer yet."""
        made = self.nodes[name].amqp_client()
        made.send_bytes(PROTOCOL_HEADER)
        made.received()
        response = f"\0{user}\0p".encode()
        tune = made.ask(m.ConnectionStartOk(asked("resume", UUID, **more), "PLAIN", response, ""), m.ConnectionTune, 0)
        made.send(m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0), 0)
        made.send(m.ConnectionOpen("/"), 0)
        return made

    def homes(self) -> list[str]:
        """Nodes at which a client could use the session now."""
        found = ((name, node.amqp.sessions.find(UUID)) for name, node in self.nodes.items())
        return [
            name for name, session in found if session is not None and session.state in (State.ATTACHED, State.DETACHED)
        ]


class Tokens:
    """Tokens that differ between nodes and calls. Implements ``Entropy``."""

    _count = 0

    def __init__(self, name: str) -> None:
        self._name = name

    def token(self, length_bytes: int) -> bytes:
        Tokens._count += 1
        return f"{self._name}{Tokens._count}".encode().rjust(length_bytes, b"-")[-length_bytes:]
