"""A protocol of text lines over the services that all protocols share; it shows that they need no type of CORE.

Requests: ``CONNECT user password [transacted]``, ``SEND address body``, ``CONSUME id queue``, ``CREDIT id count``,
``DRAIN id``, ``SETTLE id message outcome``, ``COMMIT``, ``ROLLBACK``. Each is answered by ``OK`` or ``ERROR code``, a
SEND when it is durable. Deliveries are ``MESSAGE id message count body``. Bodies have no spaces. The first bytes of a
connection are those of STOMP, so it is registered in the table under that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from understudy.errors import AuthenticationFailed, BrokerError, LimitExceeded, RemoteProtocolError
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX, LOGIN_HELD_BYTES_PAUSE, OUTGOING_BYTES_PAUSE
from understudy.message import LargeMessage, Message
from understudy.ports import Connection
from understudy.protocols.liveness import Liveness
from understudy.protocols.login import LoginStep
from understudy.protocols.services import ProtocolServices
from understudy.routing.queues.flow_control import MessageCredits
from understudy.security.authentication import Principal
from understudy.session.outcomes import ACCEPTED, EXPIRED, REJECTED, RELEASED, Outcome, modified
from understudy.session.prefixes import AddressPrefixes
from understudy.session.services import SessionOptions
from understudy.session.session import ServerSession
from understudy.store.messages.reference import Part

OUTCOMES: Final[dict[str, Outcome]] = {
    "accept": ACCEPTED,
    "reject": REJECTED,
    "release": RELEASED,
    "expire": EXPIRED,
    "failed": modified(delivery_failed=True),
    "elsewhere": modified(undeliverable_here=True),
}


class LineConnection:
    """Implements ``ConnectionHandler``, ``LoginOwner``, ``ClientConnection`` and ``SessionCallback``."""

    delivery_overhead_bytes = 0

    def __init__(self, services: ProtocolServices, connection: Connection, prefixes: AddressPrefixes) -> None:
        self._services, self._connection, self._prefixes = services, connection, prefixes
        self.scope = services.new_scope("LINE", connection)
        self.host = connection.peer.rpartition(":")[0]
        self.user: str | None = None
        self.outlives_sessions = False
        self.proved = self.held_back = self.held_up = self._closed = False
        self._input = b""
        self._session: ServerSession | None = None
        self._liveness = Liveness(services.clock, services.connection_ttl_override_ms)
        self._login = LoginStep[list[str], str](self, services.access.logins)
        services.connections.opened(self)

    def receive_data(self, data: bytes) -> bool:
        self._liveness.received = True
        *lines, self._input = (self._input + data).split(b"\n")
        if not self.proved and len(self._input) > FRAME_BYTES_BEFORE_LOGIN_MAX:
            raise LimitExceeded(f"a line of {len(self._input)} bytes before a login")
        for line in lines:
            self.receive_held(line.decode())
        return False

    def receive_held(self, item: str) -> None:
        if self._login.checking:
            self._login.hold(item, len(item))
            self.held_up = True
            return
        if not self.proved:
            self._login.count_input()
        verb, *words = item.split()
        try:
            if verb == "CONNECT":
                self._services.connections.check_accepting()
                self._login.log_in(words, words[0], words[1])
            elif self._session is None:
                raise RemoteProtocolError(f"{verb} before CONNECT")
            else:
                _REQUESTS[verb](self, self._session, *words)
        except RemoteProtocolError:
            raise
        except BrokerError as error:
            self._done(error)

    def logged_in(self, request: list[str], principal: Principal) -> None:
        transacted = request[2:] == ["transacted"]
        access = self._services.access
        options = SessionOptions(
            auto_commit_sends=not transacted,
            auto_commit_acks=not transacted,
            prefixes=self._prefixes,
            validated_user=access.validated_user(principal),
        )
        security = access.permissions(principal)
        self._session = ServerSession(
            self.scope.connection_id,
            self._services.sessions,
            callback=self,
            connection=self.scope,
            security=security,
            options=options,
        )
        self._services.connections.session_opened()
        self._session.consumers.start()
        self.user, self.proved = principal.user, True
        self._done(None)

    def login_failed(self, request: list[str], error: BrokerError) -> None:
        if isinstance(error, AuthenticationFailed):
            self._services.access.login_refused(request[0], self.scope, error)
        self._done(error)

    def say(self, *words: object) -> None:
        self._connection.send(" ".join(map(str, words)).encode() + b"\n")

    def _done(self, error: BrokerError | None) -> None:
        if error is None:
            self.say("OK")
        else:
            self.say("ERROR", error.code)

    # --- requests --------------------------------------------------------------------------------

    def _send(self, session: ServerSession, address: str, body: str) -> None:
        session.sends.send(Message(body.encode(), address=address, durable=True), self._done)

    def _consume(self, session: ServerSession, consumer_id: str, queue: str) -> None:
        session.consumers.create(int(consumer_id), queue, flow=MessageCredits())
        self.say("OK")

    def _credit(self, session: ServerSession, consumer_id: str, count: str) -> None:
        session.consumers.receive_credits(int(consumer_id), int(count))

    def _drain(self, session: ServerSession, consumer_id: str) -> None:
        session.consumers.drain(int(consumer_id), lambda unused: self.say("DRAINED", consumer_id, unused))

    def _settle(self, session: ServerSession, consumer_id: str, message_id: str, outcome: str) -> None:
        session.settle(int(consumer_id), int(message_id), OUTCOMES[outcome], self._done)

    def _commit(self, session: ServerSession) -> None:
        session.commit(self._done)

    def _rollback(self, session: ServerSession) -> None:
        session.rollback(done=self._done)

    # --- SessionCallback -------------------------------------------------------------------------

    def deliver(self, consumer_id: int, part: Part) -> int:
        for reference in part:
            message = part.shown or reference.message
            assert message is not None
            self.say("MESSAGE", consumer_id, message.message_id, reference.delivery_count, bytes(message.body).decode())
        return 0

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        raise NotImplementedError

    def deliver_piece(self, consumer_id: int, piece: bytes, continues: bool) -> int:
        raise NotImplementedError

    def forced_delivery(self, consumer_id: int, sequence: int) -> None: ...

    def producer_credits(self, address: str, credit_bytes: int) -> None: ...

    def producer_credits_refused(self, address: str, credit_bytes: int) -> None: ...

    def disconnect_consumer(self, consumer_id: int) -> None:
        self.say("DETACHED", consumer_id)

    def operation_failed(self, error: BrokerError) -> None:
        self._done(error)

    def kill_connection(self, reason: str) -> None:
        self._connection.close()

    def internal_error(self, bug: Exception) -> None:
        self._connection.abort()

    def writable(self) -> bool:
        self.held_back = self._connection.outgoing_bytes() >= OUTGOING_BYTES_PAUSE
        return not self.held_back

    # --- ConnectionHandler, ClientConnection -----------------------------------------------------

    def congested(self) -> bool:
        self.held_up = not self._closed and bool(self._login.held_bytes)
        return self.held_up and self._login.held_bytes > LOGIN_HELD_BYTES_PAUSE

    def resume_deliveries(self) -> None:
        self.held_back = False
        for session in self.open_sessions():
            session.consumers.resume_deliveries()

    def check(self) -> None:
        self._liveness.check_silence()
        if not self.proved and not self._login.checking:
            self._liveness.check_login()

    def disconnect(self) -> None:
        self.say("BYE")

    def prevent_reattachment(self) -> None: ...

    def fail(self, error: BrokerError) -> None:
        self._connection.close()

    def open_sessions(self) -> list[ServerSession]:
        return [self._session] if self._session is not None else []

    def end_session(self, session: ServerSession) -> None:
        self._connection.close()

    def connection_lost(self, reason: str) -> None:
        self._closed = True
        self._login.close()
        if self._session is not None:
            self._session.close(failed=True)
            self._services.connections.session_ended()
            self._session.release_parts()
            self._session = None
        self.scope.delete_temporary_queues(self._services.sessions.post_office)
        self._services.connections.ended(self)


_REQUESTS: Final[dict[str, Callable[..., None]]] = {
    "SEND": LineConnection._send,
    "CONSUME": LineConnection._consume,
    "CREDIT": LineConnection._credit,
    "DRAIN": LineConnection._drain,
    "SETTLE": LineConnection._settle,
    "COMMIT": LineConnection._commit,
    "ROLLBACK": LineConnection._rollback,
}
