"""Options of the lock managers of replication (docs/operate/lock-managers.md). Not here: reading them (``locking``)."""

from __future__ import annotations

from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FileLockOptions:
    """``FileBasedLockManager``: a directory that all nodes reach."""

    locks_folder: str
    """Path of an existing folder for the lock files."""

    @property
    def lease_limit_ms(self) -> int | None:
        """How long a lock outlives the connection of its node; None: no limit is known."""
        return None


@dataclass(frozen=True, slots=True)
class ZooKeeperLockOptions:
    """``CuratorDistributedLockManager``; names and defaults of Artemis."""

    connect_string: str
    namespace: str = ""
    session_ms: int = 18_000
    session_percent: int = 33
    connection_ms: int = 8_000
    retries: int = 1
    retries_ms: int = 1_000
    auth: str = ""
    """``scheme:credential``, for example ``digest:user:password``."""
    tls_ca: str = ""
    """File with the certificates of authorities; not empty: TLS is used."""
    tls_certificate: str = ""
    tls_key: str = ""

    @property
    def lease_limit_ms(self) -> int | None:
        """How long a lock outlives the connection of its node: the session."""
        return self.session_ms

    @property
    def root(self) -> str:
        """Path below which all nodes are."""
        return f"/{self.namespace}" if self.namespace else ""

    def __repr__(self) -> str:
        return f"ZooKeeperLockOptions({self.connect_string!r}, namespace={self.namespace!r})"


@dataclass(frozen=True, slots=True)
class WitnessLockOptions:
    """A witness (``understudy witness``)."""

    addresses: tuple[tuple[str, int], ...] = ()
    """Host and port; all of one witness."""
    secret_file: str = ""
    """Path of the file with the secret of the witness. Never empty."""
    lease_ms: int = 6_000
    identity: bytes | None = None
    """Property ``id``; None: the first witness that answers."""
    members: tuple[tuple[str, int], ...] = ()
    """Instead of ``addresses``: host and port of each witness of a group, of which a majority decides (ADR 0117)."""

    @property
    def lease_limit_ms(self) -> int | None:
        """How long a lock outlives the connection of its node: the lease."""
        return self.lease_ms


LockManagerOptions = FileLockOptions | ZooKeeperLockOptions | WitnessLockOptions
