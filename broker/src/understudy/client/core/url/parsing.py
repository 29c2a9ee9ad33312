"""Client URLs: where to connect and how to behave, as the Artemis clients write it.

``tcp://a:61616``, ``tcp://a:61616?reconnectAttempts=-1`` and
``(tcp://a:61616,tcp://b:61616?sslEnabled=true)?ha=true&reconnectAttempts=-1``: parameters after
the bracket belong to the connection, those inside it to one connector. Without brackets one list
serves both, split by name. ``udp://231.7.7.7:9876?refreshTimeout=5000`` listens for brokers that
broadcast their connectors; ``jgroups://channel?file=stack.xml`` does so in the way that a JGroups
stack says. ``tcp://user:password@host`` has a login. ``amqp091://`` and ``amqp091+tls://`` are URLs of
AMQP 0-9-1 (``amqp091``). Several hosts fail over unless the URL says otherwise (``ha=false``,
``reconnectAttempts``). Names and defaults: artemis-ha s. 8; connector keys: artemis-core s. 1.5.

Invariant: a parameter is honoured, listed as without effect, or refused by name (``parameters``);
none is dropped silently. Not here: dialling, or the choice of the next connector (``failover``).
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Final
from urllib.parse import parse_qsl, unquote

from understudy.client.core.url import amqp091
from understudy.client.core.url.options import (
    DISCOVERY_PORT,
    ClientOptions,
    ClientUrl,
    Connector,
    DiscoveryGroup,
    TlsOptions,
)
from understudy.client.core.url.parameters import ALIASES, REFUSED, WITHOUT_EFFECT
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.texts import has_login, masked_url
from understudy.tls.settings import check_protocols, make_store
from understudy.units import parse_bytes

DEFAULT_PORT: Final = 61616
_CONNECTORS_MAX: Final = 64


#: Parameters with which a URL says itself whether its clients fail over.
_ATTEMPTS: Final = frozenset({"reconnectAttempts", "failoverAttempts"})
#: Parameters that say whether a connection fails over.
_FAILOVER: Final = _ATTEMPTS | {"ha"}
_POLICIES: Final = ("RoundRobin", "Random", "RandomSticky", "FirstElement")
_SPELLINGS: Final = {
    "retry_interval_ms": "retryInterval",
    "max_retry_interval_ms": "maxRetryInterval",
    "call_timeout_ms": "callTimeout",
    "call_failover_timeout_ms": "callFailoverTimeout",
    "connection_ttl_ms": "connectionTTL",
    "client_failure_check_period_ms": "clientFailureCheckPeriod",
    "silence_timeout_ms": "silenceTimeout",
    "load_balancing_policy": "connectionLoadBalancingPolicyClassName",
    "client_id": "clientID",
    "group_id": "groupID",
    "dups_ok_batch_size": "dupsOKBatchSize",
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
    "silence_timeout_ms": -1,
    "confirmation_window_size": -1,
    "consumer_window_size": -1,
    "consumer_max_rate": -1,
    "producer_window_size": -1,
    "producer_max_rate": -1,
    "ack_batch_size": 0,
    "dups_ok_batch_size": -1,
    "transaction_batch_size": -1,
    "min_large_message_size": 1,
    "compression_level": -1,
}
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_MOST: Final = {"compression_level": 9}
_BYTES: Final = frozenset(
    {
        "confirmation_window_size",
        "consumer_window_size",
        "producer_window_size",
        "ack_batch_size",
        "dups_ok_batch_size",
        "transaction_batch_size",
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
    "name",
    "sslEnabled",
    "trustStorePath",
    "trustStoreType",
    "trustStorePassword",
    "keyStorePath",
    "keyStoreType",
    "keyStorePassword",
    "keyStoreAlias",
    "crlPath",
    "enabledCipherSuites",
    "enabledProtocols",
    "verifyHost",
    "trustAll",
    "sniHost",
    "localAddress",
    "localPort",
    "tcpNoDelay",
    "tcpSendBufferSize",
    "tcpReceiveBufferSize",
    "connect-timeout-millis",
    "httpUpgradeEnabled",
    "activemqServerName",
    "httpUpgradeEndpoint",
)
#: Parameters of a discovery group.
GROUP_PARAMETERS: Final = ("refreshTimeout", "discoveryInitialWaitTimeout", "localBindAddress", "file")
_HONOURED: Final = tuple(each.lower() for each in (*OPTION_PARAMETERS, *CONNECTOR_PARAMETERS, *GROUP_PARAMETERS))
_KNOWN: Final[Mapping[str, str]] = {
    name.lower(): name
    for name in (*OPTION_PARAMETERS, *CONNECTOR_PARAMETERS, *GROUP_PARAMETERS, *WITHOUT_EFFECT, *REFUSED, *ALIASES)
}


@dataclass(slots=True)
class _Parameters:
    """The parameters of one query by the object that they belong to."""

    connector: dict[str, str]
    options: dict[str, str]
    group: dict[str, str]
    ignored: list[str]


def parse_url(text: str) -> ClientUrl:
    """Read a client URL.

    Raises:
        ConfigError: malformed, or an unknown parameter (named, with the nearest known one), or one
            that is refused (named, with the reason).
    """
    url = text.strip()
    text = masked_url(url)  # errors show the URL, never its secrets
    other = amqp091.rewritten(url, text)
    if other is not None:
        return amqp091.adapted(_parse(other.url, text), other.virtual_host, text)
    return _parse(url, text)


def _parse(url: str, text: str) -> ClientUrl:
    """Read a URL of CORE.

    Args:
        url: The whole URL.
        text: Text as errors show it, without secrets.
    """
    if url.startswith("("):
        inside, bracket, behind = url[1:].partition(")")
        if not bracket:
            raise ConfigError(f"client URL {text!r}: the opening bracket is never closed")
        if behind and not behind.startswith("?"):
            raise ConfigError(f"client URL {text!r}: something other than '?' after the bracket")
        query = behind[1:]
    else:
        inside, _, query = url.partition("?")
    found = _split(_pairs(query, text), text)
    options = _options(found.options, text)
    unsaid = not found.options.keys() & _FAILOVER
    ignored = list(found.ignored)
    scheme, _, place = inside.partition("://")
    if scheme in ("udp", "jgroups"):
        if has_login(url):
            raise ConfigError(
                f"client URL {text!r}: a user or password stands in front of a group",
                hint="give both as arguments of connect(), or as the parameters user and password",
            )
        group = (_group if scheme == "udp" else _jgroups)(place, found.group, text)
        template = _settings(Connector("", 0), found.connector, text)
        return ClientUrl((), options, group, template, tuple(ignored), failover_with_backup=unsaid)
    if found.group:
        raise ConfigError(f"client URL {text!r}: {next(iter(found.group))!r} belongs to udp:// and jgroups://")
    login = _Login(text)
    parts = [part.strip() for part in inside.split(",")]
    if has_login(url) and not all("://" in part for part in parts):
        # a part can be one of a password with a comma in it
        hint = "in a user or password write %2C for a comma, %2F for a slash, %3F for a question mark"
        raise ConfigError(f"client URL {text!r}: a part of it is no connector", hint=hint)
    connectors = [_connector(part, found.connector, ignored, login) for part in parts]
    if len(connectors) > _CONNECTORS_MAX:
        raise ConfigError(f"client URL with {len(connectors)} connectors, limit {_CONNECTORS_MAX}")
    refused = "ha" in found.options and not options.ha
    if len(connectors) > 1 and not refused and not found.options.keys() & _ATTEMPTS:
        # a URL with several hosts and without a number of attempts
        options = replace(options, ha=True, reconnect_attempts=-1)
    options = login.into(options, found.options)
    return ClientUrl(tuple(connectors), options, ignored=tuple(ignored), failover_with_backup=unsaid)


def with_failover(url: ClientUrl, failover: bool | None) -> ClientUrl:
    """The URL with an argument of the application about failover; None: as it is."""
    if failover is None:
        return url
    options = replace(url.options, reconnect_attempts=-1 if failover else 0, failover_attempts=0)
    options = replace(options, ha=True) if failover else options
    return replace(url, options=options, failover_with_backup=False)


def connector_of(
    parameters: Mapping[str, object], template: Connector | None = None, name: str = ""
) -> Connector | None:
    """The connector a broker advertises, or None if it names no host.

    Args:
        parameters: Keys of artemis-core s. 1.5; the port may be text or a number.
        template: Gives what a broker cannot know: our trust and key stores, our time limit.
        name: Name of the connector in the broker's configuration.
    """
    host = parameters.get("host")
    if not isinstance(host, str) or not host:
        return None
    text = str(parameters.get("port", DEFAULT_PORT))
    if not text.isascii() or not text.isdigit() or len(text) > 5 or not 1 <= int(text) <= 65535:
        return None
    secure = str(parameters.get("sslEnabled", "false")).lower() == "true"
    own = template if template is not None else Connector("", 0)
    return replace(
        own,
        host=host,
        port=int(text),
        tls=(own.tls or TlsOptions()) if secure else None,
        name=name,
        http_upgrade=str(parameters.get("httpUpgradeEnabled", "false")).lower() == "true",
        server_name=str(parameters.get("activemqServerName") or ""),
        upgrade_endpoint=str(parameters.get("httpUpgradeEndpoint") or ""),
    )


def _pairs(query: str, url: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.replace(";", "&"), keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        # the error would show the field, which can be a part of a password
        raise ConfigError(f"client URL {url!r}: a parameter without '='", hint="write & in a value as %26") from None
    return dict(pairs)


def _split(pairs: Mapping[str, str], url: str) -> _Parameters:
    """Parameters by the object that they belong to; unknown ones are refused."""
    found = _Parameters({}, {}, {}, [])
    for name, value in pairs.items():
        exact = _KNOWN.get(name.lower())
        if exact is None:
            near = difflib.get_close_matches(name.lower(), _HONOURED, n=1, cutoff=0.0)
            raise ConfigError(
                f"client URL {url!r}: unknown parameter {name!r}", hint=f"the nearest known one is {_KNOWN[near[0]]!r}"
            )
        exact = ALIASES.get(exact, exact)
        if exact in CONNECTOR_PARAMETERS:
            found.connector[exact] = value
        elif exact in GROUP_PARAMETERS:
            found.group[exact] = value
        elif exact in OPTION_PARAMETERS:
            found.options[exact] = value
        elif exact in WITHOUT_EFFECT:
            found.ignored.append(exact)
        elif value.lower() not in {"", "false"}:
            raise ConfigError(f"client URL {url!r}: {exact} is refused: {REFUSED[exact]}")
    return found


def _group(place: str, values: Mapping[str, str], url: str) -> DiscoveryGroup:
    host, port = _host_and_port(place.rstrip("/"), url, DISCOVERY_PORT)
    try:
        multicast = ipaddress.ip_address(host).is_multicast
    except ValueError:
        multicast = False
    if not multicast:
        raise ConfigError(f"client URL {url!r}: {host!r} is no multicast address")
    if "file" in values:
        raise ConfigError(f"client URL {url!r}: 'file' belongs to jgroups://")
    return replace(
        _timeouts(DiscoveryGroup(host, port), values, url), local_bind_address=values.get("localBindAddress")
    )


def _jgroups(place: str, values: Mapping[str, str], url: str) -> DiscoveryGroup:
    channel, file = unquote(place.rstrip("/")), values.get("file", "")
    if not channel or not file:
        hint = "jgroups://channel?file=/path/of/stack.xml"
        raise ConfigError(f"client URL {url!r}: a channel and the file of its stack are needed", hint=hint)
    if "localBindAddress" in values:
        raise ConfigError(f"client URL {url!r}: 'localBindAddress' belongs to udp://; the stack has bind_addr")
    return _timeouts(DiscoveryGroup("", jgroups_file=file, jgroups_channel=channel), values, url)


def _timeouts(defaults: DiscoveryGroup, values: Mapping[str, str], url: str) -> DiscoveryGroup:
    return replace(
        defaults,
        refresh_timeout_ms=_at_least(1, "refreshTimeout", values, defaults.refresh_timeout_ms, url),
        initial_wait_timeout_ms=_at_least(
            1, "discoveryInitialWaitTimeout", values, defaults.initial_wait_timeout_ms, url
        ),
    )


@dataclass(slots=True)
class _Login:
    """The user and password in front of the hosts of one URL, which all hosts share."""

    url: str
    """The masked URL, for errors."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def take(self, place: str) -> str:
        """Note the login in front of a host. Returns the host and port.

        Raises:
            ConfigError: another host has another login.
        """
        login, separator, host = place.rpartition("@")
        if not separator:
            return place
        user, colon, password = login.partition(":")
        found = unquote(user) or None, unquote(password) if colon else None
        if (self.user, self.password) not in (found, (None, None)):
            raise ConfigError(f"client URL {self.url!r}: the hosts have different users or passwords")
        self.user, self.password = found
        return host

    def into(self, options: ClientOptions, given: Mapping[str, str]) -> ClientOptions:
        """The options with the login.

        Raises:
            ConfigError: there is a user or password among the parameters as well.
        """
        if self.user is None and self.password is None:
            return options
        if given.keys() & {"user", "password"}:
            raise ConfigError(f"client URL {self.url!r}: a login in front of the host and as parameters")
        return replace(options, user=self.user, password=self.password)


