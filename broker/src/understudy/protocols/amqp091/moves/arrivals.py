"""The side of a node that gets a session from another node, because its client asks here for it (ADR 0199).

All other members are asked. The home that has the session gives its state, which is recorded here; when that is
durable the home ends the session, and only then a client may use it here. So at no time two nodes have it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar, Final, NamedTuple

from understudy.cluster.membership.session_moves import Answer, MoveStep, SessionMove
from understudy.errors import BrokerError, forget_frames
from understudy.limits import (
    AMQP091_SEARCH_MS,
    AMQP091_SEARCHES_MAX,
    AMQP091_SEARCHES_OF_HOST_PER_SECOND_MAX,
    CLUSTER_NODES_MAX,
)
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Entropy, Timer
from understudy.protocols.amqp091.moves.members import Members
from understudy.protocols.amqp091.moves.messages import Busy, Move, Moved, Wanted
from understudy.protocols.amqp091.sessions import Client, ClientSession, ClientSessions, moving, unreached
from understudy.protocols.amqp091.sessions import Event as SessionEvent
from understudy.protocols.amqp091.sessions import State as SessionState
from understudy.protocols.guesses import Guesses
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

log = logging.getLogger(__name__)

_TOKEN_BYTES: Final = 16
#: Time after which the home is asked again to end a session that is stored here.
_CONFIRM_MS: Final = 1_000
_SECOND_MS: Final = 1_000


class Waiter(NamedTuple):
    """A client that waits for its session."""

    found: Callable[[], None]
    """The session is at this node, and the first client that asks for it enters it."""
    refused: Callable[[Amqp091Error], None]
    """The session is not at this node, and will not be."""


class State(Enum):
    """States of a search."""

    BEGINNING = auto()
    ASKING = auto()
    """The other members are asked."""
    STORING = auto()
    """A home has given the state, which is not durable here yet."""
    CONFIRMING = auto()
    """The home is asked to end the session there."""
    OVER = auto()


class Event(Enum):
    """Events of a search."""

    ASK = auto()
    REFUSE = auto()
    """No member gives the session, or not in time."""
    STORE = auto()
    """A home has given the state."""
    CONFIRM = auto()
    """The state is durable."""
    GAIN = auto()
    """The home has ended the session."""
    LOSE = auto()
    """The home has not given the session, or the timeout of the session has ended it."""


class Search(Machine[State, Event]):
    """The search for one session, and its way to this node."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.BEGINNING

    def __init__(self, owner: Arrivals, uuid: str, host: str = "", waiter: Waiter | None = None) -> None:
        """Wait for ``ASK``, or for ``CONFIRM`` if the state was stored before a failover.

        Args:
            owner: All searches of the node.
            uuid: UUID of the session.
            host: Host of the client.
            waiter: The client; None: it is gone.
        """
        super().__init__()
        self.uuid = uuid
        self._host = host
        self.waiter = waiter
        self.pending: dict[str, str] = {}
        """Node ids of members that have not answered, by the tokens of their questions."""
        self.move: Move | None = None
        """The home that has given the session, and the token of that."""
        self.refusal: Amqp091Error | None = None
        """Answer of a member that has the session and cannot give it."""
        self._owner = owner
        self._missing = False
        """Whether a member could not be asked, which may be reached by now."""
        self._session: ClientSession | None = None
        self._timer: Timer | None = None

    # --- asking ------------------------------------------------------------------------------------

    def _ask(self, wanted: Wanted) -> None:
        owner = self._owner
        self._missing = owner.members.missing()
        for node_id in owner.members.reached():
            token = owner.new_token(self)
            self.pending[token] = node_id
        for token, node_id in list(self.pending.items()):
            owner.members.send(node_id, owner.message(MoveStep.ASK, token, self.uuid, wanted.encode()))
        self._timer = owner.sessions.timers.call_later(AMQP091_SEARCH_MS, self._late)

    def _late(self) -> None:
        """The client has waited long enough; a session that has left its home goes on to arrive."""
        self._timer = None
        if self.state is State.ASKING:
            if self._owner.heard.intersection(self.pending.values()):
                self.refusal = self.refusal or unreached()
            self.fire(Event.REFUSE)
        else:
            self._refuse_waiter(moving())

    def answered(self, token: str, refusal: Amqp091Error | None = None) -> None:
        """A member does not give the session.

        Args:
            token: The one with which it was asked.
            refusal: Reason why it cannot give it; None: it has no such session.
        """
        if self.pending.pop(token, None) is not None:
            self._owner.forget_token(token)
            self.refusal = self.refusal or refusal
            if not self.pending and self.state is State.ASKING:
                self.fire(Event.REFUSE)

    def _refuse(self) -> None:
        if self.refusal is None and (self._missing or self._owner.members.missing()):
            self.refusal = unreached()
        self._end()
        self._refuse_waiter(self.refusal)

    def _refuse_waiter(self, error: Amqp091Error | None) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.refused(error or self._owner.sessions.unknown(self._host))

    # --- the state comes ---------------------------------------------------------------------------

    def _store(self, move: Move, session: ClientSession) -> None:
        self.move, self._session = move, session
        for token in [each for each in self.pending if each != move.token]:
            del self.pending[token]
            self._owner.forget_token(token)
        context = self._owner.sessions.office.store.context
        context.when_durable(context.appended, self._confirm_once)

    def _confirm_once(self) -> None:
        if self.state is State.STORING:
            self.fire(Event.CONFIRM, self._session)

    def _confirm(self, session: ClientSession) -> None:
        self._session, self.move = session, session.move
        self._ask_for_end()

    def _ask_for_end(self) -> None:
        owner, move = self._owner, self.move
        if self.state is not State.CONFIRMING or move is None or self._session is None:
            return
        if self._session.state is not SessionState.ARRIVING:
            self.fire(Event.LOSE)
            return
        owner.members.send(move.node_id, owner.message(MoveStep.STORED, move.token, self.uuid))
        owner.sessions.timers.call_later(_CONFIRM_MS, self._ask_for_end)

    def _gain(self) -> None:
        session, waiter = self._session, self.waiter
        self._end()
        if session is None or session.state is not SessionState.ARRIVING:
            self._refuse_waiter(moving())
            return
        log.info("a client session has come from another node", extra={"from": session.move and session.move.node_id})
        session.fire(SessionEvent.GAIN)
        self.waiter = None
        if waiter is not None:
            waiter.found()

    def _lose(self) -> None:
        session = self._session
        self._end()
        if session is not None and session.state is SessionState.ARRIVING:
            session.fire(SessionEvent.END)
        self._refuse_waiter(moving())

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._owner.forget(self)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.BEGINNING, Event.ASK): To(State.ASKING, _ask),
            (State.BEGINNING, Event.CONFIRM): To(State.CONFIRMING, _confirm),
            (State.ASKING, Event.REFUSE): To(State.OVER, _refuse),
            (State.ASKING, Event.STORE): To(State.STORING, _store),
            (State.STORING, Event.CONFIRM): To(State.CONFIRMING, _confirm),
            (State.CONFIRMING, Event.GAIN): To(State.OVER, _gain),
            (State.CONFIRMING, Event.LOSE): To(State.OVER, _lose),
            (State.OVER, Event.GAIN): IGNORED,
            (State.OVER, Event.LOSE): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )


