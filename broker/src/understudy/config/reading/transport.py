"""Acceptor and connector URLs: ``tcp://host:port?parameter=value;...``.

Separators between parameters are ``;`` or ``&``, values may be percent-encoded (manual,
"Configuring the transport"). An acceptor's parameters all mean something here or are reported; a
connector's are kept as they are, because they travel to clients that may know more than we do.

Not here: listening or connecting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from understudy import limits
from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration, ParameterValue
from understudy.config.reading.document import Document, Node, nearest
from understudy.config.reading.tls import ACCEPTOR_TLS_USES, TlsReader
from understudy.config.schema.grammar import INT_MAX
from understudy.config.sockets.bindings import ANY_ADDRESS, SocketBindings
from understudy.terms import Amqp091Options
from understudy.texts import has_login, masked_url

DEFAULT_PORT: Final = 61616
SERVED_PROTOCOLS: Final = ("CORE", "AMQP091")
KNOWN_PROTOCOLS: Final = ("CORE", "AMQP091", "AMQP", "STOMP", "MQTT", "OPENWIRE", "HORNETQ")

_BOOLEANS: Final = frozenset(
    {
        "autoStart", "directDeliver", "disableStompServerHeader", "doNotOffset", "forceSSLParameters", "httpEnabled",
        "httpRequiresSessionId", "httpUpgradeEnabled", "knownHosts", "mask-password", "needClientAuth",
        "proxyProtocolEnabled", "sessionTakeover", "socksEnabled", "socksRemoteDNS", "sslAutoReload", "sslEnabled",
        "tcpNoDelay", "trustAll", "useDefaultSslContext", "useEpoll", "useGlobalWorkerPool", "useInvm", "useKQueue",
        "useNio", "useNioGlobalWorkerPool", "useServlet", "verifyHost", "wantClientAuth",
        "webSocketCompressionSupported", "amqpDuplicateDetection", "supportAdvisory",
        "suppressInternalManagementObjects", "stompEnableMessageId", "stomp-enable-message-id",
    }
)  # fmt: skip
_NUMBERS: Final = frozenset(
    {
        "acknowledgementTimeout", "backlog", "batchDelay", "connect-timeout-millis", "connectionTtl",
        "connectionTtlMax", "connectionTtlMin", "connectionsAllowed", "handshake-timeout",
        "httpClientIdleScanPeriod", "httpClientIdleTime", "httpResponseTime", "httpServerScanPeriod",
        "localPort", "nioRemotingThreads", "quietPeriod", "remotingThreads", "sessionsAllowed",
        "shutdownTimeout", "socksPort", "socksVersion", "stompConsumerCredits", "stompConsumerWindowSize",
        "stompMaxFramePayloadLength", "stompMinLargeMessageSize", "stomp-min-large-message-size",
        "tcpReceiveBufferSize", "tcpSendBufferSize", "webSocketMaxFramePayloadLength",
        "writeBufferHighWaterMark", "writeBufferLowWaterMark", "amqpCredits", "amqpLowCredits",
        "amqpMinLargeMessageSize", "amqpMaxFrameSize", "amqpIdleTimeout", "defaultMqttSessionExpiryInterval",
        "topicAliasMaximum", "receiveMaximum", "serverKeepAlive", "maximumPacketSize",
    }
)  # fmt: skip
_TEXTS: Final = frozenset(
    {
        "activemqServerName", "anycastPrefix", "clusterConnection", "crlPath", "enabledCipherSuites",
        "enabledProtocols", "heartBeatToConnectionTtlModifier", "host", "httpUpgradeEndpoint", "keyStoreAlias",
        "keyStorePassword", "keyStorePath", "keyStoreProvider", "keyStoreType", "localAddress",
        "multicastPrefix", "password-codec", "port", "protocol", "protocols", "router", "scheme", "servletPath",
        "sniHost", "socksHost", "socksPassword", "socksUsername", "sslContext", "sslProvider",
        "trustManagerFactoryPlugin", "trustStorePassword", "trustStorePath", "trustStoreProvider",
        "trustStoreType", "virtualHosts", "webSocketEncoderType",
    }
)  # fmt: skip
_KNOWN: Final = _BOOLEANS | _NUMBERS | _TEXTS
#: Parameters of acceptors that have an effect in this version.
_ACCEPTOR_USES: Final = frozenset(
    {
        "acknowledgementTimeout", "activemqServerName", "anycastPrefix", "autoStart", "backlog",
        "clusterConnection", "connectionsAllowed", "doNotOffset", "handshake-timeout", "httpUpgradeEnabled",
        "knownHosts", "multicastPrefix", "protocol", "protocols", "sessionTakeover", "sessionsAllowed",
        "sslEnabled", "tcpReceiveBufferSize", "tcpSendBufferSize", "virtualHosts",
    }
)  # fmt: skip


def read_acceptor(
    node: Node, document: Document, tls: TlsReader, sockets: SocketBindings
) -> AcceptorConfiguration | None:
    """The acceptor of one element; None when it is not to be opened (a warning says why).

    Raises:
        ConfigError: a URL or a parameter that cannot be used; an acceptor that should encrypt never listens in plain
            text.
    """
    name = str(node.attributes["name"])
    if in_vm_number(node) is not None:
        message = f"acceptor {name!r} is not opened: there are no transports inside a virtual machine here"
        document.warn(f"acceptor {name}", message, node)
        return None
    host, port, parameters = _place(node, document, sockets)
    settings = tls.acceptor(node, parameters)
    protocols, unserved = _protocols(node, document, parameters)
    if not protocols:
        document.warn(
            f"acceptor {name}",
            f"acceptor {name!r} is not opened: {', '.join(unserved)} not implemented in this version",
            node,
        )
        return None
    if parameters.get("autoStart") is False:
        document.warn(f"acceptor {name}", f"acceptor {name!r} is not opened: autoStart=false", node)
        return None
    if unserved:
        message = f"acceptor {name!r} does not serve {', '.join(unserved)}: not implemented in this version"
        document.warn(f"acceptor {name}", message, node)
    _warn_unused(node, document, parameters, _ACCEPTOR_USES | ACCEPTOR_TLS_USES if settings else _ACCEPTOR_USES)
    allowed = _number(node, document, parameters, "connectionsAllowed", -1, 10 * limits.CONNECTIONS_MAX)
    handshake_seconds = _number(
        node, document, parameters, "handshake-timeout", limits.HANDSHAKE_TIMEOUT_MS // 1000, INT_MAX // 1000, minimum=0
    )
    return AcceptorConfiguration(
        name=name,
        host=host,
        port=port,
        protocols=protocols,
        handshake_timeout_ms=handshake_seconds * 1000,
        connections_allowed=limits.CONNECTIONS_MAX if allowed < 0 else allowed,
        sessions_allowed=_number(
            node,
            document,
            parameters,
            "sessionsAllowed",
            limits.SESSIONS_PER_CONNECTION_MAX,
            limits.SESSIONS_ALLOWED_MAX,
            minimum=1,
        ),
        tcp_send_buffer_bytes=_number(node, document, parameters, "tcpSendBufferSize", 1024 * 1024, INT_MAX),
        tcp_receive_buffer_bytes=_number(node, document, parameters, "tcpReceiveBufferSize", 1024 * 1024, INT_MAX),
        tcp_no_delay=parameters.get("tcpNoDelay") is not False,
        backlog=_number(node, document, parameters, "backlog", 1024, 65535, minimum=1),
        anycast_prefixes=_list(parameters.get("anycastPrefix")),
        multicast_prefixes=_list(parameters.get("multicastPrefix")),
        cluster_connection=None if (named := parameters.get("clusterConnection")) is None else str(named),
        amqp091=Amqp091Options(
            virtual_hosts=_list(parameters.get("virtualHosts")),
            known_hosts=parameters.get("knownHosts") is not False,
            acknowledgement_timeout_ms=_number(
                node,
                document,
                parameters,
                "acknowledgementTimeout",
                limits.AMQP091_ACKNOWLEDGEMENT_TIMEOUT_MS,
                INT_MAX,
                minimum=0,
            ),
            session_takeover=parameters.get("sessionTakeover") is not False,
        ),
        http_upgrade=parameters.get("httpUpgradeEnabled") is True,
        tls=settings,
        parameters=parameters,
    )


def read_connector(node: Node, document: Document, tls: TlsReader, sockets: SocketBindings) -> ConnectorConfiguration:
    """Read the connector of one element.

    Raises:
        ConfigError: a URL or a parameter that cannot be used.
    """
    host, port, parameters = _place(node, document, sockets)
    if "socket-binding" in node.attributes and host in ANY_ADDRESS:
        message = (
            f"socket-binding {str(node.attributes['socket-binding'])!r} is at {host}, where no other host connects"
        )
        raise document.error_at(node, message, hint="give its interface an address of this host, or write a url")
    if port == 0:
        raise document.error_at(node, "port 0: no client could connect to it")
    return ConnectorConfiguration(str(node.attributes["name"]), host, port, tls.connector(node, parameters), parameters)


def in_vm_number(node: Node) -> str | None:
    """The number in the URL of a transport inside the virtual machine of Java (``vm://0``); None: another transport."""
    scheme, separator, rest = str(node.value).partition("://")
    return rest.partition("?")[0].rstrip("/") if separator and scheme.lower() == "vm" else None


def _place(node: Node, document: Document, sockets: SocketBindings) -> tuple[str, int, dict[str, ParameterValue]]:
    """Host, port and parameters of a transport, which its URL has, or a socket binding that it names."""
    binding, listener = node.attributes.get("socket-binding"), node.attributes.get("http-listener")
    if binding is not None and listener is not None:
        raise document.error_at(node, "socket-binding and http-listener exclude each other")
    named = binding if listener is None else _listener(str(listener), sockets)
    if named is None:
        for other in ("endpoint", "server-name"):
            if other in node.attributes:
                raise document.error_at(node, f"{other} is for a connector with a socket-binding")
        return _split_url(node, document)
    text = str(node.value)
    if text and not text.startswith("?"):
        raise document.error_at(node, f"{masked_url(text)!r}: a socket-binding has the address", hint="?parameters")
    host, port = sockets.place(node, str(named))
    parameters = _parameters(node, document, text[1:])
    endpoint, server = node.attributes.get("endpoint"), node.attributes.get("server-name")
    if listener is not None or endpoint is not None:
        parameters["httpUpgradeEnabled"] = True
    if endpoint is not None:
        parameters["httpUpgradeEndpoint"] = str(endpoint)
    if server is not None:
        parameters["activemqServerName"] = str(server)
    return host, port, parameters


def _listener(name: str, sockets: SocketBindings) -> str:
    """The socket binding of an HTTP listener: that of its name, or ``http`` for the listener ``default``."""
    return "http" if name == "default" and not sockets.has(name) else name


def _split_url(node: Node, document: Document) -> tuple[str, int, dict[str, ParameterValue]]:
    url = str(node.value)
    if has_login(url):
        # before any error that shows a part of the URL
        message = f"{masked_url(url)!r}: a user or password stands in front of the host"
        raise document.error_at(node, message, hint="tcp://host:port")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise document.error_at(node, f"{masked_url(url)!r} is no URL", hint="tcp://host:port")
    if scheme.lower() not in ("tcp", "netty"):
        raise document.error_at(node, f"scheme {scheme!r} is not served", hint="tcp://host:port")
    authority, _, query = rest.partition("?")
    query, sign, behind = query.partition("#")
    if sign and behind.strip():
        # not shown, as it can be a part of a password; Artemis reads further addresses there
        message = "what follows '#' in the URL is ignored"
        document.warn(f"fragment of {node.path}", f"{message} (write '#' in a value as %23)", node)
    if "," in authority or "(" in authority:
        raise document.error_at(node, f"{authority!r}: one host and port are required", hint="one element for each")
    host, port = _split_authority(node, document, authority.removesuffix("/"))
    parameters = _parameters(node, document, query)
    return host, port, parameters


def _split_authority(node: Node, document: Document, authority: str) -> tuple[str, int]:
    if authority.startswith("["):
        host, closing, behind = authority[1:].partition("]")
        if not closing or (behind and not behind.startswith(":")):
            raise document.error_at(node, f"{authority!r} is no address and port")
        port_text = behind[1:] if behind else str(DEFAULT_PORT)
    else:
        host, colon, port_text = authority.partition(":")
        port_text = port_text if colon else str(DEFAULT_PORT)
        if ":" in port_text:
            raise document.error_at(node, f"{authority!r}: an IPv6 address stands in [brackets]")
    if not host or any(character.isspace() or character in "/@\\" for character in host):
        raise document.error_at(node, f"{authority!r} names no host", hint="tcp://host:port")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65535):
        raise document.error_at(node, f"port {port_text!r} is no number from 0 to 65535")
    return host, int(port_text)


