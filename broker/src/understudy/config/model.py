"""The configuration of one broker as frozen dataclasses, made from broker.xml by ``reader``.

Field names are the element names with underscores and the unit last (``journal-file-size`` is
``journal_file_size_bytes``); defaults come from ``schema`` and from nowhere else, so a
``Configuration()`` made in a test means the same as an empty file. Not here: checks, and the
merging of address settings (``routing.addresses.settings``). Invariant: every name a value refers to
(connectors, queues) has been found by the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, StrEnum
from typing import Final

from understudy import limits
from understudy.config.bridge import BridgeConfiguration
from understudy.config.discovery import BroadcastGroupConfiguration, DiscoveryGroupConfiguration
from understudy.config.grouping import GroupingConfiguration
from understudy.config.high_availability import HighAvailabilityPolicy
from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.config.schema.schema import Defaults
from understudy.dataclass import dataclass
from understudy.terms import (
    AddressFullPolicy,
    Amqp091Options,
    DiskFullPolicy,
    DivertDefinition,
    DurabilityContract,
    MessageLoadBalancing,
    PageFullPolicy,
    Permission,
    ResourceLimits,
    RoutingType,
    SlowConsumerPolicy,
    SlowConsumerUnit,
)
from understudy.tls.settings import TlsSettings
from understudy.wildcards import Wildcards

ParameterValue = bool | int | str

_CORE: Final = Defaults("core")
_CLUSTER: Final = Defaults("core/cluster-connections/cluster-connection")

DEFAULT_CLUSTER_PASSWORD: Final = _CORE.text("cluster-password")
"""A public value; a broker with a cluster connection refuses it."""


class CriticalAnalyzerPolicy(StrEnum):
    """Reaction to a thread that hangs."""

    LOG = "LOG"
    HALT = "HALT"
    SHUTDOWN = "SHUTDOWN"


_CRITICAL_ANALYZER_POLICY: Final = CriticalAnalyzerPolicy(_CORE.text("critical-analyzer-policy"))


class ConfigDeletionPolicy(Enum):
    """Treatment of a resource that was removed from the file."""

    OFF = "OFF"
    FORCE = "FORCE"


_LOAD_BALANCING: Final = MessageLoadBalancing(_CLUSTER.text("message-load-balancing"))


@dataclass(frozen=True, slots=True)
class AcceptorConfiguration:
    """An address on which the node listens."""

    name: str
    host: str
    """Host name or address to bind; an IPv6 address without brackets."""
    port: int
    """0 lets the system choose."""
    protocols: tuple[str, ...] = ("CORE", "AMQP091")
    """The protocols of ``protocols`` that this version serves."""
    handshake_timeout_ms: int = limits.HANDSHAKE_TIMEOUT_MS
    """Time for the first bytes of a known protocol; 0 means no limit."""
    connections_allowed: int = limits.CONNECTIONS_MAX
    sessions_allowed: int = limits.SESSIONS_PER_CONNECTION_MAX
    """Number of sessions that one connection may have."""
    tcp_send_buffer_bytes: int = 1024 * 1024
    """-1 leaves it to the system; so does a size that the system does not grant."""
    tcp_receive_buffer_bytes: int = 1024 * 1024
    """Size of the receive buffer of each socket in bytes."""
    tcp_no_delay: bool = True
    backlog: int = 1024
    """Connections the system may hold until they are accepted."""
    anycast_prefixes: tuple[str, ...] = ()
    """Prefixes that ask for anycast and are cut off an address."""
    multicast_prefixes: tuple[str, ...] = ()
    cluster_connection: str | None = None
    """Clients and members that connect here get the topology of this cluster connection; None: of the first one."""
    amqp091: Amqp091Options = field(default_factory=Amqp091Options)
    """Parameters for clients of AMQP 0-9-1."""
    http_upgrade: bool = False
    """Whether the acceptor also takes requests for an HTTP upgrade."""
    tls: TlsSettings | None = None
    """TLS settings of the acceptor; None: connections are not encrypted."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict, repr=False)
    """All parameters of the URL, host and port left out."""

    @property
    def url(self) -> str:
        """``tcp://host:port``, without parameters (they may hold passwords)."""
        return format_url(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ConnectorConfiguration:
    """The address at which other nodes, and this node itself, reach a broker; travels to clients in the topology."""

    name: str
    host: str
    port: int
    tls: TlsSettings | None = None
    """Settings for the node's own connections to it; None: plain text."""
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict, repr=False)
    """All parameters of the URL, host and port left out, known or not."""

    @property
    def url(self) -> str:
        """``tcp://host:port``, without parameters (they may hold passwords)."""
        return format_url(self.host, self.port)


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """A queue created at activation. None means: according to the address settings."""

    name: str
    address: str
    routing_type: RoutingType
    filter: str | None = None
    durable: bool = True
    user: str | None = None
    max_consumers: int | None = None
    purge_on_no_consumers: bool | None = None
    exclusive: bool | None = None
    group_rebalance: bool | None = None
    group_rebalance_pause_dispatch: bool | None = None
    group_buckets: int | None = None
    group_first_key: str | None = None
    last_value: bool | None = None
    last_value_key: str | None = None
    non_destructive: bool | None = None
    consumers_before_dispatch: int | None = None
    delay_before_dispatch: int | None = None
    """Milliseconds that a new queue waits for its consumers before it delivers."""
    ring_size: int | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class AddressConfiguration:
    """An address created at activation."""

    name: str
    routing_types: frozenset[RoutingType]
    """Routing types with an element of their own; empty leaves the choice to the first use."""
    queues: tuple[QueueConfiguration, ...] = ()


