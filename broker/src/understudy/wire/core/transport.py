"""Connectors: addresses at which a node or its backup accepts connections.

Wire form: artemis-core s. 2.4. URL form: ``tcp://host:port?key=value``, as in connectors and client URLs
(one node each; the client reads lists of them). Not here: the meaning of the parameters.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from understudy.dataclass import dataclass
from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.limits import TRANSPORT_PARAMETERS_MAX
from understudy.texts import has_login, masked_url
from understudy.wire.buffer import Reader, Writer

#: The only connector factory for connections between hosts.
NETTY_CONNECTOR_FACTORY: Final = "org.apache.activemq.artemis.core.remoting.impl.netty.NettyConnectorFactory"
DEFAULT_HOST: Final = "localhost"
DEFAULT_PORT: Final = 61616

ParameterValue = bool | int | str

_BOOLEAN, _INT, _LONG, _STRING = range(4)
#: Key length field, type byte, and a boolean.
_PARAMETER_BYTES_MIN: Final = 6


#: Parameters of connectors that begin with a request for an HTTP upgrade.
_OF_UPGRADES: Final = ("httpUpgradeEnabled", "httpUpgradeEndpoint", "activemqServerName")


@dataclass(frozen=True, slots=True)
class TransportConfiguration:
    """One connector: a factory and its parameters."""

    name: str = ""
    """Name of the connector in its configuration."""
    factory: str = NETTY_CONNECTOR_FACTORY
    """Java class name of the connector factory, which Java peers compare as text."""
    parameters: dict[str, ParameterValue] = field(default_factory=dict, hash=False)
    """``host``, ``port``, ``sslEnabled``, ...; protocol-specific ones have the prefix ``$.EP.``."""

    @property
    def host(self) -> str:
        """Host name or address."""
        return str(self.parameters.get("host", DEFAULT_HOST))

    @property
    def port(self) -> int:
        """Port of the connector.

        Raises:
            RemoteProtocolError: the parameter is not a port number.
        """
        value = self.parameters.get("port", DEFAULT_PORT)
        # int() would also accept "6_1" and digits of other scripts.
        text = str(value)
        if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
            raise RemoteProtocolError(f"connector {self.name!r}: port {value!r}")
        return int(text)

    @property
    def http_upgrade(self) -> bool:
        """Whether the connection begins with a request for an HTTP upgrade (artemis-core s. 1.4)."""
        return str(self.parameters.get("httpUpgradeEnabled", "")).lower() == "true"

    @property
    def server_name(self) -> str:
        """Name of the server that the request for an HTTP upgrade names; empty: without one, or without a name.

        Servers of one process share the place: two connectors are equal only if the names are (ADR 0073).
        """
        return str(self.parameters.get("activemqServerName", "")) if self.http_upgrade else ""

    def without_upgrade(self) -> TransportConfiguration:
        """The connector for connections that begin without a request for an HTTP upgrade."""
        parameters = {name: value for name, value in self.parameters.items() if name not in _OF_UPGRADES}
        return TransportConfiguration(self.name, self.factory, parameters)

    @property
    def _port_text(self) -> str:
        return str(self.parameters.get("port", DEFAULT_PORT))

    def write_to(self, writer: Writer) -> None:
        """Append the wire form.

        Raises:
            LocalProtocolError: a value is not a bool, int (64 bit) or str.
        """
        writer.string(self.name)
        writer.string(self.factory)
        writer.i32(len(self.parameters))
        for key, value in self.parameters.items():
            writer.string(key)
            if isinstance(value, bool):
                writer.i8(_BOOLEAN)
                writer.boolean(value)
            elif isinstance(value, str):
                writer.i8(_STRING)
                writer.string(value)
            elif isinstance(value, int) and -(2**31) <= value < 2**31:
                writer.i8(_INT)
                writer.i32(value)
            elif isinstance(value, int) and -(2**63) <= value < 2**63:
                writer.i8(_LONG)
                writer.i64(value)
            else:
                raise LocalProtocolError(f"connector {self.name!r}: {key}={value!r} cannot be sent")

    @classmethod
    def read_from(cls, reader: Reader) -> TransportConfiguration:
        """The connector at the reader's position.

        Raises:
            RemoteProtocolError: malformed bytes.
            LimitExceeded: more than ``TRANSPORT_PARAMETERS_MAX`` parameters.
        """
        name = reader.string()
        factory = reader.string()
        parameters: dict[str, ParameterValue] = {}
        for _ in range(reader.count(_PARAMETER_BYTES_MIN, TRANSPORT_PARAMETERS_MAX)):
            key = reader.string()
            kind = reader.i8()
            if kind == _BOOLEAN:
                parameters[key] = reader.boolean()
            elif kind == _INT:
                parameters[key] = reader.i32()
            elif kind == _LONG:
                parameters[key] = reader.i64()
            elif kind == _STRING:
                parameters[key] = reader.string()
            else:
                raise RemoteProtocolError(f"connector parameter {key!r} of unknown type {kind}")
        return cls(name, factory, parameters)

    def encode(self) -> bytes:
        """Encode the connector for a packet."""
        writer = Writer()
        self.write_to(writer)
        return writer.getvalue()

    @classmethod
    def decode(cls, data: bytes) -> TransportConfiguration:
        """Decode the connector that ``data`` consists of.

        Raises:
            RemoteProtocolError: malformed bytes.
        """
        reader = Reader(data)
        found = cls.read_from(reader)
        if reader.remaining:
            raise RemoteProtocolError(f"{reader.remaining} bytes after a connector")
        return found

    @classmethod
    def from_url(cls, url: str, name: str = "") -> TransportConfiguration:
        """The connector of ``tcp://host:port?key=value``.

        Values remain text, as Java peers send them; the scheme ``tcps`` or ``ssl`` sets
        ``sslEnabled``. A fragment is ignored.

        Raises:
            LocalProtocolError: not a URL of this form.
        """
        try:
            parts = urlsplit(url.strip())
            port = parts.port
            query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=TRANSPORT_PARAMETERS_MAX)
        except ValueError:
            # the error would show a part of the URL, which can be a password
            parts, port, query = None, None, []
        if (
            parts is None
            or has_login(url)
            or parts.scheme not in ("tcp", "tcps", "ssl")
            or parts.path not in ("", "/")
            or "@" in parts.netloc
        ):
            raise LocalProtocolError(f"{masked_url(url)!r} is no connector: tcp://host:port?key=value")
        parameters: dict[str, ParameterValue] = {
            "host": parts.hostname or DEFAULT_HOST,
            "port": str(DEFAULT_PORT if port is None else port),
        }
        if parts.scheme != "tcp":
            parameters["sslEnabled"] = "true"
        parameters.update(query)
        return cls(name, NETTY_CONNECTOR_FACTORY, parameters)

    def to_url(self) -> str:
        """The URL of the connector, as read by ``from_url``: parameters as text, without the name."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        query = "&".join(
            f"{_quoted(key, '$.')}={_quoted(_as_text(value), '/:,*')}"
            for key, value in self.parameters.items()
            if key not in ("host", "port")
        )
        return f"tcp://{host}:{self.port}" + (f"?{query}" if query else "")

    def same_place(self, other: TransportConfiguration | None) -> bool:
        """Whether both lead to the same server: host and port as text, and its name if several share the port."""
        if other is None or self.host != other.host or self._port_text != other._port_text:
            return False
        return self.server_name == other.server_name

    def to_vote_text(self) -> str:
        """Text of the connector in votes, as Artemis writes and compares it: dots are dashes, passwords are hidden."""
        text = f"TransportConfiguration(name={self.name}, factory={_dashed(self.factory)})"
        values = (
            f"{_dashed(key)}={'****' if 'password' in key.lower() else _dashed(_as_text(value))}"
            for key, value in self.parameters.items()
        )
        return text + ("?" + "&".join(values) if self.parameters else "")


def _dashed(text: str) -> str:
    return text.replace(".", "-")


def _as_text(value: ParameterValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str, safe: str) -> str:
    # a peer can send a lone surrogate
    return quote(text, safe=safe, errors="surrogatepass")