def _parameters(node: Node, document: Document, query: str) -> dict[str, ParameterValue]:
    parameters: dict[str, ParameterValue] = {}
    for part in query.replace("&", ";").split(";"):
        if not part.strip():
            continue
        key, equals, raw = part.partition("=")
        key, value = unquote(key.strip()), unquote(raw.strip())
        if not key:
            raise document.error_at(node, "a parameter has no name", hint="write & and ; in a value as %26 and %3B")
        if not equals or (not value and (key in _BOOLEANS or key in _NUMBERS)):
            # an unknown name can be a part of a password
            shown = f"parameter {key!r}" if key in _KNOWN else "a parameter of an unknown name"
            document.warn(f"empty {shown} of {node.path}", f"{shown} has no value and is ignored", node)
            continue
        if key in parameters:
            document.warn(f"twice {key} of {node.path}", f"parameter {key!r} stands twice, the last is used", node)
        if key in ("host", "port"):
            raise document.error_at(node, f"parameter {key!r}: the URL says it already")
        parameters[key] = _typed(node, document, key, value)
        if len(parameters) > limits.TRANSPORT_PARAMETERS_MAX:
            raise document.error_at(node, f"more than {limits.TRANSPORT_PARAMETERS_MAX} parameters")
    return parameters


def _typed(node: Node, document: Document, key: str, value: str) -> ParameterValue:
    if key in _BOOLEANS:
        if value.lower() not in ("true", "false"):
            raise document.error_at(node, f"parameter {key}: {value!r} is neither true nor false")
        return value.lower() == "true"
    if key in _NUMBERS:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise document.error_at(node, f"parameter {key}: {value!r} is no whole number")
        return int(value)
    return value


