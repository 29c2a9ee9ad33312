"""Client sessions of AMQP 0-9-1: state of a client that outlives its connection (ADR 0195).

A client asks for a session in its properties (``session_request``) and enters it with connection.open, when it has
logged in. The session has the exclusive queues of the client, and the auto-delete queues that it has consumed from.
While it has no connection they are kept with their messages, until its timeout ends it. A client that has asked with
``start`` or ``resume`` finds its channels again, too (``resumption``), also at another node of the cluster (``moves``).
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import ClassVar, Final, NamedTuple, Protocol

from understudy.errors import StoreError
from understudy.limits import (
    AMQP091_SESSIONS_MAX,
    AMQP091_SESSIONS_OF_HOST_MAX,
    AMQP091_SESSIONS_OF_USER_MAX,
    REATTACH_GUESSES_OF_HOST_MAX,
)
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer, Timers
from understudy.protocols.amqp091.moves.messages import Move, Moved
from understudy.protocols.amqp091.resumption.records import SessionRecords, restored_sessions
from understudy.protocols.amqp091.session_request import RequestKind, SessionRequest, session_request
from understudy.protocols.guesses import Guesses
from understudy.routing.post_office import PostOffice
from understudy.session.connection_scope import ConnectionScope
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

log = logging.getLogger(__name__)

#: Reply code of a client's connection.close that keeps the session.
KEEP_SESSION: Final = 201
#: Number of generations of delivery tags.
GENERATIONS: Final = 1 << 15
#: Reply codes of the broker's connection.close that keep the session: the client has done nothing wrong.
_KEEPING: Final = (ReplyCode.CONNECTION_FORCED, ReplyCode.INTERNAL_ERROR, ReplyCode.RESOURCE_ERROR)


class SessionConnection(Protocol):
    """The connection of a session."""

    def kill(self, reason: str) -> None:
        """Close the connection with 320."""


class SessionChannels(Protocol):
    """The channels of a session while its client has no connection."""

    def end(self) -> None:
        """End all channels: the session ends."""

    def decide(self, done: Callable[[], None]) -> None:
        """Make a call, perhaps at once, when everything that was sent on the channels is decided."""

    def release(self) -> None:
        """End all channels, and leave their records for the node that goes on with the session.

        Raises:
            Amqp091Error: RESOURCE_ERROR: the disk is full.
        """


class State(Enum):
    """States of a session."""

    ATTACHED = auto()
    """The client is connected."""
    DETACHED = auto()
    """The connection is gone, and the timeout runs."""
    LEAVING = auto()
    """Another node gets the session; until that one has it no client does. The timeout runs."""
    ARRIVING = auto()
    """The session comes from another node, which has not ended it yet. The timeout runs."""
    ENDED = auto()


class Event(Enum):
    """Events of a session."""

    ATTACH = auto()
    """The client goes on at another connection."""
    DETACH = auto()
    """The connection has ended in a way that keeps the session."""
    OFFER = auto()
    """Another node gets the session."""
    RETURN = auto()
    """The other node has not taken it."""
    ARRIVE = auto()
    """Another node gives the session."""
    GAIN = auto()
    """The other node has ended it: the session is here."""
    END = auto()
    """The client ends the session, or its timeout does."""


class Client(NamedTuple):
    """A client of a session."""

    user: str
    """Login of the client."""
    host: str
    """Host from which the client has connected."""
    virtual_host: str = ""
    """Prefix of the virtual host, which names of queues have."""

    def may_take(self, other: Client) -> bool:
        """Whether another connection may have the session of this client: one of its user, from any host."""
        return (self.user, self.virtual_host) == (other.user, other.virtual_host)


class ClientSession(Machine[State, Event]):
    """One session."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.ATTACHED

    def __init__(self, sessions: ClientSessions, request: SessionRequest, client: Client) -> None:
        """Begin without a connection; ``place`` follows.

        Args:
            sessions: Has the session until it ends.
            request: What the client asked for.
            client: Login and host; the user alone may resume the session.
        """
        super().__init__()
        self.uuid = request.uuid
        self.client = client
        self.keeps_channels = request.kind is not RequestKind.ATTACH
        """Whether the client knows how to resume channels."""
        self.generation = 0
        """Generation of the delivery tags of new channels."""
        self.move: Move | None = None
        """Where the session moves; None: it stays."""
        self.last_restored_id = 0
        """Highest id of a message that was in its queue before a failover; 0: there was none in the session."""
        self.records: SessionRecords | None = None
        """Records in the log; None: the session is kept at this node only."""
        self.channels: SessionChannels | None = None
        """Channels without a connection; None: there were none."""
        self.timeout_ms = request.timeout_ms
        self.connection: SessionConnection | None = None
        self._sessions = sessions
        self._scope: ConnectionScope | None = None
        """Scope of the connection; that of the last one while there is none."""
        self._timer: Timer | None = None

    def place(self, connection: SessionConnection, scope: ConnectionScope) -> None:
        """Use a connection from now on; its scope gets the queues of the session."""
        if self._scope is not None:
            scope.adopt(self._scope)
            scope.left_queues |= self._scope.left_queues
            self._scope.left_queues = {}
        self.connection, self._scope = connection, scope

    def restore(self, records: SessionRecords, generation: int, move: Move | None) -> None:
        """Be without a connection, with the channels of the log.

        Args:
            records: Records of the session.
            generation: Generation before the failover, or at the node from which the session comes.
            move: Where the session moves.
        """
        self.records = records
        self.generation = (generation + 1) % GENERATIONS
        self._scope = ConnectionScope("")
        if move is not None and not move.away:
            self.fire(Event.ARRIVE, move)
        else:
            self.fire(Event.DETACH)
        if move is not None and move.away:
            self.fire(Event.OFFER, move)

    def next_generation(self) -> int:
        """Begin a generation of delivery tags: outstanding deliveries are lost. Returns its number."""
        self.generation = (self.generation + 1) % GENERATIONS
        self._save_or_end()
        return self.generation

    def _save_or_end(self) -> None:
        try:
            self.save()
        except (Amqp091Error, StoreError) as error:
            # after a failover the generation would begin again, and old acknowledgements would count
            log.warning("a session ends: its generation cannot be recorded", extra={"error": str(error)})
            self._sessions.timers.call_later(0, lambda: self.fire(Event.END))

    def save(self) -> None:
        """Record the session for the next active node, if its client knows how to resume channels there.

        Raises:
            Amqp091Error: RESOURCE_ERROR: the disk is full.
        """
        if not self.keeps_channels:
            return
        records = self.records or SessionRecords(self._sessions.office.store, self.uuid)
        values = {**self.client._asdict(), "timeout_ms": self.timeout_ms, "generation": self.generation}
        if self.move is not None:
            values["move"] = list(self.move)
        self.records = records if records.save(values) else None

    @property
    def scope(self) -> ConnectionScope:
        """Scope of the connection; while there is none that of the session."""
        assert self._scope is not None, "the session was placed"
        return self._scope

    def _detach(self) -> None:
        self.connection = None
        previous = self._scope
        assert previous is not None, "the session was placed"
        # the connection deletes the queues that are left in its own scope
        self._scope = ConnectionScope(previous.connection_id)
        self._scope.adopt(previous)
        self._scope.left_queues, previous.left_queues = previous.left_queues, {}
        self._timer = self._sessions.timers.call_later(self.timeout_ms, lambda: self.fire(Event.END))

    def _offer(self, move: Move) -> None:
        self.move = move

    def _return(self) -> None:
        self.move = None
        # deliveries went back to their queues
        self.next_generation()

    def _arrive(self, move: Move) -> None:
        self.move = move
        self._detach()

    def _gain(self) -> None:
        self.move = None
        self._save_or_end()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._stop_timer()
        self.connection = None
        self._sessions.forget(self)
        if self.channels is not None:
            self.channels.end()
        if self.records is not None:
            self.records.end()
        if self._scope is not None:
            self._scope.delete_temporary_queues(self._sessions.office)
            self._scope.delete_left_queues(self._sessions.office)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.ATTACHED, Event.DETACH): To(State.DETACHED, _detach),
            (State.ATTACHED, Event.END): To(State.ENDED, _end),
            (State.DETACHED, Event.ATTACH): To(State.ATTACHED, _stop_timer),
            (State.DETACHED, Event.END): To(State.ENDED, _end),
            (State.DETACHED, Event.OFFER): To(State.LEAVING, _offer),
            (State.LEAVING, Event.RETURN): To(State.DETACHED, _return),
            (State.LEAVING, Event.END): To(State.ENDED, _end),
            # before its first connection
            (State.ATTACHED, Event.ARRIVE): To(State.ARRIVING, _arrive),
            (State.ARRIVING, Event.GAIN): To(State.DETACHED, _gain),
            (State.ARRIVING, Event.END): To(State.ENDED, _end),
            (State.ENDED, Event.END): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )


