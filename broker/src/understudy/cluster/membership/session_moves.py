"""Messages between members about sessions of AMQP 0-9-1 that move from one node to another (ADR 0199).

They come on links on which the other node has proved the cluster password, and on no other connection.

Not here: their meaning (``protocols.amqp091.moves``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.cluster.membership.member_link import MemberLink
from understudy.wire.core import packets
from understudy.wire.core.packets import MoveStep, SessionMove

__all__ = ["Answer", "MoveStep", "Receiver", "SessionMove", "SessionMoves", "packet_of"]

Answer = Callable[[SessionMove], None]
"""Sends a message to the node from which one has come."""
Receiver = Callable[[SessionMove, Answer], None]
"""Takes a message. Raises RemoteProtocolError: it cannot be read, and the connection is closed."""


def packet_of(move: SessionMove) -> packets.QuorumVote:
    """The packet of a message: a vote of a kind that nodes of earlier releases ignore."""
    return packets.QuorumVote(packets.SESSION_MOVE, move)


class SessionMoves:
    """The receiver of the messages of one network of a node."""

    def __init__(self) -> None:
        self._receiver: Receiver | None = None

    def receive_with(self, receiver: Receiver | None) -> None:
        """Give each message to a receiver; None: the node is not active, and ignores them."""
        self._receiver = receiver

    def take(self, link: MemberLink, packet: packets.Packet) -> bool:
        """Take a message of the accepting node of a link. Returns False for a packet of another kind."""
        if type(packet) is not packets.QuorumVote or not isinstance(packet.vote, SessionMove):
            return False
        self.receive(packet.vote, lambda move: link.send(packet_of(move)))
        return True

    def receive(self, move: SessionMove, answer: Answer) -> None:
        """Take a message.

        Args:
            move: The message.
            answer: Sends a message on the same connection.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        if self._receiver is not None:
            self._receiver(move, answer)
