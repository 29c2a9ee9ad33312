# SPDX-License-Identifier: Apache-2.0
"""Rules about the services that decide which node of a replicated pair may be active: number and places.

Pure: no Ansible, no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.understudy.broker.plugins.plugin_utils.model import Fault, Node

DOMAIN = "broker_failure_domain"


def find_faults(
    nodes: Sequence[Node], hosts: Mapping[str, str], variables: Mapping[str, Mapping[str, object]]
) -> Iterator[Fault]:
    """Faults of the hosts of witnesses, and of ensembles that nodes name.

    Args:
        nodes: Nodes of the topology.
        hosts: Hosts of witnesses, each with its machine.
        variables: Variables of the hosts of witnesses, by host.
    """
    users = [node for node in nodes if node.uses_lock_manager and node.lock_manager == "witness"]
    for host, machine in hosts.items():
        domain = str(variables[host].get(DOMAIN) or "")
        for node in users:
            if node.machine == machine and machine != "the controller":
                problem = f"runs a witness on the machine of {node.name}; a witness belongs on a host of its own"
                yield Fault(host, "ansible_host", problem)
            elif domain and node.failure_domain == domain:
                problem = f"is {domain!r} like that of {node.name}; a witness must not fail together with a node"
                yield Fault(host, DOMAIN, problem)
    yield from _ensembles(nodes)


def _ensembles(nodes: Sequence[Node]) -> Iterator[Fault]:
    for node in nodes:
        properties = node.values["lock_manager_properties"]
        if not node.uses_lock_manager or node.lock_manager != "zookeeper" or not isinstance(properties, Mapping):
            continue
        servers = [each.strip() for each in str(properties.get("connect-string", "")).split(",") if each.strip()]
        if servers and len(servers) % 2 == 0:
            problem = f"names {len(servers)} servers of ZooKeeper; an even number survives no more than one less"
            yield Fault(node.name, "broker_lock_manager_properties", problem)
        addresses = {server.rpartition(":")[0].strip("[]") or server for server in servers}
        pair = [each for each in nodes if node.pair and each.pair == node.pair]
        held = [each.name for each in pair if {each.machine, each.sockets.connector.address} & addresses]
        if len(pair) > 1 and len(held) == len(pair):
            names = ", ".join(held)
            problem = f"has servers of ZooKeeper on all nodes of pair {node.pair!r} ({names}); place them elsewhere"
            yield Fault(node.name, "broker_lock_manager_properties", problem)
