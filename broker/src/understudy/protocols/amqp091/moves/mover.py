"""The moves of client sessions between a node and the other members of its cluster (ADR 0199)."""

from __future__ import annotations

from understudy.cluster.membership.session_moves import Answer, MoveStep, SessionMove
from understudy.ports import Clock, Entropy
from understudy.protocols.amqp091.moves.arrivals import Arrivals
from understudy.protocols.amqp091.moves.departures import Departures
from understudy.protocols.amqp091.moves.members import Members
from understudy.protocols.amqp091.sessions import ClientSessions


class SessionMover:
    """Both sides of the moves of one active node."""

    def __init__(self, sessions: ClientSessions, members: Members, clock: Clock, entropy: Entropy) -> None:
        """Receive the messages of the other members from now on.

        Args:
            sessions: Sessions of the node.
            members: The other nodes.
            clock: Measures limits of hosts.
            entropy: Source of tokens.
        """
        self._members = members
        self._departures = Departures(sessions, members)
        self.arrivals = Arrivals(sessions, members, clock, entropy)
        members.listen(self.receive)

    def receive(self, move: SessionMove, answer: Answer) -> None:
        """Take a message of another member.

        Args:
            move: The message.
            answer: Sends a message to that member.

        Raises:
            RemoteProtocolError: it cannot be read.
        """
        self.arrivals.hear(move.node_id)
        if move.step == MoveStep.ASK:
            self._departures.asked(move, answer)
        elif move.step == MoveStep.STORED:
            self._departures.stored(move, answer)
        elif move.step == MoveStep.DROPPED:
            self._departures.dropped(move)
        elif move.step == MoveStep.INQUIRE:
            self.arrivals.inquired(move, answer)
        else:
            self.arrivals.answered(move, answer)

    def close(self) -> None:
        """Receive nothing more."""
        self._members.close()
        self._departures.close()
