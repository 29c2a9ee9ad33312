"""``python -m documents.diagrams DIRECTORY``: draw every declared machine from its table."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from understudy.machine import Machine

#: Modules that declare machines; a test fails when one is missing here.
MODULES = (
    "understudy.ha.life.node",
    "understudy.ha.votes.round",
    "understudy.ha.replication.standby_life",
    "understudy.ha.replication.empty_start",
    "understudy.ha.replication.standing_lock",
    "understudy.ha.votes.decisions",
    "understudy.ha.life.network_check",
    "understudy.replication.active_link",
    "understudy.replication.replica_link",
    "understudy.ha.locks.activation_sequence",
    "understudy.ha.locks.sequence_claim",
    "understudy.ha.locks.noted_position",
    "understudy.ha.witness.client",
    "understudy.ha.witness.majority_number",
    "understudy.ha.witness.session",
    "understudy.runtime.locks.zookeeper",
    "understudy.store.log.journal_life",
    "understudy.store.log.reading.follower_life",
    "understudy.store.repairs",
    "understudy.store.scrubbing",
    "understudy.cluster.balancing.redistribution",
    "understudy.cluster.balancing.group_binding",
    "understudy.cluster.scale_down.transfer",
    "understudy.cluster.colocation.requests",
    "understudy.cluster.bridges.bridge",
    "understudy.cluster.membership.member_link",
    "understudy.cluster.membership.membership",
    "understudy.cluster.discovery.broadcaster",
    "understudy.cluster.discovery.group",
    "understudy.wire.core.peer",
    "understudy.client.core.connection.failover",
    "understudy.session.transaction",
    "understudy.session.branch",
    "understudy.runtime.net.acceptor",
    "understudy.runtime.net.tls_layer",
    "understudy.protocols.core.connection",
    "understudy.protocols.core.channel",
    "understudy.protocols.amqp091.connection",
    "understudy.protocols.amqp091.channel",
    "understudy.protocols.amqp091.content",
    "understudy.protocols.amqp091.endpoint_checks",
    "understudy.protocols.amqp091.moves.arrivals",
    "understudy.protocols.amqp091.sessions",
    "understudy.session.uploads",
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
                found[f"{_page_name(name)}.md"] = value
    return found


#: Folders whose names are part of the names of pages.
_LONG_NAMES: Final = ("ha.witness", "ha.votes", "protocols.amqp091", "protocols.amqp091.moves")


def _page_name(module: str) -> str:
    """The last part of the name of a module; in these folders that part alone would not say what the machine is."""
    folder, _, last = module.removeprefix("understudy.").rpartition(".")
    name = f"{folder.rpartition('.')[2]}_{last}" if folder in _LONG_NAMES else last
    return name.replace("_", "-")


def page(machine: type[Machine[Any, Any]]) -> str:
    """One generated page."""
    summary = (sys.modules[machine.__module__].__doc__ or "").partition("\n")[0]
    diagram = "".join(
        fill(line, 120) + "\n" if " × " in line else f"{line}\n" for line in machine.diagram().splitlines()
    )
    return (
        f"# {machine.__name__}\n\n{summary}\n\n"
        f"Generated from the table in `{machine.__module__}` by `make docs`.\n\n{diagram}"
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