@dataclass(frozen=True, slots=True)
class AddressSettingsConfiguration:
    """One address-setting; None means: inherit from the next less specific one, or the default.

    Field names are exactly the element names, so that the merge in ``routing.addresses.settings`` can go by
    name. Times are in milliseconds and sizes in bytes, but slow_consumer_check_period in seconds.
    """

    match: str
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool | None = None
    dead_letter_queue_prefix: str | None = None
    dead_letter_queue_suffix: str | None = None
    expiry_address: str | None = None
    auto_create_expiry_resources: bool | None = None
    expiry_queue_prefix: str | None = None
    expiry_queue_suffix: str | None = None
    no_expiry: bool | None = None
    expiry_delay: int | None = None
    min_expiry_delay: int | None = None
    max_expiry_delay: int | None = None
    redelivery_delay: int | None = None
    redelivery_delay_multiplier: float | None = None
    redelivery_collision_avoidance_factor: float | None = None
    max_redelivery_delay: int | None = None
    max_delivery_attempts: int | None = None
    send_to_dla_on_no_route: bool | None = None
    max_size_bytes: int | None = None
    max_size_messages: int | None = None
    max_size_bytes_reject_threshold: int | None = None
    address_full_policy: AddressFullPolicy | None = None
    page_limit_bytes: int | None = None
    page_limit_messages: int | None = None
    page_full_policy: PageFullPolicy | None = None
    disk_full_policy: DiskFullPolicy | None = None
    page_size_bytes: int | None = None
    page_max_cache_size: int | None = None
    max_read_page_messages: int | None = None
    max_read_page_bytes: int | None = None
    prefetch_page_messages: int | None = None
    prefetch_page_bytes: int | None = None
    initial_queue_buffer_size: int | None = None
    default_last_value_queue: bool | None = None
    default_last_value_key: str | None = None
    default_non_destructive: bool | None = None
    default_exclusive_queue: bool | None = None
    default_group_rebalance: bool | None = None
    default_group_rebalance_pause_dispatch: bool | None = None
    default_group_buckets: int | None = None
    default_group_first_key: str | None = None
    default_consumers_before_dispatch: int | None = None
    default_delay_before_dispatch: int | None = None
    default_purge_on_no_consumers: bool | None = None
    default_max_consumers: int | None = None
    default_ring_size: int | None = None
    default_queue_routing_type: RoutingType | None = None
    default_address_routing_type: RoutingType | None = None
    default_consumer_window_size: int | None = None
    auto_create_queues: bool | None = None
    auto_delete_queues: bool | None = None
    auto_delete_created_queues: bool | None = None
    auto_delete_queues_delay: int | None = None
    auto_delete_queues_message_count: int | None = None
    auto_delete_queues_skip_usage_check: bool | None = None
    auto_create_addresses: bool | None = None
    auto_delete_addresses: bool | None = None
    auto_delete_addresses_delay: int | None = None
    auto_delete_addresses_skip_usage_check: bool | None = None
    id_cache_size: int | None = None
    durability_contract: DurabilityContract | None = None
    enable_ingress_timestamp: bool | None = None
    config_delete_queues: ConfigDeletionPolicy | None = None
    config_delete_addresses: ConfigDeletionPolicy | None = None
    config_delete_diverts: ConfigDeletionPolicy | None = None
    redistribution_delay: int | None = None
    retroactive_message_count: int | None = None
    slow_consumer_threshold: int | None = None
    slow_consumer_threshold_measurement_unit: SlowConsumerUnit | None = None
    slow_consumer_policy: SlowConsumerPolicy | None = None
    slow_consumer_check_period: int | None = None
    message_counter_history_day_limit: int | None = None
    management_browse_page_size: int | None = None
    management_message_attribute_size_limit: int | None = None
    enable_metrics: bool | None = None
    auto_create_jms_queues: bool | None = None
    auto_delete_jms_queues: bool | None = None
    auto_create_jms_topics: bool | None = None
    auto_delete_jms_topics: bool | None = None