class ClientSessions:
    """The sessions of one active node."""

    def __init__(self, office: PostOffice) -> None:
        self.office = office
        self.timers: Timers = office.timers
        self._by_uuid: dict[str, ClientSession] = {}
        self._of_user: Counter[str] = Counter()
        self._of_host: Counter[str] = Counter()
        self._guesses = Guesses(office.clock, REATTACH_GUESSES_OF_HOST_MAX)
        self._restore()

    @property
    def count(self) -> int:
        """Number of sessions."""
        return len(self._by_uuid)

    def enter(self, request: SessionRequest, client: Client, *, takes_over: bool = True) -> ClientSession:
        """The session that a client has asked for; it is attached and has no connection yet.

        Args:
            request: What the client asks for.
            client: Login and host of the client.
            takes_over: Whether a session that has a connection is taken from it, if the same user asks: after a cut
                link the former connection may look alive for long.

        Raises:
            Amqp091Error: NOT_FOUND: it does not exist, has ended, or belongs to another user or virtual host.
                RESOURCE_LOCKED: it exists and shall be new, or has a connection. NOT_ALLOWED: there are too many
                sessions, or clients of the host have asked for too many that are unknown or of other users.
                RESOURCE_ERROR: the disk is full.
        """
        known = self._by_uuid.get(request.uuid)
        if known is not None and known.client.may_take(client) and request.kind is not RequestKind.START:
            if known.move is not None:
                raise moving()
            if known.connection is not None and not takes_over:
                raise _in_use()
            if known.connection is not None:
                known.connection.kill("the session goes on at another connection")
            if known.state is State.DETACHED:
                known.fire(Event.ATTACH)
                known.timeout_ms = request.timeout_ms
                known.keeps_channels = request.kind is not RequestKind.ATTACH
                try:
                    known.save()
                except Amqp091Error:
                    known.fire(Event.DETACH)
                    raise
                return known
            known = None
        if request.kind is RequestKind.RESUME or known is not None:
            # sessions that the client may have, and new ones, are not concerned
            self.check_guesses(client.host)
        if request.kind is RequestKind.RESUME:
            raise self.unknown(client.host)
        if known is not None:
            self._guesses.count(client.host)
            raise _in_use()
        self.check_room(client)
        session = ClientSession(self, request, client)
        session.save()
        self._add(session)
        return session

    def find(self, uuid: str) -> ClientSession | None:
        """The session of a UUID; None: there is none."""
        return self._by_uuid.get(uuid)

    def moving(self) -> list[ClientSession]:
        """Sessions that move to or from another node."""
        return [each for each in self._by_uuid.values() if each.move is not None]

    def arrive(self, moved: Moved, uuid: str, move: Move) -> ClientSession | None:
        """Record a session that another node gives, before a client may use it. None: a passive node of an earlier
        version forbids the record.

        Args:
            moved: State that the other node has given.
            uuid: UUID that no session of this node has.
            move: The move with which the session comes.

        Raises:
            Amqp091Error: RESOURCE_ERROR: the disk is full.
            StoreError: it cannot be recorded.
            ValueError, TypeError, KeyError: the state is none.
        """
        client = Client(**{name: str(moved.values[name]) for name in Client._fields})
        records = SessionRecords(self.office.store, uuid)
        request = SessionRequest(RequestKind.RESUME, uuid, int(moved.values["timeout_ms"]))
        session = ClientSession(self, request, client)
        session.restore(records, int(moved.values["generation"]), move)
        self._add(session)
        stored = False
        try:
            session.save()
            if session.records is not None:
                records.adopt(moved.channels)
                stored = True
        finally:
            if not stored:
                session.fire(Event.END)
        return session if stored else None

    def check_guesses(self, host: str) -> None:
        """Raise Amqp091Error (NOT_ALLOWED) if clients of a host have asked for too many unknown sessions."""
        if self._guesses.exhausted(host):
            text = "too many unknown sessions were asked for from the host of the client: try again in a minute"
            raise Amqp091Error(ReplyCode.NOT_ALLOWED, text)

    def unknown(self, host: str) -> Amqp091Error:
        """The refusal of a session that does not exist, or is another user's; it counts as a guess of the host. A node
        that another one of its pair may have replaced does not know.
        """
        if not self.office.permission.is_given():
            return unreached()
        self._guesses.count(host)
        return Amqp091Error(ReplyCode.NOT_FOUND, "there is no such session", closes_connection=True)

    def check_room(self, client: Client) -> None:
        """Raise Amqp091Error (NOT_ALLOWED) if there are too many sessions for another one of a client."""
        for count, most, of in (
            (len(self._by_uuid), AMQP091_SESSIONS_MAX, "the node"),
            (self._of_host[client.host], AMQP091_SESSIONS_OF_HOST_MAX, "the host of the client"),
            (self._of_user[client.user], AMQP091_SESSIONS_OF_USER_MAX, "the user"),
        ):
            if count >= most:
                raise Amqp091Error(ReplyCode.NOT_ALLOWED, f"{count} sessions of {of}, the limit")

    def _add(self, session: ClientSession) -> None:
        self._by_uuid[session.uuid] = session
        self._of_user[session.client.user] += 1
        self._of_host[session.client.host] += 1

    def _restore(self) -> None:
        """Take over the sessions of the log, which wait for their clients from now on.

        Raises:
            StoreError: a record that no broker could have written.
        """
        try:
            for uuid, values, records in restored_sessions(self.office.store):
                request = SessionRequest(RequestKind.RESUME, uuid, int(values["timeout_ms"]))
                client = Client(str(values["user"]), str(values["host"]), str(values["virtual_host"]))
                session = ClientSession(self, request, client)
                move = None if values.get("move") is None else Move.read(values["move"])
                session.restore(records, int(values["generation"]), move)
                session.last_restored_id = self.office.store.last_id
                self._add(session)
        except (ValueError, TypeError, KeyError, struct.error) as error:
            raise StoreError(f"a client session in the log is none: {error!r}") from error

    def forget(self, session: ClientSession) -> None:
        """A session has ended."""
        del self._by_uuid[session.uuid]
        for counts, key in ((self._of_user, session.client.user), (self._of_host, session.client.host)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def close(self) -> None:
        """End all sessions with the node, after its connections. Records stay for the next active node."""
        for session in list(self._by_uuid.values()):
            session.records = None
            session.fire(Event.END)


def moving() -> Amqp091Error:
    """The refusal of a session that is on its way from one node to another: the client tries again."""
    return Amqp091Error(
        ReplyCode.CONNECTION_FORCED, "the session moves to another node: try again", closes_connection=True
    )


def unreached() -> Amqp091Error:
    """The refusal of a session that another node may have which is not reached: the client tries again."""
    text = "the session may be at a node that is not reached: try again"
    return Amqp091Error(ReplyCode.CONNECTION_FORCED, text, closes_connection=True)


def _in_use() -> Amqp091Error:
    return Amqp091Error(ReplyCode.RESOURCE_LOCKED, "the session is in use", closes_connection=True)


class SessionPart:
    """The session of one connection, if its client asks for one."""

    def __init__(self, sessions: ClientSessions, scope: ConnectionScope, connection: SessionConnection) -> None:
        """Have no session yet.

        Args:
            sessions: All of the node.
            scope: Queues of the connection.
            connection: The connection itself.
        """
        self._request: SessionRequest | None = None
        """Request of connection.start-ok; None: the client asks for no session."""
        self._refusal: Amqp091Error | None = None
        """Error of a request that cannot be read, which the client gets when it has logged in."""
        self._sessions = sessions
        self._scope = scope
        self._connection = connection
        self._session: ClientSession | None = None
        self._keep = True
        """Whether the end of the connection keeps the session, as the loss of the socket does."""

    def ask(self, properties: Mapping[str, object]) -> None:
        """Keep the request in the properties of a client, which has not logged in."""
        try:
            self._request = session_request(properties)
        except Amqp091Error as error:
            self._refusal = error

    @property
    def session(self) -> ClientSession | None:
        """The session; None: the client has none."""
        return self._session

    @property
    def sought(self) -> SessionRequest | None:
        """The request if the session is not at this node, and another one may have it; None: it is entered here."""
        request = self._request
        if request is None or request.kind is not RequestKind.RESUME or self._sessions.find(request.uuid) is not None:
            return None
        return request

    def enter(self, client: Client, *, takes_over: bool) -> None:
        """Enter the session that the client has asked for.

        Args:
            client: Login and host of the client.
            takes_over: Whether the session is taken from another connection.

        Raises:
            Amqp091Error: as ``session_request`` and ``ClientSessions.enter``.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._request is not None:
            self._session = self._sessions.enter(self._request, client, takes_over=takes_over)
            self._session.place(self._connection, self._scope)

    def closed_by_client(self, code: int) -> None:
        """The client closes the connection with this reply code."""
        self._keep = code == KEEP_SESSION

    def closed_by_broker(self, code: ReplyCode) -> None:
        """The broker closes the connection with this reply code."""
        self._keep = code in _KEEPING

    def prepare(self) -> ClientSession | None:
        """The channels end next: keep the auto-delete queues of their consumers if the session goes on.

        Returns:
            The session if it keeps the channels; None: they end.
        """
        session = self._session
        goes_on = session is not None and session.state is State.ATTACHED and session.timeout_ms > 0
        self._scope.keeps_left_queues = goes_on = self._keep and goes_on
        return session if goes_on and session is not None and session.keeps_channels else None

    def leave(self) -> None:
        """The channels have ended: the session waits for its client, or ends."""
        session, self._session = self._session, None
        if session is not None and session.state is State.ATTACHED:
            session.fire(Event.DETACH if self._scope.keeps_left_queues else Event.END)
