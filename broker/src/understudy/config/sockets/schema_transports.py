"""Schema rows of the elements ``connectors`` and ``acceptors``."""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Attribute, Element, Kind, container, named

TEXT: Final = Kind.TEXT

_SOCKET_BINDING: Final = Attribute(
    "socket-binding", TEXT, "Name of the socket binding with its address, in place of tcp://host:port."
)

TRANSPORTS: Final = (
    container(
        "connectors",
        "How this node and others reach brokers.",
        Element(
            "connector",
            TEXT,
            "tcp://host:port?parameters; with socket-binding only ?parameters, or nothing.",
            attributes=(
                named("Name."),
                _SOCKET_BINDING,
                Attribute(
                    "endpoint", TEXT, "Acceptor at which connections begin with an HTTP upgrade; with socket-binding."
                ),
                Attribute("server-name", TEXT, "Server that such a request names. Default: the server itself."),
            ),
            repeated=True,
        ),
    ),
    container(
        "acceptors",
        "Where this node listens.",
        Element(
            "acceptor",
            TEXT,
            "tcp://host:port?parameters; with socket-binding or http-listener only ?parameters, or nothing."
            " Carried out: protocols, handshake-timeout, connectionsAllowed, "
            "sessionsAllowed (of one connection; 2047), backlog, autoStart, httpUpgradeEnabled, "
            "tcpSendBufferSize and tcpReceiveBufferSize (1 MiB, unless net.core.wmem_max or rmem_max is less; "
            "-1: left to the system), anycastPrefix and multicastPrefix (comma-separated; cut off names, imply the "
            "routing type), virtualHosts, knownHosts and sessionTakeover (of AMQP 0-9-1: docs/use/amqp091.md), "
            "doNotOffset (a hosted backup has the same port).",
            attributes=(
                named("Name."),
                _SOCKET_BINDING,
                Attribute(
                    "http-listener",
                    TEXT,
                    "Socket binding whose port takes HTTP upgrades beside plain connections; default is the binding"
                    " http.",
                ),
            ),
            repeated=True,
        ),
    ),
)
