# SPDX-License-Identifier: Apache-2.0
"""The elements of ``core`` that follow from a judged node of the topology, as structured YAML.

Which variable becomes which element is said by the table of variables (``xml``). Pure: no Ansible, no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import core_elements
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


def core_of(node: Node, members: Sequence[Node]) -> tuple[dict[str, object], dict[str, str]]:
    """Name, directories, sockets, cluster connection, discovery, message groups and HA policy of a node.

    Args:
        node: A node of a topology without faults.
        members: The other nodes of the cluster.

    Returns:
        The elements, and by path of the input the variable that each comes from.
    """
    core: dict[str, object] = {"name": node.name}
    origins: dict[str, str] = {"name": "the name of the host"}
    for name, directory in DIRECTORIES.items():
        # a request for a backup names no lock directory: the lock of a colocated node is in its journal
        if not node.colocated or name != "node-manager-lock-directory":
            core[name] = f"{node.store_directory}/{directory}"
            origins[name] = "broker_store_directory"
    sockets, socket_origins = core_elements(node.sockets, [other.sockets.connector for other in members])
    core.update(sockets)
    origins.update(socket_origins)
    if members:
        core["cluster-connections"] = {"cluster-connection": _cluster_connection(node, members)}
        origins["cluster-connections.cluster-connection"] = "broker_cluster_connection"
        _place_discovery(node, core, origins)
        _place_grouping(node, members, core, origins)
    _place_policy(node, members, core, origins)
    _place_variables(node, core, origins)
    return core, {f"{CORE_INPUT}.{path}": origin for path, origin in origins.items()}


def _cluster_connection(node: Node, members: Sequence[Node]) -> dict[str, object]:
    connection = {"@name": node.cluster_name, "connector-ref": node.name, **node.values["cluster_connection"]}
    if node.values["cluster_discovery"]:
        connection["discovery-group-ref"] = {"@discovery-group-name": node.cluster_name}
        return connection
    if not node.values["cluster_connects"]:
        return connection
    static: dict[str, object] = {
        "connector-ref": node.values["cluster_members"] or [each.sockets.connector.name for each in members]
    }
    if node.values["cluster_direct_connections_only"]:
        static["@allow-direct-connections-only"] = True
    connection["static-connectors"] = static
    return connection


DISCOVERY = {
    "address": "group-address",
    "port": "group-port",
    "jgroups_file": "jgroups-file",
    "jgroups_channel": "jgroups-channel",
}
"""Options of ``broker_cluster_discovery`` that both groups have, with their elements."""
LISTENING = {"refresh_timeout_ms": "refresh-timeout", "initial_wait_timeout_ms": "initial-wait-timeout"}
SENDING = {"broadcast_period_ms": "broadcast-period"}


def _place_discovery(node: Node, core: dict[str, object], origins: dict[str, str]) -> None:
    """A broadcast group and a discovery group, both with the name of the cluster."""
    given = node.values["cluster_discovery"]
    if not given:
        return
    connector = node.values["cluster_connection"].get("connector-ref", node.name)
    for name, options, more in (
        ("broadcast-group", {**DISCOVERY, **SENDING}, {"connector-ref": connector}),
        ("discovery-group", {**DISCOVERY, **LISTENING}, {}),
    ):
        interface = node.values["cluster_discovery_interface"]
        group: dict[str, object] = {"@name": node.cluster_name}
        if interface:
            group["local-bind-address"] = interface
        group.update((element, given[option]) for option, element in options.items() if option in given)
        core[f"{name}s"] = {name: {**group, **more}}
        origins[f"{name}s.{name}"] = "broker_cluster_discovery"


def _place_grouping(node: Node, members: Sequence[Node], core: dict[str, object], origins: dict[str, str]) -> None:
    """LOCAL for the owner and its backups, REMOTE for all others."""
    owner = node.values["grouping_owner"]
    if not owner:
        return
    pair = next((each.pair for each in (node, *members) if each.name == owner), "")
    decides = node.name == owner or bool(pair and node.pair == pair)
    handler = {"@name": node.cluster_name, "type": "LOCAL" if decides else "REMOTE"}
    values = {
        "address": "grouping_address",
        "timeout": "grouping_timeout_ms",
        "group-timeout": "grouping_idle_timeout_ms",
        "reaper-period": "grouping_reaper_period_ms",
    }
    handler.update((element, node.values[key]) for element, key in values.items() if node.values[key] != "")
    core["grouping-handler"] = handler
    origins["grouping-handler"] = "broker_grouping_owner"
    origins.update((f"grouping-handler.{element}", f"broker_{key}") for element, key in values.items())


class Shaped(Protocol):
    """The part of a node that decides where its elements are."""

    @property
    def store_kind(self) -> str: ...

    @property
    def colocated(self) -> bool: ...

    @property
    def ha_role(self) -> str: ...


def policy_steps(node: Shaped) -> list[str]:
    """Path of the element of the HA policy that says how messages and backups of the node are handled."""
    steps = ["ha-policy", node.store_kind.replace("_", "-")]
    if node.colocated:
        return [*steps, "colocated"]
    return steps if steps[-1] == "primary-only" else [*steps, node.ha_role]


def _place_policy(node: Node, members: Sequence[Node], core: dict[str, object], origins: dict[str, str]) -> None:
    """What depends on more than one variable: lock managers, scale-down, and connectors of colocated nodes."""
    chosen = policy_steps(node)
    policy = _descend(core, chosen)
    roles = [[*chosen, role] for role in ("primary", "backup")] if node.colocated else [chosen]
    for steps in roles:
        inner = _descend(core, steps)
        if node.uses_lock_manager:
            inner["manager"] = _lock_manager(node)
            origins[".".join((*steps, "manager"))] = "broker_lock_manager"
    if node.colocated:
        others = [each.sockets.connector.name for each in members]
        policy["excludes"] = {"connector-ref": [*others, *node.values["backup_excludes"]]}
        origins[".".join((*chosen, "excludes"))] = "broker_backup_excludes"
    scale_down = _scale_down(node)
    if scale_down:
        steps = roles[-1]
        _descend(core, steps)["scale-down"] = scale_down
        origins[".".join((*steps, "scale-down"))] = "broker_scale_down"


def _scale_down(node: Node) -> dict[str, object]:
    """The element; empty where the node neither moves its messages nor belongs to a group."""
    moves, group = node.values["scale_down"], node.values["scale_down_group_name"]
    if not moves and not group:
        return {}
    element: dict[str, object] = {"enabled": moves}
    if group:
        element["group-name"] = group
    if node.values["scale_down_to"]:
        element["connectors"] = {"connector-ref": list(node.values["scale_down_to"])}
    if node.values["scale_down_discovered"]:
        element["discovery-group-ref"] = {"@discovery-group-name": node.cluster_name}
    if moves:
        element["commit-interval"] = node.values["scale_down_commit_interval"]
    return element


def _place_variables(node: Node, core: dict[str, object], origins: dict[str, str]) -> None:
    """Add every element that the table gives to a variable."""
    for variable in table().topology:
        for path in variable.xml:
            steps = place_of(node, path.split("/"), clustered="cluster-connections" in core)
            if steps is None or node.values[variable.key] == "":
                continue  # an empty text is the absence of a name
            if variable.votes_only and node.uses_lock_manager and variable.name not in node.given:
                continue  # the broker would warn of an element without an effect
            _descend(core, steps[:-1])[steps[-1]] = node.values[variable.key]
            origins[".".join(steps)] = variable.name


def place_of(node: Shaped, steps: list[str], *, clustered: bool) -> list[str] | None:
    """Where a node has an element of the table; None: nowhere."""
    if steps[0] == "cluster-connections":
        return steps if clustered else None
    if steps[0] != "ha-policy":
        return steps
    chosen = policy_steps(node)
    if not node.colocated or steps[2:3] == ["colocated"]:
        return steps if steps[: len(chosen)] == chosen else None
    # the elements of both roles of a pair are those of a colocated node, one level deeper
    return [*chosen, *steps[2:]] if steps[:2] == chosen[:2] else None


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
