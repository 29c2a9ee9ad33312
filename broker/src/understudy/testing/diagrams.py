"""``python -m understudy.testing.diagrams DIRECTORY``: draw every declared machine from its table."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from understudy.machine import Machine

#: Modules that declare machines; a test fails when one is missing here.
MODULES = (
    "understudy.ha.node",
    "understudy.ha.vote_round",
    "understudy.ha.replication.standby_life",
    "understudy.ha.replication.empty_start",
    "understudy.ha.replication.standing_lock",
    "understudy.ha.votes",
    "understudy.ha.network_check",
    "understudy.replication.active_link",
    "understudy.replication.replica_link",
    "understudy.ha.activation_sequence",
    "understudy.ha.sequence_claim",
    "understudy.ha.noted_position",
    "understudy.ha.witness_client",
    "understudy.ha.majority_number",
    "understudy.ha.witness_session",
    "understudy.runtime.zookeeper",
    "understudy.store.log.journal_life",
    "understudy.store.log.follower_life",
    "understudy.store.repairs",
    "understudy.store.scrubbing",
    "understudy.balancing.redistribution",
    "understudy.balancing.group_binding",
    "understudy.scale_down.transfer",
    "understudy.colocation.requests",
    "understudy.bridges.bridge",
    "understudy.cluster.member_link",
    "understudy.cluster.membership",
    "understudy.discovery.broadcaster",
    "understudy.discovery.group",
    "understudy.wire.core.peer",
    "understudy.client.core.failover",
    "understudy.session.transaction",
    "understudy.session.branch",
    "understudy.runtime.acceptor",
    "understudy.runtime.tls_layer",
    "understudy.protocols.core.connection",
    "understudy.protocols.core.channel",
    "understudy.session.upload",
    "understudy.protocols.login",
    "understudy.routing.queues.dispatch_gate",
)


def machines() -> dict[str, type[Machine[Any, Any]]]:
    """File name to machine."""
    found: dict[str, type[Machine[Any, Any]]] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Machine) and value.__module__ == name:
                found[f"{name.rpartition('.')[2].replace('_', '-')}.md"] = value
    return found


def page(machine: type[Machine[Any, Any]]) -> str:
    """One generated page."""
    summary = (sys.modules[machine.__module__].__doc__ or "").partition("\n")[0]
    return (
        f"# {machine.__name__}\n\n{summary}\n\n"
        f"Generated from the table in `{machine.__module__}` by `make docs`.\n\n{machine.diagram()}"
    )


def main(directory: str) -> None:
    """Write all pages."""
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name, machine in machines().items():
        (target / name).write_text(page(machine))
        print(target / name)


if __name__ == "__main__":
    main(sys.argv[1])