def _connector(part: str, shared: Mapping[str, str], ignored: list[str], login: _Login) -> Connector:
    url = login.url
    scheme, separator, rest = part.partition("://")
    if not separator or scheme != "tcp":
        hint = "write tcp://host:port, or amqp091://host:port/vhost for AMQP 0-9-1"
        if scheme == "vm":
            hint = "vm:// exists in Java only"
        raise ConfigError(f"client URL {url!r}: {masked_url(part)!r} is no connector", hint=hint)
    place, _, query = rest.partition("?")
    place = login.take(place)
    inner = _split(_pairs(query, url), url)
    for misplaced in (*inner.options, *inner.group):
        raise ConfigError(f"client URL {url!r}: {misplaced!r} belongs after the closing bracket")
    ignored += inner.ignored
    host, port = _host_and_port(place.rstrip("/"), url)
    return _settings(Connector(host, port), {**shared, **inner.connector}, url)


def _settings(bare: Connector, values: Mapping[str, str], url: str) -> Connector:
    """The connector with the values of its parameters."""
    tls = None
    if _boolean("sslEnabled", values.get("sslEnabled", "false"), url):
        tls = _tls(values, url)
    return replace(
        bare,
        tls=tls,
        name=values.get("name", ""),
        connect_timeout_ms=_at_least(1, "connect-timeout-millis", values, bare.connect_timeout_ms, url),
        local_address=values.get("localAddress") or None,
        local_port=_at_least(0, "localPort", values, 0, url, most=65535),
        tcp_no_delay=_boolean("tcpNoDelay", values.get("tcpNoDelay", "true"), url),
        tcp_send_buffer_size=_buffer("tcpSendBufferSize", values, url),
        tcp_receive_buffer_size=_buffer("tcpReceiveBufferSize", values, url),
        http_upgrade=_boolean("httpUpgradeEnabled", values.get("httpUpgradeEnabled", "false"), url),
        server_name=_in_request("activemqServerName", values, url),
        upgrade_endpoint=_in_request("httpUpgradeEndpoint", values, url),
    )


