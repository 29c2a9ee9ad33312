"""Parameters of stock client URLs that this client does not honour: each either without effect, because
the tuned mechanism does not exist here, or refused by name, because leaving it out would change the meaning.

The names are those that the connection factories and connectors of the Artemis clients know. Not here:
the honoured ones, which are fields (``options``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_THREADS: Final = "there are no thread pools"
_NETTY: Final = "tunes Java's network library"
_ACCEPTOR: Final = "is a parameter of acceptors, not of clients"
_OBJECTS: Final = "Java objects are never deserialized here"

#: Names of accepted parameters, each with the reason why it changes nothing.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "useGlobalPools": _THREADS,
    "threadPoolMaxSize": _THREADS,
    "scheduledThreadPoolMaxSize": _THREADS,
    "flowControlThreadPoolMaxSize": _THREADS,
    "initialMessagePacketSize": "buffers grow as they must",
    "cacheLargeMessagesClient": "a large body is read as a stream, or as a whole with read_body()",
    "cacheDestinations": "names are plain text here",
    "ignoreJTA": "there is no JTA",
    "type": "says which JMS interface a connection factory has",
    "onMessageCloseTimeout": "a handler runs where it was called, so a close never waits for it",
    "enableSharedClientID": "a client id is never claimed for one connection alone",
    "deserializationBlackList": _OBJECTS,
    "deserializationWhiteList": _OBJECTS,
    "deserializationAllowList": _OBJECTS,
    "deserializationDenyList": _OBJECTS,
    "stoppingTimeout": "listening for broadcasts ends at once",
    "doNotOffset": "is about the port of hosted backups, which the broker chooses",
    "localBindPort": "is where a broadcaster sends from; a client only listens, on the group's port",
    "keyStoreProvider": "the contents of the file decide",
    "trustStoreProvider": "the contents of the file decide",
    "sslProvider": "there is one TLS library, Python's",
    "forceSSLParameters": "system properties of Java are not read",
    "useDefaultSslContext": "without trustStorePath the system's certificates are trusted",
    "useNio": _NETTY,
    "useEpoll": _NETTY,
    "useKQueue": _NETTY,
    "useNioGlobalWorkerPool": _NETTY,
    "useGlobalWorkerPool": _NETTY,
    "nioRemotingThreads": _NETTY,
    "remotingThreads": _NETTY,
    "batchDelay": "frames that are collected between two waits are written together",
    "directDeliver": _NETTY,
    "writeBufferLowWaterMark": _NETTY,
    "writeBufferHighWaterMark": _NETTY,
    "quietPeriod": _NETTY,
    "shutdownTimeout": _NETTY,
    "protocols": _ACCEPTOR,
    "httpClientIdleTime": "CORE over HTTP is not spoken",
    "httpClientIdleScanPeriod": "CORE over HTTP is not spoken",
    "httpResponseTime": "CORE over HTTP is not spoken",
    "httpServerScanPeriod": "CORE over HTTP is not spoken",
    "httpRequiresSessionId": "CORE over HTTP is not spoken",
    "servletPath": "CORE over HTTP is not spoken",
    "socksHost": "used with socksEnabled only",
    "socksPort": "used with socksEnabled only",
    "socksVersion": "used with socksEnabled only",
    "socksUsername": "used with socksEnabled only",
    "socksPassword": "used with socksEnabled only",
    "socksRemoteDNS": "used with socksEnabled only",
}

#: Name to why it is refused; ``false`` and an empty value are taken, since they ask for nothing.
REFUSED: Final[Mapping[str, str]] = {
    "httpEnabled": "CORE over HTTP is not spoken",
    "useServlet": "CORE over HTTP is not spoken",
    "socksEnabled": "SOCKS proxies are not spoken to",
    "useInvm": "there is no broker in this process",
    "trustManagerFactoryPlugin": "names a Java class, and decides whom to trust",
    "sslContext": "names a Java object",
    "passwordCodec": "names a Java class; give the password itself, or pass it to connect()",
    "protocolManagerFactoryStr": "names a Java class; this client speaks CORE",
    "incomingInterceptorList": "names Java classes",
    "outgoingInterceptorList": "names Java classes",
    "enable1xPrefixes": "addresses carry no prefixes since Artemis 2.0",
    "proxyProtocolEnabled": _ACCEPTOR,
    "needClientAuth": _ACCEPTOR,
    "wantClientAuth": _ACCEPTOR,
    "connectionsAllowed": _ACCEPTOR,
    "handshake-timeout": _ACCEPTOR,
    "sessionsAllowed": _ACCEPTOR,
}

#: Spellings that are met as well.
ALIASES: Final[Mapping[str, str]] = {
    # the name of 003, "Discovery groups"
    "initialWaitTimeout": "discoveryInitialWaitTimeout",
    "compressLargeMessages": "compressLargeMessage",
    "connectionLoadBalancingPolicy": "connectionLoadBalancingPolicyClassName",
    "discoveryRefreshTimeout": "refreshTimeout",
}
