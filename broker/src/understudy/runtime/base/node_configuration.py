"""The configuration of a node as its parts read it: settings of its store, memory limits, connectors.

The object lasts as long as the node; ``current`` is replaced when a changed broker.xml is taken.
"""

from __future__ import annotations

import logging

from understudy.cluster.membership.connectors import Connectors
from understudy.config.model import Configuration
from understudy.limits import POOL_FILES_MAX
from understudy.runtime.base.environment import Environment
from understudy.store.log.batch import Sync
from understudy.store.log.segment_pool import PoolSettings
from understudy.store.retention import RetentionSettings
from understudy.store.settings import StoreSettings
from understudy.tls.settings import TlsSettings
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)


class NodeConfiguration:
    """The present configuration, and the settings that follow from it on this machine."""

    def __init__(self, configuration: Configuration, environment: Environment, instance_directory: str = "") -> None:
        """Args:
        environment: Says how much memory there is.
        instance_directory: Relative paths of certificates of added connectors start in its directory ``etc``.
        """
        self.current = configuration
        self.connectors = Connectors(configuration.connectors, instance_directory)
        """Connectors of the node: those at its start, and others that management adds."""
        self.overrides = 0
        """Number of changes of the management CLI that override broker.xml."""
        self.pending: tuple[str, ...] = ()
        """Changed elements that the node uses after a restart or a reload."""
        self._environment = environment

    def store_settings(self) -> StoreSettings:
        """Settings of the store for an activation; logs a warning if not every batch is synced."""
        configuration = self.current
        pool_files = configuration.journal_pool_files
        retention = None
        if configuration.journal_retention_directory is not None:
            retention = RetentionSettings(
                configuration.journal_retention_directory,
                configuration.journal_retention_period_ms,
                configuration.journal_retention_storage_limit_bytes,
            )
        return StoreSettings(
            segment_bytes=configuration.journal_file_size_bytes,
            ahead=configuration.journal_min_files - 1,
            sync=self._sync(),
            retention=retention,
            pool=PoolSettings(POOL_FILES_MAX if pool_files < 0 else min(pool_files, POOL_FILES_MAX)),
            id_cache_size=configuration.id_cache_size,
            disk_usage_percent_max=configuration.max_disk_usage_percent,
            disk_free_bytes_min=configuration.min_disk_free_bytes,
            delivery_count_max=configuration.max_redelivery_records,
            count_before_delivery=configuration.persist_delivery_count_before_delivery,
            compact_segments_min=configuration.journal_compact_min_files,
            compact_percent=configuration.journal_compact_percentage_percent,
        )

    def _sync(self) -> Sync:
        configuration = self.current
        if configuration.journal_datasync and configuration.journal_sync_non_transactional:
            return Sync.ALWAYS
        commits = configuration.journal_datasync and configuration.journal_sync_transactional
        log.warning(
            "SYNC IS OFF: confirmed messages%s are lost when this machine loses power or its kernel dies, and a backup"
            " on another machine may not see the last of them; set journal-datasync, journal-sync-transactional and"
            " journal-sync-non-transactional to true",
            " outside of transactions" if commits else "",
        )
        return Sync.COMMITS if commits else Sync.SELDOM

    def bodies_max_bytes(self) -> int:
        """Bytes of bodies of waiting messages that may be in memory; further bodies are in the log only."""
        if self.current.global_max_size_bytes >= 0:
            # the policy of each address says what happens then
            return 1 << 62
        return min(self.global_max_size_bytes(), self._environment.waiting_bodies_bytes)

    def global_max_size_bytes(self) -> int:
        """global-max-size; by default half of the memory that the node may use."""
        configured = self.current.global_max_size_bytes
        return configured if configured >= 0 else self._environment.memory_bytes // 2

    def tls_for(self, connector: TransportConfiguration, own_name: str | None = None) -> TlsSettings | None:
        """TLS settings for a connection to another node; None: plain text.

        Args:
            connector: A configured one, or one that another node announces; for the latter the settings of the own
                connector are used.
            own_name: Name of the own connector; None: that of the pair (``own_connector``).
        """
        if str(connector.parameters.get("sslEnabled", "false")).lower() != "true":
            return None
        found = self.connectors.get(connector.name)
        if found is not None and found.tls is not None and (found.host, found.port) == (connector.host, connector.port):
            return found.tls
        if own_name is None and self.current.cluster_connections:
            own_name = self.current.pair_connection.connector_ref
        own = None if own_name is None else self.connectors.configured[own_name]
        return (own and own.tls) or TlsSettings()

    def own_connector(self) -> TransportConfiguration | None:
        """The connector for clients and other nodes, of the cluster connection that its pair uses; None without a
        cluster connection.
        """
        current = self.current
        return self.connectors.transport(current.pair_connection.connector_ref) if current.cluster_connections else None
