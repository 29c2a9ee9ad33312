"""Values of a client URL: connectors, TLS, the connection's options, a discovery group.

Field names are the URL parameters in Python spelling, with the unit last; defaults are those of the
manual (artemis-ha s. 8, artemis-core s. 1.5). Not here: reading them from text (``url``),
or what becomes of parameters that only mean something in Java (``parameters``).
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Final, NamedTuple

from understudy.dataclass import dataclass

DISCOVERY_PORT: Final = 9876


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of one connector; stores are PEM, PEMCFG or PKCS12 files."""

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
    crl_path: str | None = None
    """Revoked certificates; the server's must not be among them."""
    cipher_suites: tuple[str, ...] = ()
    """Names of TLS 1.2 suites, ours or Java's; empty for the library's choice. Those of 1.3 are always on."""
    protocols: tuple[str, ...] = ()
    """``TLSv1.2``, ``TLSv1.3`` or both; empty for both."""
    trust_store_type: str | None = None
    """``PEM``, ``PEMCFG`` or ``PKCS12``; None: the contents of the file decide."""
    trust_store_password: str | None = field(default=None, repr=False)
    key_store_type: str | None = None
    """``PEM``, ``PEMCFG`` or ``PKCS12``; None: the contents of the file decide."""
    key_store_alias: str | None = None
    """Name of the entry of a PKCS12 key store; None: the only one."""

    @property
    def proves_the_server(self) -> bool:
        """Whether a server that answers is the one that was meant."""
        return self.verify_host and not self.trust_all


class ServingNode(NamedTuple):
    """A node that serves the sessions of a connection, as it introduced itself when it made a session."""

    address: str = ""
    """Host and port."""
    node_id: str = ""
    """Id of the node; all servers of a pair or group have one id."""
    epoch: int = 0
    """Epoch in which it serves, which rises with every activation; 0 of brokers without epochs."""


