"""The beginning of a connection: login, negotiated limits and virtual host (AMQP 0-9-1, class connection)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy import __version__, limits
from understudy.cluster.membership.link_ends import is_loopback
from understudy.errors import AuthenticationFailed, BrokerError
from understudy.ports import Security
from understudy.protocols.amqp091 import names, sasl
from understudy.protocols.amqp091.endpoint_checks import NODE_PROPERTY
from understudy.protocols.amqp091.link import HandshakeOwner
from understudy.protocols.amqp091.moves.arrivals import Waiter
from understudy.protocols.amqp091.refusals import refusal
from understudy.protocols.amqp091.session_request import TIMEOUT_PROPERTY
from understudy.protocols.amqp091.sessions import Client, SessionPart
from understudy.protocols.login import LoginStep
from understudy.security.authentication import Principal
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.methods import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)

#: Heartbeat interval that is offered, in seconds.
HEARTBEAT_S: Final = 60
_CAPABILITIES: Final = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
    "consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to", "qpid.session",
)  # fmt: skip


class Handshake:
    """The handshake of one connection. Implements ``LoginOwner``."""

    def __init__(self, owner: HandshakeOwner) -> None:
        """No byte has come; ``owner``: the connection."""
        self._owner = owner
        self.host = owner.connection.peer.rpartition(":")[0]
        """Host of the client, without its port."""
        self.user: str | None = None
        self._mechanism = ""
        """Mechanism that the client has chosen."""
        self._asked: Mapping[str, object] = {}
        """Properties with which the client began."""
        self._waits = False
        """Whether the client waits for a session that is sought at other nodes."""
        self.principal: Principal | None = None
        """The user after the login; None before."""
        self.session = SessionPart(owner.services.sessions, owner.scope, owner)
        logins = owner.services.shared.access.logins
        subject = owner.connection.certificate_subject
        policy = owner.services.shared.access.policy
        # clients that find EXTERNAL choose it before PLAIN, so it is offered only if it can succeed
        self._by_certificate = subject is not None and policy.takes_certificate(subject)
        self.login = LoginStep[sasl.Credentials, None](self, logins, subject)

    def start(self) -> None:
        """Offer the protocol and mechanisms."""
        offered = sasl.mechanisms(by_certificate=self._by_certificate)
        properties: dict[str, object] = {
            "product": "Understudy",
            "version": __version__,
            "platform": "Python",
            "copyright": "",
            "information": "",
            NODE_PROPERTY: self._owner.services.shared.node_id,
            TIMEOUT_PROPERTY: limits.DETACHED_SESSION_MS_MAX // 1000,
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
        }
        self._owner.send(ConnectionStart(0, 9, properties, " ".join(offered).encode(), b"en_US"), 0)

    def lacks_credentials(self, method: ConnectionStartOk) -> bool:
        """Whether the client has chosen a mechanism that needs credentials, and given none. A client without an
        initial response waits for a challenge (RFC 4422, section 3).
        """
        offered = sasl.mechanisms(by_certificate=self._by_certificate)
        return not method.response and method.mechanism in offered and method.mechanism != sasl.EXTERNAL

    def choose(self, method: ConnectionStartOk) -> None:
        """Take the choice of a client; check its credentials, or ask for them."""
        self._mechanism = method.mechanism
        self._asked = method.client_properties
        capabilities = method.client_properties.get("capabilities")
        if isinstance(capabilities, dict):
            self._owner.peer.capabilities = {name: value for name, value in capabilities.items() if value is True}
        if self.lacks_credentials(method):
            self._owner.send(ConnectionSecure(b""), 0)
        else:
            self.log_in(method.response)

    def log_in(self, response: bytes) -> None:
        """Check the credentials in the response of a client, at once or on another thread."""
        owner = self._owner
        request = sasl.Credentials(None, None)
        try:
            owner.services.shared.connections.check_accepting()
            self.session.ask(self._asked)
            request = sasl.credentials(self._mechanism, response, by_certificate=self._by_certificate)
            default = (
                request.user,
                request.password,
            ) == sasl.DEFAULT_LOGIN and owner.services.shared.access.policy.checks
            if default and not is_loopback(owner.connection.peer):
                raise AuthenticationFailed("the default login of RabbitMQ is for clients on loopback addresses only")
            self.login.log_in(request, request.user, request.password)
        except BrokerError as error:
            self.login_failed(request, error)

    def logged_in(self, request: sasl.Credentials, principal: Principal) -> None:
        """The login succeeded (``LoginOwner``)."""
        owner = self._owner
        self.principal = principal
        owner.proved = True
        self.user = owner.peer.user = principal.user
        owner.peer.channel_max = min(limits.AMQP091_CHANNELS_MAX, owner.services.options.sessions_max)
        owner.proceed()
        owner.send(ConnectionTune(owner.peer.channel_max, limits.AMQP091_FRAME_BYTES_MAX, HEARTBEAT_S), 0)

    def login_failed(self, request: sasl.Credentials, error: BrokerError) -> None:
        """The login is refused (``LoginOwner``); the client learns no more than that."""
        owner = self._owner
        refused = isinstance(error, AuthenticationFailed | Amqp091Error)
        if isinstance(error, AuthenticationFailed):
            owner.services.shared.access.login_refused(request.user, owner.scope, error)
        if owner.peer.capabilities.get("authentication_failure_close") is True:
            code = ReplyCode.ACCESS_REFUSED if refused else ReplyCode.CONNECTION_FORCED
            owner.send(ConnectionClose(code, f"{code.text} - the login was refused"), 0)
        owner.connection.close()

    def receive_held(self, item: None) -> None:
        """Do nothing (``LoginOwner``): frames stay undecoded during a login."""

    def fail(self, error: BrokerError) -> None:
        """Close the connection because of an error (``LoginOwner``)."""
        self._owner.fail(error)

    def tune(self, method: ConnectionTuneOk) -> int:
        """Take the limits that the client chooses; 0 is no limit of its own, so that the offered one holds. Returns the
        heartbeat interval in seconds.

        Raises:
            Amqp091Error: NOT_ALLOWED: a limit above the offered one, or frames that are too small.
        """
        peer = self._owner.peer
        channel_max = method.channel_max or peer.channel_max
        if channel_max > peer.channel_max:
            raise Amqp091Error(
                ReplyCode.NOT_ALLOWED, f"channel-max {method.channel_max}, at most {peer.channel_max} was offered"
            )
        least, most = limits.AMQP091_FRAME_BYTES_MIN, limits.AMQP091_FRAME_BYTES_MAX
        frame_max = method.frame_max or most
        if not least <= frame_max <= most:
            raise Amqp091Error(ReplyCode.NOT_ALLOWED, f"frame-max {method.frame_max}, not from {least} to {most}")
        peer.channel_max, peer.frame_max = channel_max, frame_max
        self._owner.proceed()
        return method.heartbeat

    def open(self, method: ConnectionOpen) -> None:
        """Enter a virtual host, and the session that the client has asked for; if that is not at this node, when
        another node has given it.

        Raises:
            Amqp091Error: NOT_ALLOWED: there is no virtual host of that name. And as ``ClientSessions.enter`` and
                ``Arrivals.seek``.
        """
        owner = self._owner
        options = owner.services.options.amqp091
        owner.peer.host = names.host_prefix(method.virtual_host, options.virtual_hosts)
        client = Client(owner.peer.user, self.host, owner.peer.host)
        sought, mover = self.session.sought, owner.services.mover
        if sought is None or mover is None:
            self._enter(client)
            return

        def found() -> None:
            if self._waits:
                try:
                    self._enter(client)
                except BrokerError as error:
                    refused(error)

        def refused(error: BrokerError) -> None:
            if self._waits:
                self._waits = False
                owner.refuse(refusal(error, str(error)), method)

        self._waits = True
        owner.seek()
        mover.arrivals.seek(sought.uuid, client, Waiter(found, refused), takes_over=options.session_takeover)

    def _enter(self, client: Client) -> None:
        owner = self._owner
        self.session.enter(client, takes_over=owner.services.options.amqp091.session_takeover)
        self._waits = False
        owner.proceed()
        owner.send(ConnectionOpenOk(self.known_hosts()), 0)

    def close(self) -> None:
        """The connection has ended: nothing is waited for."""
        self.login.close()
        self._waits = False

    def known_hosts(self) -> str:
        """The list of other nodes for connection.open-ok."""
        owner = self._owner
        known = owner.services.known_hosts
        return "" if known is None else known.text(tls=owner.connection.security is not Security.NONE)
