"""The beginning of a connection of a client of AMQP 0-9-1: login, limits, virtual host, session, known hosts.

A broker that announces ``qpid.session`` keeps sessions (ADR 0195): the first connection starts one, later ones resume
it. Other brokers, such as RabbitMQ, are not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from understudy.client.amqp091.output import Output
from understudy.client.core.url.options import Connector
from understudy.dataclass import dataclass
from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    ConnectionLost,
    NotActive,
)
from understudy.ids import uuid_text
from understudy.limits import AMQP091_CHANNELS_MAX, AMQP091_FRAME_BYTES_MAX
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.layout import Method

#: Name in the capabilities of a broker that keeps sessions, and beginning of the properties about them.
_SESSION: Final = "qpid.session"
#: The longest time in seconds for which a broker keeps a session without a connection (ADR 0195).
_TIMEOUT_S_MAX: Final = 300
#: Server properties with the identity of the broker, the most exact one first.
_NODES: Final = ("qpid.cluster.node", "cluster_name")
_CAPABILITIES: Final = (
    "publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked", "authentication_failure_close",
)  # fmt: skip
_GUEST: Final = "guest"


class Login(NamedTuple):
    """How the client logs in, and where."""

    user: str | None
    password: str | None
    virtual_host: str


@dataclass(slots=True)
class ClientSession:
    """The session of the client at the broker, over all transports."""

    timeout_s: int
    """Time in seconds for which the broker is asked to keep the session after a connection is lost."""
    uuid: str = ""
    """A secret: no log line or error has it."""
    kept: bool = False
    """Whether a broker has confirmed it."""

    @classmethod
    def for_ttl(cls, connection_ttl_ms: int) -> ClientSession:
        """A session that is kept as long as a session of CORE: for the ``connectionTTL``, in ms; below 0: no limit."""
        if connection_ttl_ms < 0:
            return cls(_TIMEOUT_S_MAX)
        return cls(min(max(1, connection_ttl_ms // 1000), _TIMEOUT_S_MAX))


class State(Enum):
    """States of a handshake."""

    STARTING = auto()
    TUNING = auto()
    OPENING = auto()
    OPEN = auto()


class Handshake:
    """The methods of channel 0 of one transport."""

    def __init__(
        self, out: Output, login: Login, session: ClientSession, connector: Connector, token: Callable[[int], bytes]
    ) -> None:
        """Args:
        out: Output of the connection.
        login: Login and virtual host.
        session: Session of the client.
        connector: Place that was dialled.
        token: Source of random bytes.
        """
        self.state = State.STARTING
        self.node_id = ""
        """Identity of the broker; nodes that serve the same queues have the same one."""
        self.channel_max = 0
        self.heartbeat_s = 0
        """Interval of heartbeats that the client wants; after the handshake the one that holds. 0: none."""
        self.known_hosts: tuple[Connector, ...] = ()
        self.resumed = False
        """Whether the broker goes on with the session of the client."""
        self.blocked = False
        """Whether the broker takes no messages for now."""
        self._out = out
        self._login = login
        self._session = session
        self._connector = connector
        self._token = token
        self._asked = ""

    def receive(self, method: Method) -> bool:
        """Handle a method of channel 0. Returns whether the connection has become open by it.

        Raises:
            AuthenticationFailed: the login is refused.
            ConnectionLost, NotActive: the broker closes the connection.
            RemoteProtocolError: it cannot be expected.
        """
        if isinstance(method, m.ConnectionClose):
            self._out.send(m.ConnectionCloseOk(), 0)
            raise self._closed(method)
        if isinstance(method, m.ConnectionStart) and self.state is State.STARTING:
            self._start(method)
        elif isinstance(method, m.ConnectionTune) and self.state is State.TUNING:
            self._tune(method)
        elif isinstance(method, m.ConnectionOpenOk) and self.state is State.OPENING:
            self.state = State.OPEN
            self.known_hosts = known_hosts(method.known_hosts, self._connector)
            self.resumed = self._asked == "resume"
            self._session.kept = bool(self._asked)
            return True
        elif isinstance(method, m.ConnectionBlocked | m.ConnectionUnblocked) and self.state is State.OPEN:
            self.blocked = isinstance(method, m.ConnectionBlocked)
        elif not isinstance(method, m.ConnectionCloseOk):
            raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, f"{method.name} is not expected")
        return False

    def _start(self, method: m.ConnectionStart) -> None:
        properties = method.server_properties
        self.node_id = next((text for name in _NODES if isinstance(text := properties.get(name), str)), "")
        capabilities = properties.get("capabilities")
        own: dict[str, Any] = {
            "product": "Understudy client",
            "platform": "Python",
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
        }
        if isinstance(capabilities, Mapping) and capabilities.get(_SESSION) is True:
            self._asked = "resume" if self._session.kept else "start"
            if not self._session.kept:
                self._session.uuid = uuid_text(random_uuid(self._token(16)))
            own[f"{_SESSION}.{self._asked}"] = self._session.uuid
            own[f"{_SESSION}.timeout"] = self._session.timeout_s
        mechanism, response = self._mechanism(method.mechanisms.split())
        self.state = State.TUNING
        self._out.send(m.ConnectionStartOk(own, mechanism, response, "en_US"), 0)

    def _mechanism(self, offered: list[bytes]) -> tuple[str, bytes]:
        login, tls = self._login, self._connector.tls
        if login.user is None and tls is not None and tls.key_store_path is not None and b"EXTERNAL" in offered:
            return "EXTERNAL", b""
        if b"PLAIN" not in offered:
            names = ", ".join(each.decode("ascii", "replace") for each in offered)
            raise ConfigError(f"{self._connector} offers the mechanisms {names}, not PLAIN")
        user = _GUEST if login.user is None else login.user
        password = _GUEST if login.user is None and login.password is None else login.password or ""
        return "PLAIN", b"\0" + user.encode() + b"\0" + password.encode()

    def _tune(self, method: m.ConnectionTune) -> None:
        self.channel_max = min(method.channel_max or AMQP091_CHANNELS_MAX, AMQP091_CHANNELS_MAX)
        frame_max = min(method.frame_max or AMQP091_FRAME_BYTES_MAX, AMQP091_FRAME_BYTES_MAX)
        if self.heartbeat_s and method.heartbeat:
            self.heartbeat_s = min(self.heartbeat_s, method.heartbeat)
        self._out.send(m.ConnectionTuneOk(self.channel_max, frame_max, self.heartbeat_s), 0)
        self._out.send(m.ConnectionOpen(self._login.virtual_host), 0)
        self._out.negotiated(frame_max)
        self.state = State.OPENING

    def _closed(self, method: m.ConnectionClose) -> BrokerError:
        text = f"{self._connector}: {method.reply_text or method.reply_code}"
        if self.state is State.TUNING and method.reply_code == ReplyCode.ACCESS_REFUSED:
            return AuthenticationFailed(text)
        if (
            self.state is State.OPENING
            and self._asked
            and method.reply_code
            in (
                ReplyCode.NOT_FOUND,
                ReplyCode.RESOURCE_LOCKED,
            )
        ):
            # the broker has not the session any more, or has one of this name: the next attempt starts another one
            self._session.kept = False
            return ConnectionLost(f"{self._connector}: the session of the client has ended there")
        if self.state is State.OPENING and method.reply_code in (ReplyCode.NOT_ALLOWED, ReplyCode.ACCESS_REFUSED):
            return ConfigError(text, hint="does the virtual host exist, and may the user use it?")
        if self.state is not State.OPEN and method.reply_code == ReplyCode.CONNECTION_FORCED:
            return NotActive(text)
        return ConnectionLost(f"the broker closes the connection: {text}")


def random_uuid(token: bytes) -> bytes:
    """The bytes of a UUID of version 4 from 16 random ones."""
    return b"".join((token[:6], bytes((token[6] & 15 | 64, token[7], token[8] & 63 | 128)), token[9:]))


def known_hosts(text: str, template: Connector) -> tuple[Connector, ...]:
    """The places in the list of connection.open-ok (ADR 0194); entries that cannot be read are left out.

    Args:
        text: Entries ``host:port`` and ``amqps:host:port`` with commas between them.
        template: Has the settings of the connection, such as those of TLS.
    """
    found = []
    for entry in text.split(","):
        place = entry.strip()
        secure = place.startswith("amqps:")
        host, _, port = place.removeprefix("amqps:").rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        digits = port.isascii() and port.isdigit() and len(port) <= 5
        if host and digits and 0 < int(port) <= 65_535 and secure == (template.tls is not None):
            found.append(_at(template, host, int(port)))
    return tuple(found)


def _at(template: Connector, host: str, port: int) -> Connector:
    return Connector(
        host,
        port,
        template.tls,
        template.connect_timeout_ms,
        local_address=template.local_address,
        tcp_no_delay=template.tcp_no_delay,
        tcp_send_buffer_size=template.tcp_send_buffer_size,
        tcp_receive_buffer_size=template.tcp_receive_buffer_size,
    )
