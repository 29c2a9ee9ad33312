"""The instance of a node, and the descriptions of it: the first line of the log, and the file ``run/node.json``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from understudy.cli.node.user_files import logins_beside, user_files
from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.runtime.base.logs import journal_unit
from understudy.security.authorization import SecurityPolicy


@dataclass(frozen=True, slots=True)
class Instance:
    """Paths of the files of one node, except its store."""

    directory: Path
    config: Path
    http: str
    token_file: Path | None
    greets: bool = False
    """Whether the node prints example commands once it is active."""
    log_file: str | None = None
    """File of the log; None: standard error."""

    @property
    def pid_file(self) -> Path:
        """File with the process id while the node runs."""
        return self.directory / "run" / "understudy.pid"

    @property
    def node_file(self) -> Path:
        """File with the process id, the configuration and the management address while the node runs."""
        return self.directory / "run" / "node.json"


def start_fields(configuration: Configuration, security: SecurityPolicy, place: Instance) -> dict[str, object]:
    """Fields of the first line of the log of a node: configuration, store, policy, acceptors and users."""
    policy = configuration.ha_policy
    kind = "single" if not policy.is_pair else "shared-store" if policy.replication is None else "replication"
    folder = place.config.parent
    users = "security is off, every client has every permission"
    if configuration.security_enabled:
        count = len(security.users())
        users = f"{count} user{'' if count == 1 else 's'} of {user_files(folder, logins_beside(folder))[0]}"
    return {
        "server": configuration.name,
        "configuration": str(place.config),
        "store": configuration.journal_directory if configuration.persistence_enabled else "memory",
        "policy": kind if kind == "single" else f"{kind} {policy.role.value}",
        "acceptors": ", ".join(f"{each.name} {each.url}" for each in configuration.acceptors) or "none",
        "users": users,
        "management": place.http,
        "pid": os.getpid(),
    }


def node_facts(place: Instance, name: str, servers: Mapping[str, str | None]) -> dict[str, object]:
    """Values of ``run/node.json``, by which commands find a node that runs.

    Args:
        name: Name of the server of ``core``.
        servers: Management URL of each server by its name; None: it has none.
    """
    return {
        "pid": os.getpid(),
        "name": name,
        "config": str(place.config),
        "http_url": None if place.http == "off" else f"http://{place.http}",
        "token_file": str(place.token_file) if place.token_file else None,
        "log_file": None if place.log_file is None else str(Path(place.log_file).resolve()),
        "journal_unit": journal_unit(Path("/proc/self/cgroup"), os.environ),
        "servers": dict(servers),
    }