def _number(
    node: Node,
    document: Document,
    parameters: Mapping[str, ParameterValue],
    key: str,
    default: int,
    maximum: int,
    *,
    minimum: int = -1,
) -> int:
    value = parameters.get(key, default)
    assert isinstance(value, int)
    if not minimum <= value <= maximum:
        raise document.error_at(node, f"parameter {key}: {value} is outside {minimum} to {maximum}")
    return value


def _protocols(
    node: Node, document: Document, parameters: Mapping[str, ParameterValue]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The protocols asked for that are served, and those that are not."""
    asked = _list(parameters.get("protocols", parameters.get("protocol")))
    for protocol in asked:
        if protocol.upper() not in KNOWN_PROTOCOLS:
            hint = nearest(protocol.upper(), KNOWN_PROTOCOLS) or ", ".join(KNOWN_PROTOCOLS)
            raise document.error_at(node, f"unknown protocol {protocol!r}", hint=hint)
    names = tuple(dict.fromkeys(protocol.upper() for protocol in asked)) or SERVED_PROTOCOLS
    return (
        tuple(name for name in names if name in SERVED_PROTOCOLS),
        tuple(name for name in names if name not in SERVED_PROTOCOLS),
    )


def _warn_unused(
    node: Node, document: Document, parameters: Mapping[str, ParameterValue], used: frozenset[str]
) -> None:
    for key in parameters:
        if key in used:
            continue
        if key in _KNOWN:
            message = f"acceptor parameter {key} has no effect in this version"
        else:
            hint = nearest(key, _KNOWN)
            message = f"unknown acceptor parameter {key!r}" + (f" ({hint})" if hint else "")
        document.warn(f"acceptor parameter {key}", message, node)


def _list(value: ParameterValue | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(part.strip() for part in str(value).split(",") if part.strip())
