"""Client URLs: where to connect and how to behave, as the Artemis clients write it.

``tcp://a:61616``, ``tcp://a:61616?reconnectAttempts=-1`` and
``(tcp://a:61616,tcp://b:61616?sslEnabled=true)?ha=true&reconnectAttempts=-1``: parameters behind
the bracket belong to the connection, those inside it to one connector. Without brackets one list
serves both, split by name. Names and defaults: ha-behaviour facts s. 8; connector keys:
core-protocol facts 1.5.

Not here: dialling, or the choice of the next connector (``failover``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final
from urllib.parse import parse_qsl

from understudy.errors import ConfigError
from understudy.units import parse_bytes

DEFAULT_PORT: Final = 61616
_CONNECTORS_MAX: Final = 64
_PASSWORD: Final = re.compile(r"((?:keyStore)?password=)[^&;),]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Connector:
    """One place to dial."""

    host: str
    port: int
    tls: TlsOptions | None = None
    """None for plain TCP."""
    connect_timeout_ms: int = 10_000
    """How long a dial may take before the next connector is tried."""

    @property
    def place(self) -> tuple[str, int]:
        """What makes two connectors the same: host and port, compared as text (facts 8.2)."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of one connector; files are PEM."""

    trust_store_path: str | None = None
    """Certificates to trust; None for the system's."""
    key_store_path: str | None = None
    """Our own certificate and key, for servers that ask for one."""
    key_store_password: str | None = field(default=None, repr=False)
    verify_host: bool = True
    """Whether the certificate must name the host dialled."""
    trust_all: bool = False
    """Believe any certificate: encryption without identity."""
    sni_host: str | None = None


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a connection behaves; field names are the URL parameters in Python spelling."""

    ha: bool = False
    """Whether a node that went down leaves our view of the topology."""
    reconnect_attempts: int = 0
    """Rounds over the connectors after a failure; 0 = a failure closes everything, -1 = endless."""
    initial_connect_attempts: int = 1
    """Rounds over the connectors for the first connection; -1 = endless, 0 is read as 1."""
    failover_attempts: int = 0
    """Rounds over the other nodes of the topology once reconnect_attempts are spent."""
    retry_interval_ms: int = 2000
    retry_interval_multiplier: float = 1.0
    max_retry_interval_ms: int = 2000
    failover_on_initial_connection: bool = False
    """Accepted and without effect, as in Artemis: the first connection always tries every connector."""
    call_timeout_ms: int = 30_000
    """Longest wait for one answer; beyond it the connection counts as failed."""
    call_failover_timeout_ms: int = 30_000
    """Longest wait of a call for a failover to end; -1 = endless."""
    connection_ttl_ms: int = 60_000
    """Silence after which either side gives the other up; -1 = never."""
    client_failure_check_period_ms: int = 30_000
    """Time between pings; -1 = none."""
    confirmation_window_size: int = -1
    """Bytes after which received commands are confirmed, which lets a session be reattached; -1 = off."""
    consumer_window_size: int = 1024 * 1024
    """Bytes buffered per consumer; 0 = one message at a time, -1 = unlimited."""
    producer_window_size: int = 64 * 1024
    """Credits a producer asks for, bytes; -1 = no flow control."""
    ack_batch_size: int = 1024 * 1024
    """Bytes of taken messages after which a batching session sends its acknowledgements."""
    min_large_message_size: int = 100 * 1024
    """Above it a message is large: it travels in pieces of this size. Bytes."""
    compress_large_message: bool = False
    """Whether large messages travel and are kept as zlib streams."""
    compression_level: int = -1
    """Of zlib, 0 to 9; -1 = its own choice."""
    block_on_durable_send: bool = True
    block_on_non_durable_send: bool = False
    block_on_acknowledge: bool = False
    use_topology_for_load_balancing: bool = True
    """Whether a further connection of one factory may start at a node learnt from the topology."""
    load_balancing_policy: str = "RoundRobin"
    """RoundRobin, Random, RandomSticky or FirstElement; URL: connectionLoadBalancingPolicyClassName."""
    client_id: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ClientUrl:
    """A parsed URL."""

    connectors: tuple[Connector, ...]
    options: ClientOptions = field(default_factory=ClientOptions)


_POLICIES: Final = ("RoundRobin", "Random", "RandomSticky", "FirstElement")
_SPELLINGS: Final = {
    "retry_interval_ms": "retryInterval",
    "max_retry_interval_ms": "maxRetryInterval",
    "call_timeout_ms": "callTimeout",
    "call_failover_timeout_ms": "callFailoverTimeout",
    "connection_ttl_ms": "connectionTTL",
    "client_failure_check_period_ms": "clientFailureCheckPeriod",
    "load_balancing_policy": "connectionLoadBalancingPolicyClassName",
    "client_id": "clientID",
}
#: Smallest sensible value; a smaller one is refused.
_LEAST: Final = {
    "reconnect_attempts": -1,
    "initial_connect_attempts": -1,
    "failover_attempts": -1,
    "retry_interval_ms": 1,
    "max_retry_interval_ms": 1,
    "call_timeout_ms": 1,
    "call_failover_timeout_ms": -1,
    "connection_ttl_ms": -1,
    "client_failure_check_period_ms": -1,
    "confirmation_window_size": -1,
    "consumer_window_size": -1,
    "producer_window_size": -1,
    "ack_batch_size": 0,
    "min_large_message_size": 1,
    "compression_level": -1,
}
_BYTES: Final = frozenset(
    {
        "confirmation_window_size",
        "consumer_window_size",
        "producer_window_size",
        "ack_batch_size",
        "min_large_message_size",
    }
)


def _spelling(name: str) -> str:
    if name in _SPELLINGS:
        return _SPELLINGS[name]
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


#: URL parameter to field of ``ClientOptions``.
OPTION_PARAMETERS: Final[Mapping[str, str]] = {_spelling(each.name): each.name for each in fields(ClientOptions)}
#: Parameters of one connector.
CONNECTOR_PARAMETERS: Final = (
    "sslEnabled",
    "trustStorePath",
    "keyStorePath",
    "keyStorePassword",
    "verifyHost",
    "trustAll",
    "sniHost",
    "connect-timeout-millis",
)


def parse_url(text: str) -> ClientUrl:
    """Read a client URL.

    Raises:
        ConfigError: malformed, or an unknown parameter (named, with the nearest known one).
    """
    url = text.strip()
    text = _PASSWORD.sub(r"\1***", url)  # errors show the URL, never its secrets
    if url.startswith("("):
        inside, bracket, behind = url[1:].partition(")")
        if not bracket:
            raise ConfigError(f"client URL {text!r}: the opening bracket is never closed")
        if behind and not behind.startswith("?"):
            raise ConfigError(f"client URL {text!r}: something other than '?' behind the bracket")
        query = behind[1:]
    else:
        inside, _, query = url.partition("?")
    shared, own = _split(_pairs(query, text), text)
    connectors = [_connector(part.strip(), shared, text) for part in inside.split(",")]
    if len(connectors) > _CONNECTORS_MAX:
        raise ConfigError(f"client URL with {len(connectors)} connectors, limit {_CONNECTORS_MAX}")
    return ClientUrl(tuple(connectors), _options(own, text))


def connector_of(parameters: Mapping[str, object], template: Connector | None = None) -> Connector | None:
    """The connector a broker advertises in its topology, or None if it names no host.

    Args:
        parameters: Keys of core-protocol facts 1.5; the port may be text or a number.
        template: Gives what a broker cannot know: our trust and key stores, our time limit.
    """
    host = parameters.get("host")
    if not isinstance(host, str) or not host:
        return None
    try:
        port = int(str(parameters.get("port", DEFAULT_PORT)))
    except ValueError:
        return None
    secure = str(parameters.get("sslEnabled", "false")).lower() == "true"
    own = template.tls if template is not None else None
    tls = (own or TlsOptions()) if secure else None
    timeout_ms = template.connect_timeout_ms if template is not None else Connector("", 0).connect_timeout_ms
    return Connector(host, port, tls, timeout_ms)


def _pairs(query: str, url: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.replace(";", "&"), keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise ConfigError(f"client URL {url!r}: {error}") from error
    return dict(pairs)


def _split(pairs: Mapping[str, str], url: str) -> tuple[dict[str, str], dict[str, str]]:
    """Connector parameters and connection parameters; anything else is refused."""
    shared: dict[str, str] = {}
    own: dict[str, str] = {}
    known = {name.lower(): name for name in (*OPTION_PARAMETERS, *CONNECTOR_PARAMETERS)}
    for name, value in pairs.items():
        exact = known.get(name.lower())
        if exact is None:
            near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0)
            raise ConfigError(
                f"client URL {url!r}: unknown parameter {name!r}", hint=f"the nearest known one is {known[near[0]]!r}"
            )
        (shared if exact in CONNECTOR_PARAMETERS else own)[exact] = value
    return shared, own


def _connector(part: str, shared: Mapping[str, str], url: str) -> Connector:
    scheme, separator, rest = part.partition("://")
    if not separator or scheme != "tcp":
        raise ConfigError(f"client URL {url!r}: {part!r} is no connector", hint="write tcp://host:port")
    place, _, query = rest.partition("?")
    inner, misplaced = _split(_pairs(query, url), url)
    if misplaced:
        raise ConfigError(f"client URL {url!r}: {next(iter(misplaced))!r} belongs behind the closing bracket")
    values = {**shared, **inner}
    host, port = _host_and_port(place.rstrip("/"), url)
    tls = None
    if _boolean("sslEnabled", values.get("sslEnabled", "false"), url):
        tls = TlsOptions(
            trust_store_path=values.get("trustStorePath"),
            key_store_path=values.get("keyStorePath"),
            key_store_password=values.get("keyStorePassword"),
            verify_host=_boolean("verifyHost", values.get("verifyHost", "true"), url),
            trust_all=_boolean("trustAll", values.get("trustAll", "false"), url),
            sni_host=values.get("sniHost"),
        )
    name = "connect-timeout-millis"
    if name not in values:
        return Connector(host, port, tls)
    timeout_ms = _whole(name, values[name], url)
    if timeout_ms < 1:
        raise ConfigError(f"client URL {url!r}: {name}={timeout_ms}, at least 1")
    return Connector(host, port, tls, timeout_ms)


def _host_and_port(place: str, url: str) -> tuple[str, int]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port_text = rest.removeprefix(":")
    else:
        host, _, port_text = place.partition(":")
    if not host:
        raise ConfigError(f"client URL {url!r}: a connector without a host")
    if not port_text:
        return host, DEFAULT_PORT
    if not port_text.isascii() or not port_text.isdigit() or not 1 <= int(port_text) <= 65535:
        raise ConfigError(f"client URL {url!r}: {port_text!r} is no port")
    return host, int(port_text)


def _options(values: Mapping[str, str], url: str) -> ClientOptions:
    found: dict[str, bool | int | float | str] = {}
    defaults = ClientOptions()
    for parameter, text in values.items():
        name = OPTION_PARAMETERS[parameter]
        default = getattr(defaults, name)
        if isinstance(default, bool):
            found[name] = _boolean(parameter, text, url)
        elif isinstance(default, int):
            value = _size(parameter, text, url) if name in _BYTES else _whole(parameter, text, url)
            if value < _LEAST[name]:
                raise ConfigError(f"client URL {url!r}: {parameter}={value}, at least {_LEAST[name]}")
            found[name] = value
        elif isinstance(default, float):
            found[name] = _multiplier(parameter, text, url)
        elif name == "load_balancing_policy":
            found[name] = _policy(parameter, text, url)
        else:
            found[name] = text
    if found.get("initial_connect_attempts") == 0:
        found["initial_connect_attempts"] = 1
    return ClientOptions(**found)  # type: ignore[arg-type]  # each value was made after its field's default


def _boolean(name: str, text: str, url: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ConfigError(f"client URL {url!r}: {name}={text!r}, true or false")
    return text.lower() == "true"


def _whole(name: str, text: str, url: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"client URL {url!r}: {name}={text!r} is no whole number") from None


def _size(name: str, text: str, url: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"client URL {url!r}: {name}: {error}") from None


def _multiplier(name: str, text: str, url: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1.0 <= value <= 1000.0:
        raise ConfigError(f"client URL {url!r}: {name}={text!r}, a number from 1 to 1000")
    return value


def _policy(name: str, text: str, url: str) -> str:
    """The policy's name out of a bare name or a Java class name."""
    simple = text.rpartition(".")[2].removesuffix("ConnectionLoadBalancingPolicy")
    for policy in _POLICIES:
        if simple.lower() == policy.lower():
            return policy
    raise ConfigError(f"client URL {url!r}: {name}={text!r}", hint=f"one of {', '.join(_POLICIES)}")
