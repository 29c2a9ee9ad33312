"""Options of the lock managers of replication (docs/lock-managers.md). Not here: reading them (``locking``)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileLockOptions:
    """``FileBasedLockManager``: a directory that all nodes reach."""

    locks_folder: str
    """It must exist."""


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
    """``scheme:credential``."""
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""

    def __repr__(self) -> str:
        return f"ZooKeeperLockOptions({self.connect_string!r}, namespace={self.namespace!r})"


@dataclass(frozen=True, slots=True)
class WitnessLockOptions:
    """A witness (``understudy witness``)."""

    addresses: tuple[tuple[str, int], ...]
    """Host and port; all of one witness."""
    secret_file: str
    lease_ms: int = 6_000
    identity: bytes | None = None
    """Property ``id``; None: the first witness that answers."""


LockManagerOptions = FileLockOptions | ZooKeeperLockOptions | WitnessLockOptions
