"""Brokers found by listening: their broadcasts, and the rules for trusting them.

Format and rules: artemis-ha s. 7.1. A datagram carries a node id, an id of the broadcaster, a
count, and that many connectors; buffers of Java broadcasters may append zeros. One entry
per node id, the last connector wins, forgotten after the refresh timeout. Two broadcasters of one
node id give a warning in the log: two brokers of the network have the same identity.

Any host on the network can send such a datagram. So everything is bounded before it is looked at, a
broken one is counted and dropped, and the result is only an address to connect to: ``may_be_told`` says
whether a password may go there. Not here: sockets and waiting (the shells).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from understudy.client.core.options import ClientOptions, Connector, DiscoveryGroup
from understudy.client.core.url import connector_of
from understudy.errors import ConfigError, LimitExceeded, ProtocolError
from understudy.limits import BROADCAST_BYTES_MAX, BROADCAST_CONNECTORS_MAX, BROADCAST_NODES_MAX, NAME_UNITS_MAX
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core.transport import TransportConfiguration

#: Name and factory of a connector, and its number of parameters.
_CONNECTOR_BYTES_MIN = 12


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One datagram."""

    node_id: str
    broadcaster_id: str
    """New with every start of a broadcaster."""
    connectors: tuple[TransportConfiguration, ...]

    def encode(self) -> bytes:
        """The datagram."""
        writer = Writer()
        writer.string(self.node_id)
        writer.string(self.broadcaster_id)
        writer.i32(len(self.connectors))
        for each in self.connectors:
            each.write_to(writer)
        return writer.getvalue()

    @classmethod
    def decode(cls, data: bytes) -> Broadcast:
        """Raises:
        LimitExceeded: larger than any broadcast of connectors.
        RemoteProtocolError: it is none.
        """
        if len(data) > BROADCAST_BYTES_MAX:
            raise LimitExceeded(f"a broadcast of {len(data)} bytes, limit {BROADCAST_BYTES_MAX}")
        reader = Reader(data)
        node_id = reader.string(NAME_UNITS_MAX)
        broadcaster_id = reader.string(NAME_UNITS_MAX)
        count = reader.count(_CONNECTOR_BYTES_MIN, BROADCAST_CONNECTORS_MAX)
        return cls(node_id, broadcaster_id, tuple(TransportConfiguration.read_from(reader) for _ in range(count)))


@dataclass(slots=True)
class _Entry:
    broadcaster_id: str
    connector: Connector
    heard_ms: int


class Discovery:
    """The nodes heard of lately."""

    def __init__(self, group: DiscoveryGroup, template: Connector, log: Callable[[str], None]) -> None:
        """Args:
        template: What our URL says for every connector. If it wants TLS, everything found is dialled
            with TLS, whatever the datagram says.
        log: Called with lines for the operator.
        """
        self._group = group
        self._template = template
        self._log = log
        self._entries: dict[str, _Entry] = {}
        self.refused = 0
        """Datagrams that were no broadcasts of connectors."""

    def receive(self, data: bytes, now_ms: int) -> bool:
        """Take a datagram; whether it named a place to dial."""
        try:
            broadcast = Broadcast.decode(data)
        except ProtocolError as error:
            self.refused += 1
            if self.refused == 1:
                self._log(f"{self._group}: not a broadcast of connectors: {error}")
            return False
        self._expire(now_ms)
        found = [connector_of(each.parameters, self._template, each.name) for each in broadcast.connectors]
        known = [self._secured(each) for each in found if each is not None]
        if not known:
            return False
        node_id = broadcast.node_id
        entry = self._entries.get(node_id)
        if entry is None and len(self._entries) >= BROADCAST_NODES_MAX:
            return False
        if entry is not None and entry.broadcaster_id != broadcast.broadcaster_id:
            self._log(f"{self._group}: two brokers broadcast node id {node_id}, or one was started again")
        self._entries[node_id] = _Entry(broadcast.broadcaster_id, known[-1], now_ms)
        return True

    def connectors(self, now_ms: int) -> tuple[Connector, ...]:
        """Where nodes heard within the refresh timeout can be dialled, one per node."""
        self._expire(now_ms)
        return tuple({entry.connector.place: entry.connector for entry in self._entries.values()}.values())

    def nothing_heard(self) -> str:
        """The text of the error when the wait for the first broadcast has ended."""
        refused = f"; {self.refused} datagram(s) were something else" if self.refused else ""
        return f"{self._group}: no broker heard for {self._group.initial_wait_timeout_ms} ms{refused}"

    def _expire(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._group.refresh_timeout_ms
        for node_id in [key for key, entry in self._entries.items() if entry.heard_ms <= oldest_ms]:
            del self._entries[node_id]

    def _secured(self, connector: Connector) -> Connector:
        own = self._template
        if own.tls is None or connector.tls is not None:
            return connector
        return connector_of({"host": connector.host, "port": connector.port, "sslEnabled": "true"}, own) or connector


def may_be_told(connector: Connector, options: ClientOptions, password: str | None) -> bool:
    """Whether logging in at a discovered place gives no password away: there is none, the server
    proves itself by a certificate, or the URL says that broadcasts are to be trusted.
    """
    return not password or options.trust_discovery or (connector.tls is not None and connector.tls.proves_the_server)


def check_trust(connectors: tuple[Connector, ...], options: ClientOptions, password: str | None) -> None:
    """Raises:
    ConfigError: at one of the places our password would go to any sender of a datagram.
    """
    for connector in connectors:
        if not may_be_told(connector, options, password):
            raise ConfigError(
                f"{connector} is known from a datagram only and does not prove itself: no password goes there",
                hint="use sslEnabled=true with trustStorePath, or trustDiscovery=true on a network of your own",
            )
