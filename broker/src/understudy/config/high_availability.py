"""The element ``ha-policy`` as values: role of a server, shared store or replication (artemis-ha s. 1)."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from understudy.config.lock_options import LockManagerOptions
from understudy.config.schema.schema import Defaults
from understudy.dataclass import dataclass

_CORE: Final = Defaults("core")
_PRIMARY: Final = Defaults("core/ha-policy/shared-store/primary")
_BACKUP: Final = Defaults("core/ha-policy/shared-store/backup")
_REPLICATION: Final = Defaults("core/ha-policy/replication/backup")
_SCALE_DOWN: Final = Defaults("core/ha-policy/primary-only/scale-down")
_COLOCATED: Final = Defaults("core/ha-policy/shared-store/colocated")


class Role(StrEnum):
    """Configured role of a server; its present state is that of the policy."""

    PRIMARY_ONLY = "primary-only"
    PRIMARY = "primary"
    BACKUP = "backup"


@dataclass(frozen=True, slots=True)
class ReplicationConfiguration:
    """A node of a replicated pair (artemis-ha s. 1)."""

    group_name: str | None = None
    cluster_name: str | None = None
    """Cluster connection whose connectors lead to the other nodes; None: the first."""
    max_saved_replicated_journals_size: int = _REPLICATION.number("max-saved-replicated-journals-size")
    initial_replication_sync_timeout_ms: int = _REPLICATION.number("initial-replication-sync-timeout")
    vote_on_replication_failure: bool = _REPLICATION.boolean("vote-on-replication-failure")
    quorum_size: int = _REPLICATION.number("quorum-size")
    vote_retries: int = _REPLICATION.number("vote-retries")
    vote_retry_wait_ms: int = _REPLICATION.number("vote-retry-wait")
    quorum_vote_wait_seconds: int = _REPLICATION.number("quorum-vote-wait")
    retry_replication_wait_ms: int = _REPLICATION.number("retry-replication-wait")
    replica_silence_ms: int = _REPLICATION.number("replica-silence")
    durability_contract: str = _REPLICATION.text("durability-contract")
    lock_manager: LockManagerOptions | None = None
    """Element ``manager``; None: the nodes vote."""
    check_for_active_server: bool = False
    """Element check-for-active-server of a primary."""
    coordination_id: str | None = None
    """Primary with a lock manager: peers share it."""
    of_node: str | None = None
    """Colocated backup: node id of the only node of which it becomes the replica. No element of a file."""

    @property
    def silence_ms(self) -> int:
        """Limit of the silence of the other node in addition to the connection-ttl; -1: none.

        A vote can be won by both sides of a short interruption, a lock cannot: without a lock manager there is none.
        """
        return self.replica_silence_ms if self.lock_manager is not None else -1


@dataclass(frozen=True, slots=True)
class NetworkCheckConfiguration:
    """The network check of a node under any policy (artemis-ha s. 3.6)."""

    network_check_list: str = _CORE.text("network-check-list")
    network_check_url_list: str = _CORE.text("network-check-URL-list")
    network_check_period_ms: int = _CORE.number("network-check-period")
    network_check_timeout_ms: int = _CORE.number("network-check-timeout")
    network_check_nic: str = _CORE.text("network-check-NIC")
    network_check_ping_command: str = _CORE.text("network-check-ping-command")
    network_check_ping6_command: str = _CORE.text("network-check-ping6-command")


@dataclass(frozen=True, slots=True)
class ScaleDownConfiguration:
    """Element ``scale-down``: another member takes the messages of this node (artemis-ha s. 6)."""

    enabled: bool = _SCALE_DOWN.boolean("enabled")
    """False: this node only takes messages of others."""
    group_name: str | None = None
    """Group whose members may be the target; None: any member."""
    connectors: tuple[str, ...] = ()
    """Names of connectors of members, in the order in which they are tried."""
    discovery_group: str | None = None
    """Members that were heard in it are tried."""
    commit_interval: int = _SCALE_DOWN.number("commit-interval")
    """Messages that are removed in one transaction; -1: as they are confirmed."""
    host: str | None = None
    """Connector of the server that hosts a colocated replica, which is tried last."""


@dataclass(frozen=True, slots=True)
class ColocatedConfiguration:
    """Element ``colocated``: a primary whose process hosts backups of other members (artemis-ha s. 5)."""

    backup: HighAvailabilityPolicy
    """Policy of the hosted backups."""
    request_backup: bool = _COLOCATED.boolean("request-backup")
    """Whether the node asks another member to host a backup of it."""
    backup_request_retries: int = _COLOCATED.number("backup-request-retries")
    """Number of further requests for a backup; -1: no limit."""
    backup_request_retry_interval_ms: int = _COLOCATED.number("backup-request-retry-interval")
    max_backups: int = _COLOCATED.number("max-backups")
    backup_port_offset: int = _COLOCATED.number("backup-port-offset")
    excludes: tuple[str, ...] = ()
    """Names of the connectors that a hosted backup takes unchanged."""


@dataclass(frozen=True, slots=True)
class HighAvailabilityPolicy:
    """HA policy: a single server, or one of a pair with a shared store or with replication (artemis-ha s. 1)."""

    role: Role = Role.PRIMARY_ONLY
    failover_on_shutdown: bool = _PRIMARY.boolean("failover-on-shutdown")
    """Primary and backup: a clean stop lets the other one take over."""
    wait_for_activation: bool = _PRIMARY.boolean("wait-for-activation")
    """Primary: started is reported only once active."""
    allow_failback: bool = _BACKUP.boolean("allow-failback")
    """Backup: becomes passive when its primary returns."""
    restart_backup: bool = _BACKUP.boolean("restart-backup")
    """Whether a backup continues as a backup after a failback (restart-backup)."""
    replication: ReplicationConfiguration | None = None
    """None: the nodes share a store, or there is one node."""
    scale_down: ScaleDownConfiguration | None = None
    """Single node and backup; None: its messages stay with it."""
    colocated: ColocatedConfiguration | None = None
    """Colocation of a primary; None: its process hosts no backups."""
    network_check: NetworkCheckConfiguration = field(default_factory=NetworkCheckConfiguration)

    @property
    def is_pair(self) -> bool:
        """Whether the node belongs to a pair, in which one node takes over from the other."""
        return self.role is not Role.PRIMARY_ONLY

    @property
    def is_backup(self) -> bool:
        """Whether the node is the backup of a pair."""
        return self.role is Role.BACKUP

    @property
    def scales_down(self) -> bool:
        """Whether the messages of this node move to another one."""
        return self.scale_down is not None and self.scale_down.enabled

    @property
    def moves_instead_of_serving(self) -> bool:
        """Whether the node is a backup whose messages move as soon as it takes over (artemis-ha s. 6)."""
        return self.scales_down and self.role is Role.BACKUP
