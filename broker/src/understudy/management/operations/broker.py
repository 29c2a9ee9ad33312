"""The operations of ``broker`` (Artemis: ActiveMQServerControl): the node itself, and all operations of the
other ``broker_*`` modules.

A node that is not active has no sessions and can therefore be managed over HTTP only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict
from enum import Enum
from typing import Final

from understudy import __version__
from understudy.config.high_availability import Role
from understudy.config.json_settings import json_name
from understudy.config.model import Configuration
from understudy.errors import BrokerError, ConfigError, ManagementError
from understudy.management.json_text import to_json
from understudy.management.operations.bridges import bridge_names
from understudy.management.operations.invocation import Control
from understudy.management.operations.readers import READER_OPERATIONS
from understudy.management.operations.settings import ROLE_PERMISSIONS
from understudy.management.operations.table import Effect, Operation, operation, text
from understudy.management.transport import (
    ACCEPTOR_FACTORY,
    CONNECTOR_FACTORY,
    acceptor_parameters,
    connector_parameters,
    described,
)
from understudy.routing.queues.queue import Queue
from understudy.security.settings import FQQN_SEPARATOR
from understudy.session.error_texts import without_directory


def _shown(value: Enum) -> str:
    """The value as in the configuration, so that it can be given to ``addAddressSettings``."""
    return value.value if isinstance(value.value, str) else value.name


class BrokerControl(Control):
    """The node, with the permissions of one requester."""

    __slots__ = ()

    @property
    def uptime_ms(self) -> int:
        """Milliseconds since the activation."""
        return self.node.services.clock.monotonic_ms() - self.node.activated_ms

    def report_queues(self, queue_name: str, addresses: str) -> None:
        """Send a report of queues for other members of the cluster. Raises ManagementError: no such queue, or there is
        no cluster.
        """
        if self.node.queue_reports is None:
            raise ManagementError("this node has no cluster connection")
        self.node.queue_reports.send_to(queue_name, addresses)

    @property
    def uptime(self) -> str:
        """Time since the activation, as text."""
        return duration_text(self.uptime_ms)

    def status(self) -> str:
        """State, version and uptime, as JSON."""
        return to_json(
            {
                "server": {
                    "state": "STARTED",
                    "version": __version__,
                    "nodeId": self.node.services.node_id,
                    "identity": self.node.configuration.name,
                    "uptime": self.uptime,
                }
            }
        )

    def ha_policy(self) -> str:
        """The HA policy by the name that Artemis has for it."""
        policy = self.node.configuration.ha_policy
        if policy.role is Role.PRIMARY_ONLY:
            return "Primary Only"
        if policy.replication is None:
            return f"Shared Store {policy.role.value.capitalize()}"
        decides = "quorum voting" if policy.replication.lock_manager is None else "lock manager"
        return f"Replication {policy.role.value.capitalize()} w/{decides}"

    def replica_in_sync(self) -> bool:
        """Whether a replica of this node may take over."""
        if self.node.configuration.ha_policy.replication is None:
            return False
        # a backup of a replicated pair is in the topology while it is in sync
        member = self.node.topology.member(self.node.services.sessions.post_office.store.node_id)
        return member is not None and member.backup is not None

    def shares_store(self) -> bool:
        """Whether the nodes of the pair use one store."""
        policy = self.node.configuration.ha_policy
        return policy.role is not Role.PRIMARY_ONLY and policy.replication is None

    def memory_percent(self) -> int:
        """Memory of bodies, in percent of the limit of the node."""
        limit = self.node.global_max_size_bytes
        return 0 if limit <= 0 else self.node.services.sessions.post_office.memory.held_bytes * 100 // limit

    def sum_of(self, counter: Callable[[Queue], int]) -> int:
        """Sum of a counter over all queues."""
        return sum(counter(queue) for queue in self.node.services.sessions.post_office.directory.queues.values())

    def topology(self) -> str:
        """Nodes of the cluster with their backups, as JSON."""
        nodes = []
        for member in self.node.topology.members():
            if member.primary is not None:
                primary = f"{member.primary.host}:{member.primary.port}"
                # Artemis sends the old name in addition to the new one, and its command line reads the old one
                entry = {"nodeID": member.node_id, "live": primary, "primary": primary}
                if member.backup is not None:
                    entry["backup"] = f"{member.backup.host}:{member.backup.port}"
                nodes.append(entry)
        return to_json(nodes)

    def acceptors(self) -> str:
        """The acceptors, as JSON."""
        return to_json([described(*each) for each in self.all_acceptors()])

    def connectors(self) -> str:
        """The connectors, as JSON."""
        return to_json([described(*each) for each in self.all_connectors()])

    def all_acceptors(self) -> list[tuple[str, str, dict[str, str]]]:
        """Name, factory and parameters of each acceptor."""
        return [(each.name, ACCEPTOR_FACTORY, acceptor_parameters(each)) for each in self.node.configuration.acceptors]

    def all_connectors(self) -> list[tuple[str, str, dict[str, str]]]:
        """Name, factory and parameters of each connector."""
        bridges = self.node.bridges
        found = bridges.connectors.all() if bridges is not None else self.node.configuration.connectors
        return [(each.name, CONNECTOR_FACTORY, connector_parameters(each)) for each in found]

    def address_settings(self, address: str) -> str:
        """The settings that apply to an address, as JSON."""
        settings = asdict(self.node.services.sessions.post_office.directory.settings.of(address))
        return to_json(
            {
                json_name(name): _shown(value) if isinstance(value, Enum) else value
                for name, value in settings.items()
                if value is not None
            }
        )

    def roles(self, address: str) -> list[dict[str, object]]:
        """Permissions of each role on an address."""
        name, _, queue = address.partition(FQQN_SEPARATOR)
        setting = self.node.services.access.policy.settings.of(name, queue or None)
        if setting is None:
            return []
        names = sorted({role for roles in setting.permissions.values() for role in roles})
        return [
            {
                "name": name,
                **{each.value: name in setting.permissions.get(each, frozenset()) for each in ROLE_PERMISSIONS},
            }
            for name in names
        ]

    def role_rows(self, address: str) -> list[list[object]]:
        """Permissions of each role as lists, in the order of ``ROLE_PERMISSIONS``."""
        return [[role["name"], *(role[each.value] for each in ROLE_PERMISSIONS)] for role in self.roles(address)]

    def reload(self) -> Generator[None, None, None]:
        """Reload broker.xml, users and roles, and certificates. Raises ManagementError: there is no file, or some are
        invalid; it names each.
        """
        if self.node.files is None:
            raise ManagementError("this node has no configuration file")
        outcomes: list[tuple[BrokerError, ...]] = []
        self.node.files.reload(outcomes.append)
        while not outcomes:
            yield
        errors = outcomes[0]
        if len(errors) == 1 and not isinstance(errors[0], ConfigError):
            raise errors[0]
        if errors:
            raise ManagementError("; ".join(map(without_directory, errors)))

    def fail_over(self) -> None:
        """Stop after the reply and let the peer take over."""
        self.node.timers.call_later(0, self.node.handing_over.fail_over)

    def fail_back(self) -> None:
        """Yield to the primary."""
        self.node.handing_over.fail_back()

    def scale_down(self, connector: str | None) -> None:
        """Stop after the reply, and let another member take the messages."""
        self.node.handing_over.scale_down(connector)


def duration_text(duration_ms: int) -> str:
    """``12.345 seconds``, ``3 minutes``, ``2 hours 5 minutes``, ``4 days 1 hour``: with the two largest units."""
    minutes = duration_ms // 60_000
    if not minutes:
        return f"{duration_ms / 1000:.3f} seconds"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    shown = ((days, "day"), (hours, "hour")) if days else ((hours, "hour"), (minutes, "minute"))
    return " ".join(f"{count:,} {unit}{'s' if count > 1 else ''}" for count, unit in shown if count)


def _configured(name: str) -> Callable[[BrokerControl], object]:
    """A value of the configuration."""
    return lambda control: getattr(control.node.configuration, name)


_C = BrokerControl
#: Default values, whose types are those of the configured ones.
_DEFAULT: Final = Configuration()

_CONFIGURED: Final = (
    ("getName", "name", "Name of the broker."),
    ("getManagementAddress", "management_address", "Address of requests."),
    ("getManagementNotificationAddress", "management_notification_address", "Address of notifications."),
    ("getBindingsDirectory", "bindings_directory", "Directory of the bindings."),
    ("getJournalDirectory", "journal_directory", "Directory of the log."),
    ("getLargeMessagesDirectory", "large_messages_directory", "Directory of large messages."),
    ("getPagingDirectory", "paging_directory", "Directory of page files."),
    ("getJournalFileSize", "journal_file_size_bytes", "Bytes of a segment."),
    ("getJournalMinFiles", "journal_min_files", "Preallocated segments."),
    ("isSecurityEnabled", "security_enabled", "Whether users and permissions are checked."),
    ("isPersistenceEnabled", "persistence_enabled", "Whether messages are written to disk."),
    ("getSecurityInvalidationInterval", "security_invalidation_interval_ms", "Milliseconds a login is cached."),
    ("isPersistDeliveryCountBeforeDelivery", "persist_delivery_count_before_delivery", "Whether it survives a crash."),
    ("isCreateBindingsDir", "create_bindings_dir", "Whether the directory is created."),
    ("isCreateJournalDir", "create_journal_dir", "Whether the directory is created."),
    ("isJournalSyncTransactional", "journal_sync_transactional", "Whether a commit waits for the disk."),
    ("isJournalSyncNonTransactional", "journal_sync_non_transactional", "Whether a send waits for the disk."),
    ("getJournalCompactMinFiles", "journal_compact_min_files", "Minimum number of segments for compaction."),
    ("getJournalCompactPercentage", "journal_compact_percentage_percent", "Live percentage that causes compaction."),
    ("getConnectionTTLOverride", "connection_ttl_override_ms", "Milliseconds; -1 = as set by clients."),
    ("getIDCacheSize", "id_cache_size", "Duplicate ids cached per address."),
    ("isPersistIDCache", "persist_id_cache", "Whether duplicate ids survive a restart."),
    ("getMessageExpiryScanPeriod", "message_expiry_scan_period_ms", "Milliseconds."),
    ("getTransactionTimeout", "transaction_timeout_ms", "Milliseconds."),
    ("getTransactionTimeoutScanPeriod", "transaction_timeout_scan_period_ms", "Milliseconds."),
    ("getMaxDiskUsage", "max_disk_usage_percent", "Used part of the disk above which producers are blocked."),
    ("getDiskScanPeriod", "disk_scan_period_ms", "Milliseconds."),
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    *(operation(name, _configured(field), doc, returns=type(getattr(_DEFAULT, field)))
      for name, field, doc in _CONFIGURED),
    *READER_OPERATIONS,
    operation("getVersion", lambda control: __version__, "Version of the broker.", returns=str),
    operation("getNodeID", lambda c: c.node.services.node_id, "Node id, shared by a primary and its backup.",
              returns=str),
    operation("isStarted", lambda c: c.node.services.connections.accepting,
              "Whether it accepts clients; false while it stops.", returns=bool),
    operation("isActive", lambda control: True, "Always true: other nodes have no management over messages.",
              returns=bool),
    operation("isBackup", lambda control: False, "Always false: other nodes have no management over messages.",
              returns=bool),
    operation("isSharedStore", _C.shares_store, "Whether it shares the store with a peer."),
    operation("isFailoverOnServerShutdown", lambda c: c.node.configuration.ha_policy.failover_on_shutdown,
              "Whether a clean stop lets the peer take over.", returns=bool),
    operation("isReplicaSync", _C.replica_in_sync, "Whether a replica of this node may take over."),
    operation("getHAPolicy", _C.ha_policy, "Its HA policy."),
    operation("getActivationSequence", lambda c: c.node.services.sessions.post_office.store.epoch,
              "Epoch of the activation.", returns=int),
    operation("getStatus", _C.status, "State, version and uptime, as JSON."),
    operation("getUptime", lambda c: c.uptime, "Time since the activation.", returns=str),
    operation("getUptimeMillis", lambda c: c.uptime_ms, "The same in milliseconds.", returns=int),
    operation("getCurrentTimeMillis", lambda c: c.node.services.clock.wall_ms(), "Wall time.", returns=int),
    operation("getGlobalMaxSize", lambda c: c.node.global_max_size_bytes, "Limit for bodies in memory, in bytes.",
              returns=int),
    operation("getAddressMemoryUsage",
              lambda c: c.node.services.sessions.post_office.memory.held_bytes, "Bytes of bodies.", returns=int),
    operation("getAddressMemoryUsagePercentage", _C.memory_percent, "The same in percent of the limit."),
    operation("getDiskStoreUsage", lambda c: c.node.services.sessions.post_office.store.disk_used_percent / 100,
              "Used part of the store's disk, 0 to 1.", returns=float),
    operation("getTotalMessageCount", lambda c: c.sum_of(lambda queue: queue.message_count), "Messages in all queues.",
              returns=int),
    operation("getTotalMessagesAdded", lambda c: c.sum_of(lambda queue: queue.messages_added), "Messages added.",
              returns=int),
    operation("getTotalMessagesAcknowledged", lambda c: c.sum_of(lambda queue: queue.messages_acknowledged),
              "Messages acknowledged in all queues.", returns=int),
    operation("getAuthenticationCacheSize", lambda c: c.node.services.access.policy.known_logins, "Cached logins.",
              returns=int),
    operation("getAuthorizationCacheSize", lambda c: c.node.services.access.policy.known_answers,
              "Entries of the permission cache.", returns=int),
    operation("getAuthenticationSuccessCount", lambda c: c.node.services.access.logins.succeeded_count,
              "Successful logins; 0 without security.", returns=int),
    operation("getAuthenticationFailureCount", lambda c: c.node.services.access.logins.failed_count, "Refused logins.",
              returns=int),
    operation("getAuthorizationSuccessCount", lambda c: c.node.services.access.policy.allowed_count,
              "Permission checks that succeeded.", returns=int),
    operation("getAuthorizationFailureCount", lambda c: c.node.services.access.policy.refused_count, "Refused checks.",
              returns=int),
    operation("getAcceptors", _C.all_acceptors, "Acceptors: name, factory, parameters."),
    operation("getConnectors", _C.all_connectors, "Connectors: name, factory, parameters."),
    operation("getBridgeNames", bridge_names, "Names of the core bridges."),
    operation("getConnectorServices", lambda control: [], "Empty: not supported.", returns=list[str]),
    operation("getBrokerPluginClassNames", lambda control: [], "Empty: Java classes are not supported.",
              returns=list[str]),
    operation("getIncomingInterceptorClassNames", lambda control: [], "Empty: Java classes are not supported.",
              returns=list[str]),
    operation("getOutgoingInterceptorClassNames", lambda control: [], "Empty: Java classes are not supported.",
              returns=list[str]),
    operation("listBrokerConnections", lambda control: "[]", "Empty: not supported.", returns=str),
    operation("isEmbeddedWebServerStarted", lambda control: False, "Always false: there is no web console.",
              returns=bool),
    operation("isClustered", lambda c: bool(c.node.configuration.cluster_connections), "Whether it is clustered.",
              returns=bool),
    operation("getClusterConnectionNames", lambda c: [each.name for each in c.node.configuration.cluster_connections],
              "Names of the cluster connections.", returns=list[str]),
    operation("isWildcardRoutingEnabled", lambda c: c.node.configuration.wildcards.routing_enabled,
              "Whether queues of wildcard addresses get messages.", returns=bool),
    operation("sendQueueInfoToQueue", _C.report_queues, "Put reports of all queues and consumers into a queue.",
              text("queueName"), text("address")),
    operation("listNetworkTopology", _C.topology, "Nodes of the cluster with their backups, as JSON."),
    operation("getAcceptorsAsJSON", _C.acceptors, "Acceptors, as JSON."),
    operation("getConnectorsAsJSON", _C.connectors, "Connectors, as JSON."),
    operation("getAddressSettingsAsJSON", _C.address_settings, "Settings of an address, as JSON.", text("address")),
    operation("getRoles", _C.role_rows, "Permissions of each role on an address.", text("addressMatch")),
    operation("getRolesAsJSON", lambda c, address: to_json(c.roles(address)), "As JSON.", text("addressMatch"),
              returns=str),
    operation("reloadConfigurationFile", _C.reload,
              "Apply changed files as far as no restart is needed; an error names each file that cannot be used."),
    operation("forceFailover", _C.fail_over, "Stop, and let the peer take over.", changes=Effect.RESTART),
    operation("failback", _C.fail_back, "Yield to the primary that waits, whatever allow-failback says.",
              changes=Effect.RESTART),
    operation("scaleDown", _C.scale_down, "Stop, and move all messages to another member.",
              text("connector", nullable=True), changes=Effect.RESTART),
)  # fmt: skip