def _in_request(name: str, values: Mapping[str, str], url: str) -> str:
    """A name that is sent in a request. Raises ConfigError: it cannot be."""
    value = values.get(name, "")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"client URL {url!r}: {name} cannot be sent in a request")
    return value


def _tls(values: Mapping[str, str], url: str) -> TlsOptions:
    protocols, suites = (_list(values, name) for name in ("enabledProtocols", "enabledCipherSuites"))
    try:
        check_protocols(protocols)
        for store in ("trustStore", "keyStore"):
            path, password = values.get(f"{store}Path"), values.get(f"{store}Password", "")
            if password.startswith("ENC(") and password.endswith(")"):
                raise ConfigError(f"{store}Password: masked passwords are not read here", hint="give the password")
            if path is not None:
                make_store(store, path, values.get(f"{store}Type") or None, None, None, None)
    except ConfigError as error:
        raise ConfigError(f"client URL {url!r}: {error.args[0]}", hint=error.hint) from None
    return TlsOptions(
        trust_store_path=values.get("trustStorePath"),
        key_store_path=values.get("keyStorePath"),
        key_store_password=values.get("keyStorePassword"),
        verify_host=_boolean("verifyHost", values.get("verifyHost", "true"), url),
        trust_all=_boolean("trustAll", values.get("trustAll", "false"), url),
        sni_host=values.get("sniHost"),
        crl_path=values.get("crlPath"),
        cipher_suites=suites,
        protocols=protocols,
        trust_store_type=values.get("trustStoreType") or None,
        trust_store_password=values.get("trustStorePassword"),
        key_store_type=values.get("keyStoreType") or None,
        key_store_alias=values.get("keyStoreAlias"),
    )


