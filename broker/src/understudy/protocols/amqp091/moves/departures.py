"""The side of a node that has a session which moves to another node: its home until then (ADR 0199).

The home gives the session to one node only, and records to which before that one gets the state. It goes on with the
session when that node says that it has not stored the state, and ends it when that node has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.cluster.membership.session_moves import Answer, MoveStep, SessionMove
from understudy.errors import BrokerError, forget_frames
from understudy.limits import AMQP091_MOVED_STATE_BYTES_MAX
from understudy.ports import Timer
from understudy.protocols.amqp091.moves.members import Members
from understudy.protocols.amqp091.moves.messages import Busy, Move, Moved, Wanted
from understudy.protocols.amqp091.sessions import Client, ClientSession, ClientSessions, Event, State, moving, unreached
from understudy.wire.amqp091.codes import ReplyCode

#: Time after which the home asks what became of the state that it has given, again and again.
INQUIRY_MS: Final = 1_000


class Departures:
    """The sessions of a node that other nodes ask for."""

    def __init__(self, sessions: ClientSessions, members: Members) -> None:
        """Ask for the sessions that were given before a failover of this node.

        Args:
            sessions: Sessions of the node.
            members: The other nodes.
        """
        self._sessions = sessions
        self._members = members
        self._timers: dict[str, Timer] = {}
        """Next inquiries by the token."""
        for session in sessions.moving():
            if session.state is State.LEAVING and session.move is not None:
                self._inquire_later(session, session.move)

    def close(self) -> None:
        """Ask nothing more."""
        while self._timers:
            self._timers.popitem()[1].cancel()

    # --- questions of the other node ---------------------------------------------------------------

    def asked(self, asked: SessionMove, answer: Answer) -> None:
        """Another node asks for a session.

        Raises:
            RemoteProtocolError: the question cannot be read.
        """
        wanted = Wanted.read(asked.data)
        session = self._sessions.find(asked.uuid)
        if not self._sessions.office.permission.is_given():
            # another node may have taken over, and have the session
            self._refuse(asked, answer, Busy(ReplyCode.CONNECTION_FORCED, str(unreached())))
        elif session is None or not session.client.may_take(Client(wanted.user, "", wanted.virtual_host)):
            if self._members.missing():
                # a node that has just started does not know the members that were lost before
                self._refuse(asked, answer, Busy(ReplyCode.CONNECTION_FORCED, str(unreached())))
            else:
                self._answer(asked, answer, MoveStep.ABSENT)
        elif session.move is not None:
            self._refuse(asked, answer, Busy(ReplyCode.CONNECTION_FORCED, str(moving())))
        elif session.records is None or not session.keeps_channels:
            self._refuse(asked, answer, Busy(ReplyCode.RESOURCE_LOCKED, "the session is kept at its node only"))
        elif session.connection is not None and not wanted.takes_over:
            self._refuse(asked, answer, Busy(ReplyCode.RESOURCE_LOCKED, "the session is in use"))
        else:
            self._give(session, asked, answer)

    def _give(self, session: ClientSession, asked: SessionMove, answer: Answer) -> None:
        if session.connection is not None:
            session.connection.kill("the session goes on at another node")
        if session.state is not State.DETACHED:
            # its timeout was 0
            self._answer(asked, answer, MoveStep.ABSENT)
            return
        move = Move(True, asked.node_id, asked.token)
        session.fire(Event.OFFER, move)
        release = partial(self._release, session, move, asked, answer)
        if session.channels is None:
            release()
        else:
            session.channels.decide(release)

    def _release(self, session: ClientSession, move: Move, asked: SessionMove, answer: Answer) -> None:
        """Everything that the client sent is decided: record the move, then give the state."""
        if session.move != move or session.state is not State.LEAVING:
            # its timeout has ended it meanwhile
            self._answer(asked, answer, MoveStep.ABSENT)
            return
        try:
            if session.channels is not None:
                session.channels.release()
            session.save()
            data = self._state(session)
        except BrokerError as error:
            forget_frames(error)
            session.fire(Event.RETURN)
            self._refuse(asked, answer, Busy(ReplyCode.CONNECTION_FORCED, "the session cannot be given now"))
            return
        if len(data) > AMQP091_MOVED_STATE_BYTES_MAX:
            session.fire(Event.RETURN)
            text = f"the state of the session has {len(data)} bytes, {AMQP091_MOVED_STATE_BYTES_MAX} can move"
            self._refuse(asked, answer, Busy(ReplyCode.CONNECTION_FORCED, text))
            return

        def give() -> None:
            if session.move == move and session.state is State.LEAVING:
                self._inquire_later(session, move)
                answer(self._message(MoveStep.STATE, move.token, session.uuid, data))

        self._when_durable(give)

    def _state(self, session: ClientSession) -> bytes:
        records = session.records
        assert records is not None, "others do not move"
        values = {**session.client._asdict(), "timeout_ms": session.timeout_ms, "generation": session.generation}
        channels = {number: (each, records.last_number(number)) for number, each in records.channels.items()}
        return Moved(values, channels).encode()

    def stored(self, move: SessionMove, answer: Answer) -> None:
        """Another node has stored the state, and asks for the end of the session here. It asks again each second."""
        if not self._sessions.office.permission.is_given():
            # another node may have taken over, and knows whether it has given the session
            return
        session = self._sessions.find(move.uuid)
        if session is not None and not _is_given(session, move):
            self._answer(move, answer, MoveStep.KEPT)
            return
        if session is not None:
            session.fire(Event.END)
        self._when_durable(partial(self._answer, move, answer, MoveStep.ENDED))

    def dropped(self, move: SessionMove) -> None:
        """Another node has not stored the state."""
        session = self._sessions.find(move.uuid)
        if session is not None and _is_given(session, move):
            session.fire(Event.RETURN)

    # --- inquiries ---------------------------------------------------------------------------------

    def _inquire_later(self, session: ClientSession, move: Move) -> None:
        timer = self._sessions.timers.call_later(INQUIRY_MS, partial(self._inquire, session, move))
        self._timers[move.token] = timer

    def _inquire(self, session: ClientSession, move: Move) -> None:
        del self._timers[move.token]
        if session.move == move and session.state is State.LEAVING:
            self._members.send(move.node_id, self._message(MoveStep.INQUIRE, move.token, session.uuid))
            self._inquire_later(session, move)

    # --- messages ----------------------------------------------------------------------------------

    def _when_durable(self, call: Callable[[], None]) -> None:
        context = self._sessions.office.store.context
        context.when_durable(context.appended, call)

    def _message(self, step: MoveStep, token: str, uuid: str, data: bytes = b"") -> SessionMove:
        return SessionMove(step, token, self._members.node_id, uuid, data)

    def _answer(self, move: SessionMove, answer: Answer, step: MoveStep, data: bytes = b"") -> None:
        answer(self._message(step, move.token, move.uuid, data))

    def _refuse(self, move: SessionMove, answer: Answer, busy: Busy) -> None:
        self._answer(move, answer, MoveStep.BUSY, busy.encode())


def _is_given(session: ClientSession, move: SessionMove) -> bool:
    """Whether a session was given with the token of a message."""
    return session.state is State.LEAVING and session.move is not None and session.move.token == move.token