@dataclass(frozen=True, slots=True)
class SecuritySettingConfiguration:
    """Permissions on the addresses that match; nothing is inherited from other settings."""

    match: str
    """Address, wildcard, or ``address::queue``."""
    permissions: Mapping[Permission, frozenset[str]] = field(default_factory=dict)
    """Roles by permission; a missing permission is granted to no role."""


@dataclass(frozen=True, slots=True)
class ClusterConnectionConfiguration:
    """A cluster connection of the node (artemis-ha s. 7.2)."""

    name: str
    connector_ref: str
    """Name of the connector by which the others reach this node."""
    static_connectors: tuple[str, ...] = ()
    """Names of the connectors by which this node reaches the others."""
    allow_direct_connections_only: bool = False
    artemis_members: tuple[str, ...] = ()
    """Names of the connectors of members that are Artemis brokers."""
    discovery_group: str | None = None
    """Name of the discovery group by which this node finds the others; None: ``static_connectors``."""
    address: str = _CLUSTER.text("address")
    check_period_ms: int = _CLUSTER.number("check-period")
    connection_ttl_ms: int = _CLUSTER.number("connection-ttl")
    min_large_message_size_bytes: int = _CLUSTER.number("min-large-message-size")
    retry_interval_ms: int = _CLUSTER.number("retry-interval")
    retry_interval_multiplier: float = _CLUSTER.decimal("retry-interval-multiplier")
    max_retry_interval_ms: int = _CLUSTER.number("max-retry-interval")
    initial_connect_attempts: int = _CLUSTER.number("initial-connect-attempts")
    reconnect_attempts: int = _CLUSTER.number("reconnect-attempts")
    use_duplicate_detection: bool = _CLUSTER.boolean("use-duplicate-detection")
    call_timeout_ms: int = _CLUSTER.number("call-timeout")
    message_load_balancing: MessageLoadBalancing = _LOAD_BALANCING
    max_hops: int = _CLUSTER.number("max-hops")
    confirmation_window_size_bytes: int = _CLUSTER.number("confirmation-window-size")
    producer_window_size_bytes: int = _CLUSTER.number("producer-window-size")
    notification_interval_ms: int = _CLUSTER.number("notification-interval")
    notification_attempts: int = _CLUSTER.number("notification-attempts")
    topology_scanner_attempts: int = _CLUSTER.number("topology-scanner-attempts")
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything about one broker. Directories are absolute when the reader had a base directory."""

    name: str = _CORE.text("name")
    internal_naming_prefix: str = _CORE.text("internal-naming-prefix")
    management_address: str = _CORE.text("management-address")
    management_notification_address: str = _CORE.text("management-notification-address")
    management_message_rbac: bool = _CORE.boolean("management-message-rbac")
    management_rbac_prefix: str = _CORE.text("management-rbac-prefix")
    view_permission_method_match_pattern: str = _CORE.text("view-permission-method-match-pattern")
    server_dump_interval_ms: int = _CORE.number("server-dump-interval")
    suppress_session_notifications: bool = _CORE.boolean("suppress-session-notifications")
    cluster_user: str = _CORE.text("cluster-user")
    cluster_password: str = field(default=DEFAULT_CLUSTER_PASSWORD, repr=False)

    configuration_file_refresh_period_ms: int = _CORE.number("configuration-file-refresh-period")
    """-1 or 0: the file is only read again when management asks."""

    security_enabled: bool = _CORE.boolean("security-enabled")
    security_invalidation_interval_ms: int = _CORE.number("security-invalidation-interval")
    authentication_cache_size: int = _CORE.number("authentication-cache-size")
    authorization_cache_size: int = _CORE.number("authorization-cache-size")
    populate_validated_user: bool = _CORE.boolean("populate-validated-user")
    reject_empty_validated_user: bool = _CORE.boolean("reject-empty-validated-user")
    guest_login: bool = _CORE.boolean("guest-login")
    guest_user: str = _CORE.text("guest-user")
    guest_role: str = _CORE.text("guest-role")
    guest_login_on_wrong_credentials: bool = _CORE.boolean("guest-login-on-wrong-credentials")

    connection_ttl_override_ms: int = _CORE.number("connection-ttl-override")
    connection_ttl_check_interval_ms: int = _CORE.number("connection-ttl-check-interval")
    transaction_timeout_ms: int = _CORE.number("transaction-timeout")
    transaction_timeout_scan_period_ms: int = _CORE.number("transaction-timeout-scan-period")
    message_expiry_scan_period_ms: int = _CORE.number("message-expiry-scan-period")
    address_queue_scan_period_ms: int = _CORE.number("address-queue-scan-period")
    graceful_shutdown_enabled: bool = _CORE.boolean("graceful-shutdown-enabled")
    graceful_shutdown_timeout_ms: int = _CORE.number("graceful-shutdown-timeout")
    id_cache_size: int = _CORE.number("id-cache-size")
    persist_id_cache: bool = _CORE.boolean("persist-id-cache")
    max_redelivery_records: int = _CORE.number("max-redelivery-records")
    """Delivery count above which further counts are not stored; -1: no limit."""
    message_counter_enabled: bool = _CORE.boolean("message-counter-enabled")
    message_counter_sample_period_ms: int = _CORE.number("message-counter-sample-period")
    message_counter_max_day_history: int = _CORE.number("message-counter-max-day-history")
    persist_delivery_count_before_delivery: bool = _CORE.boolean("persist-delivery-count-before-delivery")

    persistence_enabled: bool = _CORE.boolean("persistence-enabled")
    bindings_directory: str = _CORE.text("bindings-directory")
    journal_directory: str = _CORE.text("journal-directory")
    large_messages_directory: str = _CORE.text("large-messages-directory")
    paging_directory: str = _CORE.text("paging-directory")
    node_manager_lock_directory: str = _CORE.text("journal-directory")
    journal_lock_acquisition_timeout_ms: int = _CORE.number("journal-lock-acquisition-timeout")
    journal_file_size_bytes: int = _CORE.number("journal-file-size")
    journal_compact_min_files: int = _CORE.number("journal-compact-min-files")
    journal_compact_percentage_percent: int = _CORE.number("journal-compact-percentage")
    quarantine_damaged_records: bool = _CORE.boolean("quarantine-damaged-records")
    other_copy_wait_ms: int = _CORE.number("other-copy-wait")
    """Milliseconds that a start waits for the other copy; -1: no limit."""
    scrub_rate_bytes: int = _CORE.number("scrub-rate")
    """Per second; 0: no scrubber."""
    scrub_period_ms: int = _CORE.number("scrub-period")
    journal_min_files: int = _CORE.number("journal-min-files")
    journal_pool_files: int = _CORE.number("journal-pool-files")
    """Files of removed segments that are kept; -1: as many as the limits allow."""
    journal_datasync: bool = _CORE.boolean("journal-datasync")
    journal_sync_transactional: bool = _CORE.boolean("journal-sync-transactional")
    journal_sync_non_transactional: bool = _CORE.boolean("journal-sync-non-transactional")
    journal_retention_directory: str | None = None
    journal_retention_period_ms: int = 0
    """Age in ms at which retained segments are removed; 0 keeps them."""
    journal_retention_storage_limit_bytes: int = -1
    """-1 is no limit."""
    create_bindings_dir: bool = _CORE.boolean("create-bindings-dir")
    create_journal_dir: bool = _CORE.boolean("create-journal-dir")
    max_disk_usage_percent: int = _CORE.number("max-disk-usage")
    min_disk_free_bytes: int = _CORE.number("min-disk-free")
    disk_scan_period_ms: int = _CORE.number("disk-scan-period")
    critical_analyzer: bool = _CORE.boolean("critical-analyzer")
    critical_analyzer_timeout_ms: int = _CORE.number("critical-analyzer-timeout")
    critical_analyzer_check_period_ms: int = _CORE.number("critical-analyzer-check-period")
    critical_analyzer_policy: CriticalAnalyzerPolicy = _CRITICAL_ANALYZER_POLICY
    global_max_size_bytes: int = _CORE.number("global-max-size")
    """-1: half of the memory the process may use."""
    global_max_messages: int = _CORE.number("global-max-messages")

    acceptors: tuple[AcceptorConfiguration, ...] = ()
    connectors: tuple[ConnectorConfiguration, ...] = ()
    cluster_connections: tuple[ClusterConnectionConfiguration, ...] = ()
    connection_factories: tuple[ConnectionFactoryConfiguration, ...] = ()
    broadcast_groups: tuple[BroadcastGroupConfiguration, ...] = ()
    discovery_groups: tuple[DiscoveryGroupConfiguration, ...] = ()
    grouping_handler: GroupingConfiguration | None = None
    ha_policy: HighAvailabilityPolicy = field(default_factory=HighAvailabilityPolicy)
    addresses: tuple[AddressConfiguration, ...] = ()
    diverts: tuple[DivertDefinition, ...] = ()
    bridges: tuple[BridgeConfiguration, ...] = ()
    address_settings: tuple[AddressSettingsConfiguration, ...] = ()
    """Address settings in file order; every ``match`` once."""
    security_settings: tuple[SecuritySettingConfiguration, ...] = ()
    """Security settings in file order; every ``match`` once."""
    resource_limits: Mapping[str, ResourceLimits] = field(default_factory=dict)
    """Limits of resources by user."""
    wildcards: Wildcards = Wildcards()

    def store_directories(self) -> tuple[str, ...]:
        """Every directory the broker keeps data in, each once."""
        directories = (
            self.bindings_directory,
            self.journal_directory,
            self.large_messages_directory,
            self.paging_directory,
            self.node_manager_lock_directory,
            *((self.journal_retention_directory,) if self.journal_retention_directory is not None else ()),
        )
        return tuple(dict.fromkeys(directories))

    def directories_not_made(self) -> tuple[tuple[str, str], ...]:
        """Element and path of each directory that must exist when the broker starts."""
        wanted = (
            ("create-bindings-dir", self.create_bindings_dir, self.bindings_directory),
            ("create-journal-dir", self.create_journal_dir, self.journal_directory),
        )
        return tuple((element, directory) for element, made, directory in wanted if not made)

    @property
    def lock_directory(self) -> str:
        """Directory of the store's lock files."""
        return self.node_manager_lock_directory

    def cluster_connection(self, name: str | None) -> ClusterConnectionConfiguration:
        """The cluster connection of that name, otherwise the first; there is one."""
        clusters = self.cluster_connections
        return next((each for each in clusters if each.name == name), clusters[0])

    @property
    def pair_connection(self) -> ClusterConnectionConfiguration:
        """The cluster connection by which the nodes of its pair find each other; there is one."""
        replication = self.ha_policy.replication
        return self.cluster_connection(None if replication is None else replication.cluster_name)

    @property
    def has_cluster_password(self) -> bool:
        """Whether the cluster password is one of its own: the default is public and proves nothing."""
        return self.cluster_password not in ("", DEFAULT_CLUSTER_PASSWORD)

    def connector(self, name: str) -> ConnectorConfiguration:
        """The connector of a name; KeyError if there is none."""
        for connector in self.connectors:
            if connector.name == name:
                return connector
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """Warning about an element that this version ignores."""

    message: str
    path: str
    """Element path, as in ConfigError."""
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.path}: {self.message}"


def format_url(host: str, port: int | str) -> str:
    """``tcp://host:port``, with brackets around an IPv6 address."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