class Arrivals:
    """The searches of a node."""

    def __init__(self, sessions: ClientSessions, members: Members, clock: Clock, entropy: Entropy) -> None:
        """Go on with the sessions that were stored before a failover of this node.

        Args:
            sessions: Sessions of the node.
            members: The other nodes.
            clock: Measures the seconds of the limit for hosts.
            entropy: Source of tokens.
        """
        self.sessions = sessions
        self.members = members
        self.heard: set[str] = set()
        """Node ids of members that have sent a message. A member of an earlier release never sends one, so its silence
        is no reason to wait."""
        self._searches: set[Search] = set()
        """Searches that a client has begun."""
        self._entropy = entropy
        self._asked = Guesses(clock, AMQP091_SEARCHES_OF_HOST_PER_SECOND_MAX, _SECOND_MS)
        self._by_token: dict[str, Search] = {}
        for session in sessions.moving():
            if session.state is SessionState.ARRIVING and session.move is not None:
                search = Search(self, session.uuid)
                self._by_token[session.move.token] = search
                search.fire(Event.CONFIRM, session)

    def seek(self, uuid: str, client: Client, waiter: Waiter, *, takes_over: bool) -> Search:
        """Look for a session at all members.

        Args:
            uuid: UUID that no session of this node has.
            client: Login and host of the client.
            waiter: Gets the outcome, perhaps before the return.
            takes_over: Whether the session is taken from a connection that it has.

        Raises:
            Amqp091Error: NOT_ALLOWED: there are too many sessions, or clients of the host have asked for too many
                unknown ones. CONNECTION_FORCED: too many are sought.
        """
        self.sessions.check_guesses(client.host)
        self.sessions.check_room(client)
        if len(self._searches) >= AMQP091_SEARCHES_MAX or self._asked.exhausted(client.host):
            text = "too many sessions are sought at other nodes: try again"
            raise Amqp091Error(ReplyCode.CONNECTION_FORCED, text, closes_connection=True)
        self._asked.count(client.host)
        search = Search(self, uuid, client.host, waiter)
        self._searches.add(search)
        search.fire(Event.ASK, Wanted(client.user, client.virtual_host, takes_over))
        if not search.pending:
            search.fire(Event.REFUSE)
        return search

    # --- messages ----------------------------------------------------------------------------------

    def answered(self, move: SessionMove, answer: Answer) -> None:
        """A member answers a question.

        Raises:
            RemoteProtocolError: the answer cannot be read.
        """
        search = self._by_token.get(move.token)
        if move.step == MoveStep.STATE:
            moved = Moved.read(move.data)
            if search is None or search.state is not State.ASKING or not self._store(search, move, moved):
                answer(self.message(MoveStep.DROPPED, move.token, move.uuid))
                if search is not None:
                    search.answered(move.token, moving())
        elif search is not None and move.step == MoveStep.ABSENT:
            search.answered(move.token)
        elif search is not None and move.step == MoveStep.BUSY:
            search.answered(move.token, Busy.read(move.data).error())
        elif search is not None and move.step in (MoveStep.ENDED, MoveStep.KEPT):
            self._decided(search, move)

    def _store(self, search: Search, move: SessionMove, moved: Moved) -> bool:
        """Whether the state of a session is recorded."""
        if self.sessions.find(search.uuid) is not None:
            return False
        given = Move(False, search.pending[move.token], move.token)
        try:
            session = self.sessions.arrive(moved, search.uuid, given)
        except (BrokerError, ValueError, TypeError, KeyError) as error:
            forget_frames(error)
            log.warning("a client session stays at another node: it cannot be stored here", extra={"error": str(error)})
            return False
        if session is None:
            return False
        search.fire(Event.STORE, given, session)
        return True

    def _decided(self, search: Search, move: SessionMove) -> None:
        if search.state is State.CONFIRMING:
            search.fire(Event.GAIN if move.step == MoveStep.ENDED else Event.LOSE)

    def inquired(self, move: SessionMove, answer: Answer) -> None:
        """The home asks what became of the state that it has given. One that comes after the answer is not stored."""
        search = self._by_token.get(move.token)
        if search is not None and search.state in (State.STORING, State.CONFIRMING):
            # its end is asked for as soon as it is durable, and again
            return
        if search is not None:
            search.answered(move.token, moving())
        answer(self.message(MoveStep.DROPPED, move.token, move.uuid))

    def message(self, step: MoveStep, token: str, uuid: str, data: bytes = b"") -> SessionMove:
        """A message of this node."""
        return SessionMove(step, token, self.members.node_id, uuid, data)

    def hear(self, node_id: str) -> None:
        """A member has sent a message."""
        if len(self.heard) < CLUSTER_NODES_MAX:
            self.heard.add(node_id)

    # --- for searches ------------------------------------------------------------------------------

    def new_token(self, search: Search) -> str:
        """A token for a question of a search."""
        token = self._entropy.token(_TOKEN_BYTES).hex()
        self._by_token[token] = search
        return token

    def forget_token(self, token: str) -> None:
        """A question is answered."""
        self._by_token.pop(token, None)

    def forget(self, search: Search) -> None:
        """A search is over."""
        self._searches.discard(search)
        for token in [*search.pending, *(() if search.move is None else (search.move.token,))]:
            self.forget_token(token)
