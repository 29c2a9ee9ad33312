# SPDX-License-Identifier: Apache-2.0
"""The elements of ``core`` that follow from a judged node of the topology, as structured YAML.

Which variable becomes which element is said by the table of variables (``xml``). Pure: no Ansible, no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import Endpoint, core_elements
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import table

if TYPE_CHECKING:
    from ansible_collections.understudy.broker.plugins.plugin_utils.model import Node

CORE_INPUT = "broker_config_core"
"""Input of the role broker_config that takes the elements."""

DIRECTORIES = {
    "bindings-directory": "bindings",
    "journal-directory": "journal",
    "large-messages-directory": "large-messages",
    "paging-directory": "paging",
    "node-manager-lock-directory": "lock",
}
"""Directories below the store; a unit test compares them with those that the module store makes."""


def core_of(node: Node, remote: Sequence[Endpoint]) -> tuple[dict[str, object], dict[str, str]]:
    """Name, directories, sockets, cluster connection and HA policy of a node.

    Args:
        node: A node of a topology without faults.
        remote: Connectors of the other nodes of the cluster.

    Returns:
        The elements, and by path of the input the variable that each comes from.
    """
    core: dict[str, object] = {"name": node.name}
    origins: dict[str, str] = {"name": "the name of the host"}
    for name, directory in DIRECTORIES.items():
        core[name] = f"{node.store_directory}/{directory}"
        origins[name] = "broker_store_directory"
    sockets, socket_origins = core_elements(node.sockets, remote)
    core.update(sockets)
    origins.update(socket_origins)
    if remote:
        core["cluster-connections"] = {"cluster-connection": _cluster_connection(node, remote)}
        origins["cluster-connections.cluster-connection"] = "broker_cluster_connection"
    _place_variables(node, core, origins)
    return core, {f"{CORE_INPUT}.{path}": origin for path, origin in origins.items()}


def _cluster_connection(node: Node, remote: Sequence[Endpoint]) -> dict[str, object]:
    return {
        "@name": node.cluster_name,
        "connector-ref": node.name,
        **node.values["cluster_connection"],
        "static-connectors": {"connector-ref": [each.name for each in remote]},
    }


def _place_variables(node: Node, core: dict[str, object], origins: dict[str, str]) -> None:
    """Add the HA policy and every other element that the table gives to a variable."""
    policy = node.ha_policy.replace("_", "-")
    chosen = ["ha-policy", policy] if policy == "primary-only" else ["ha-policy", policy, node.ha_role]
    _descend(core, chosen)
    if node.uses_lock_manager:
        _descend(core, chosen)["manager"] = _lock_manager(node)
        origins[".".join((*chosen, "manager"))] = "broker_lock_manager"
    for variable in table().topology:
        for path in variable.xml:
            steps = path.split("/")
            if steps[0] == "ha-policy" and steps[: len(chosen)] != chosen:
                continue
            if node.values[variable.key] == "":
                continue  # an empty text is the absence of a name
            _descend(core, steps[:-1])[steps[-1]] = node.values[variable.key]
            origins[".".join(steps)] = variable.name


def _lock_manager(node: Node) -> dict[str, object]:
    properties = [{"@key": name, "@value": value} for name, value in node.lock_manager_properties.items()]
    return {"class-name": node.lock_manager, "properties": {"property": properties}}


def _descend(core: dict[str, object], steps: Sequence[str]) -> dict[str, object]:
    """The mapping at a path, made where it is missing."""
    found = core
    for step in steps:
        below = found.setdefault(step, {})
        if not isinstance(below, dict):
            raise ValueError(f"the table places a value below {step!r}, which has one of its own")
        found = below
    return found