@dataclass(frozen=True, slots=True)
class Connector:
    """One place to dial."""

    host: str
    port: int
    tls: TlsOptions | None = None
    """TLS settings; None: plain TCP."""
    connect_timeout_ms: int = 10_000
    """Longest time for opening the transport, TLS included, and again for the broker's first answer; 10000 by default,
    milliseconds. The next connector is tried beside an unanswered one after 250 ms already."""
    name: str = field(default="", compare=False)
    """A backup that is announced under the name of one of our connectors is dialled there first."""
    local_address: str | None = None
    """Local address of the connection; None for any."""
    local_port: int = 0
    """0 for any."""
    tcp_no_delay: bool = True
    tcp_send_buffer_size: int = 0
    """Bytes; 0 for the system's choice."""
    tcp_receive_buffer_size: int = 0
    """Bytes; 0 for the system's choice."""

    http_upgrade: bool = False
    """The connection begins with a request for an HTTP upgrade (artemis-core s. 1.4)."""
    server_name: str = ""
    """Name of the server in that request; empty for the main one of the port. Brokers name themselves in the connectors
    that they announce, so a URL needs it only with a proxy that passes nothing but HTTP upgrades (ADR 0179)."""
    upgrade_endpoint: str = ""
    """Name of the acceptor in that request; empty for any."""

    @property
    def place(self) -> tuple[str | int, ...]:
        """The identity of a connector: host and port, compared as text (artemis-core s. 8.2), and the name of the
        server that an HTTP upgrade requests.
        """
        if self.http_upgrade and self.server_name:
            return self.host, self.port, self.server_name
        return self.host, self.port

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How a connection behaves."""

    ha: bool = False
    """Whether a node that went down leaves our view of the topology."""
    reconnect_attempts: int = 0
    """Rounds over the connectors after a failure; 0 = a failure closes everything, -1 = endless."""
    initial_connect_attempts: int = 1
    """Rounds over the connectors for the first connection; -1 = endless, 0 is read as 1."""
    failover_attempts: int = 0
    """Rounds over the other nodes of the topology once reconnect_attempts are spent."""
    retry_interval_ms: int = 2000
    """Pause between two rounds."""
    retry_interval_multiplier: float = 1.0
    """Factor by which the pause grows from round to round."""
    max_retry_interval_ms: int = 2000
    """The longest pause."""
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
    silence_timeout_ms: int = 5_000
    """Ours: silence of the broker after which a client with ``ha=true`` and ``reconnectAttempts=-1`` fails over, with
    four pings within it. -1 = only connectionTTL counts, as for every other client."""
    confirmation_window_size: int = -1
    """Bytes after which received commands are confirmed, which lets a session be reattached; -1 = off."""
    consumer_window_size: int = 1024 * 1024
    """Bytes buffered per consumer; 0 = one message at a time, -1 = unlimited."""
    consumer_max_rate: int = -1
    """Messages a second that one consumer hands out; -1 = no limit."""
    producer_window_size: int = 64 * 1024
    """Credits a producer asks for, bytes; -1 = no flow control."""
    producer_max_rate: int = -1
    """Messages a second that one producer sends; -1 = no limit."""
    ack_batch_size: int = 1024 * 1024
    """Bytes of taken messages after which a batching session sends its acknowledgements."""
    dups_ok_batch_size: int = -1
    """Bytes of taken messages after which a DUPS_OK session sends its acknowledgements; -1 = as ackBatchSize."""
    transaction_batch_size: int = -1
    """Bytes of taken messages after which a transacted session sends its acknowledgements; -1 = as ackBatchSize."""
    pre_acknowledge: bool = False
    """Whether the broker counts every message as acknowledged before it sends it: at most once."""
    min_large_message_size: int = 100 * 1024
    """Above it a message is large: it travels in pieces of this size. Bytes."""
    compress_large_message: bool = False
    """Whether large messages travel and are kept as zlib streams."""
    compression_level: int = -1
    """Level of zlib, 0 to 9; -1 = zlib's own choice."""
    block_on_durable_send: bool = True
    """Whether a send of a durable message waits for the broker's confirmation."""
    block_on_non_durable_send: bool = False
    """Whether a send of a message that is not durable waits for the broker's confirmation."""
    block_on_acknowledge: bool = False
    """Whether an acknowledgement waits for the broker's confirmation before the next one goes out."""
    auto_group: bool = False
    """Whether every producer puts its messages in a group of its own."""
    group_id: str | None = None
    """The group of every message of every producer that gives none itself."""
    use_topology_for_load_balancing: bool = True
    """Whether a further connection of one factory may start at a node learnt from the topology."""
    load_balancing_policy: str = "RoundRobin"
    """RoundRobin, Random, RandomSticky or FirstElement, as a bare name or a Java class name."""
    client_id: str | None = None
    """Name of this client at the broker, and the first part of the names of its subscriptions' queues."""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    trust_discovery: bool = False
    """Ours: whether a password may go to a place that a datagram named and no certificate proves."""

    @property
    def transaction_ack_batch_size(self) -> int:
        """Bytes, of transacted sessions."""
        return self.ack_batch_size if self.transaction_batch_size < 0 else self.transaction_batch_size

    @property
    def dups_ok_ack_batch_size(self) -> int:
        """Bytes, of DUPS_OK sessions."""
        return self.ack_batch_size if self.dups_ok_batch_size < 0 else self.dups_ok_batch_size


@dataclass(frozen=True, slots=True)
class DiscoveryGroup:
    """Group in which brokers broadcast their connectors (artemis-ha s. 7.1)."""

    address: str
    """A multicast address; empty with a JGroups stack."""
    port: int = DISCOVERY_PORT
    refresh_timeout_ms: int = 10_000
    """A node that was not heard for so long is forgotten."""
    initial_wait_timeout_ms: int = 10_000
    """Longest wait for the first broadcast."""
    local_bind_address: str | None = None
    """Address of the network interface to listen on; None for the system's choice."""
    jgroups_file: str = ""
    """File with a JGroups stack that says how brokers are found instead; empty: by multicast."""
    jgroups_channel: str = ""

    def __str__(self) -> str:
        if self.jgroups_file:
            return f"jgroups://{self.jgroups_channel}"
        return f"udp://[{self.address}]:{self.port}" if ":" in self.address else f"udp://{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientUrl:
    """A parsed URL."""

    connectors: tuple[Connector, ...]
    """Connectors of the URL; empty with a discovery group."""
    options: ClientOptions = field(default_factory=ClientOptions)
    discovery: DiscoveryGroup | None = None
    template: Connector | None = None
    """Options for every connector that a discovery group finds."""
    ignored: tuple[str, ...] = ()
    """Parameters that were given and have no effect here."""
    virtual_host: str | None = None
    """Virtual host of a connection by AMQP 0-9-1; None: it speaks CORE."""
    failover_with_backup: bool = False
    """Whether a connection fails over as soon as the broker has announced a backup of its node, because the URL says
    nothing about failover.
    """

    @property
    def options_with_backup(self) -> ClientOptions:
        """The options as soon as a backup is known."""
        return replace(self.options, ha=True, reconnect_attempts=-1) if self.failover_with_backup else self.options