def _list(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in values.get(name, "").split(",") if each.strip())


def _host_and_port(place: str, url: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port_text = rest.removeprefix(":")
    else:
        host, _, port_text = place.partition(":")
    if not host:
        raise ConfigError(f"client URL {url!r}: a connector without a host")
    if not port_text:
        return host, default_port
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
            found[name] = _within(_LEAST[name], _most(name), parameter, value, url)
            if name == "connection_ttl_ms" and not value:
                raise ConfigError(f"client URL {url!r}: {parameter}=0 ends each connection at once; -1: no limit")
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


def _at_least(least: int, name: str, values: Mapping[str, str], default: int, url: str, *, most: int = _INT_MAX) -> int:
    if name not in values:
        return default
    return _within(least, most, name, _whole(name, values[name], url), url)


def _within(least: int, most: int, name: str, value: int, url: str) -> int:
    if value < least:
        raise ConfigError(f"client URL {url!r}: {name}={value}, at least {least}")
    if value > most:
        raise ConfigError(f"client URL {url!r}: {name}={value}, at most {most}")
    return value


def _most(name: str) -> int:
    """The largest value of an option, which travels as an int or long of Java."""
    return _MOST.get(name, _LONG_MAX if name.endswith("_ms") else _INT_MAX)


def _buffer(name: str, values: Mapping[str, str], url: str) -> int:
    """Bytes; Java's -1 for the system's choice is our 0."""
    return max(0, _within(-1, _INT_MAX, name, _size(name, values[name], url), url)) if name in values else 0


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
