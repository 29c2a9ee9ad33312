# SPDX-License-Identifier: Apache-2.0
"""All variables of a deployed node: those of broker.xml, of its users and of its service. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.understudy.broker.plugins.module_utils.redaction import MASK, redact, spellings
from ansible_collections.understudy.broker.plugins.module_utils.user_store import ROLES_FILE, USERS_FILE, entries
from ansible_collections.understudy.broker.plugins.plugin_utils.exporter import export_core
from ansible_collections.understudy.broker.plugins.plugin_utils.render import broker_xml
from ansible_collections.understudy.broker.plugins.plugin_utils.structured import beside_core, core_of_document
from ansible_collections.understudy.broker.plugins.plugin_utils.topology import build_topology, relevant_names
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import Unusable, Variable, table

INVENTORY_ONLY = ("broker_pair", "broker_failure_domain", "broker_port_offset", "broker_cluster_name")
"""Variables that no file of one host shows."""
HINTS = (*INVENTORY_ONLY, "broker_grouping_owner")
RENDERED = (
    *("cluster_user", "cluster_password", "security_enabled", "security_settings", "address_settings"),
    *("addresses", "diverts", "bridges", "dead_letter_address", "expiry_address"),
)
"""Inputs of the rendering, without ``broker_``."""
SECRETS = ("broker_cluster_password",)


@dataclass(frozen=True)
class Files:
    """Deployed files of an instance."""

    document: str
    users: str
    roles: str
    service: Mapping[str, object]


@dataclass(frozen=True)
class ExportedNode:
    """The variables of a node, and the document that they give."""

    variables: dict[str, object]
    document: str
    secrets: tuple[str, ...] = field(repr=False)
    unexpressed: tuple[str, ...]


def export_node(files: Files, directory: str, host: str, inventory: Mapping[str, Mapping[str, object]]) -> ExportedNode:
    """The variables of a node whose value is not the default.

    Args:
        files: Deployed on the host.
        directory: Instance directory.
        host: Inventory name of the node.
        inventory: Variables of all hosts with a broker; those of the node itself are hints only.

    Raises:
        NoConfiguration: broker.xml cannot be read.
        Unreadable: the files of users and roles cannot be read.
    """
    own = inventory.get(host, {})
    service = service_variables(files.service, directory)
    known = {name: own[name] for name in HINTS if own.get(name) is not None}
    exported = export_core(core_of_document(files.document), host, members(host, inventory), {**known, **service})
    found: dict[str, object] = {**{name: known[name] for name in INVENTORY_ONLY if name in known}, **service}
    found.update(exported.variables)
    if "broker_management_port" in service and "broker_port_offset" in known:
        found["broker_management_port"] = int(str(service["broker_management_port"])) - int(
            str(known["broker_port_offset"])
        )
    found.update(user_variables(files.users, files.roles))
    document, secrets = rendered(found, host, inventory)
    hashes = [str(user["password_hash"]) for user in _users(found)]
    hidden = (*secrets, *hashes, *(str(found[name]) for name in SECRETS if name in found))
    # no variable of this table makes interfaces, socket bindings, named paths or further servers
    beside = (f"{element}: beside core, has no variable" for element in beside_core(files.document))
    problems = (*exported.unexpressed, *beside)
    return ExportedNode(without_defaults(found), document, hidden, problems)


def without_drill(found: Mapping[str, object], user: str, queue: str) -> dict[str, object]:
    """The variables without the user, the role and the permissions that the role broker adds for the drill.

    Args:
        found: Exported variables.
        user: Name of the user of the drill, and of its role.
        queue: Queue of the drill.
    """
    added = {
        "broker_users": ("name", (user,)),
        "broker_roles": ("name", (user,)),
        "broker_security_settings": ("match", (queue, f"{queue}.kept")),
    }
    kept: dict[str, object] = {}
    for name, value in found.items():
        key, names = added.get(name, ("", ()))
        left = [entry for entry in value if entry.get(key) not in names] if key and isinstance(value, list) else value
        if left or not key:
            kept[name] = left
    return kept


def _users(found: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    users: Any = found.get("broker_users", [])
    return list(users)


def members(host: str, inventory: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Other nodes of the cluster of a host."""
    default = next(each.default for each in table().topology if each.name == "broker_cluster_name")
    cluster = {name: values.get("broker_cluster_name", default) for name, values in inventory.items()}
    return [name for name in inventory if name != host and cluster[name] == cluster.get(host)]


def service_variables(service: Mapping[str, object], directory: str) -> dict[str, object]:
    """Variables that the service definition shows; without one the instance directory only."""
    found: dict[str, object] = {"broker_instance_directory": directory}
    command = service.get("command")
    if not isinstance(command, list) or not command:
        return found
    root = str(command[0]).removesuffix("/current/bin/understudy")
    if root != command[0]:
        found["broker_root"] = root
    found["broker_user"] = str(service.get("user", ""))
    if service.get("backend"):
        found["broker_service_backend"] = service["backend"]
    if "--http" in command[:-1]:
        parts = urlsplit(f"http://{command[command.index('--http') + 1]}")
        if parts.hostname and parts.port:
            found.update(broker_management_address=parts.hostname, broker_management_port=parts.port)
    return found


def user_variables(users: str, roles: str) -> dict[str, object]:
    """``broker_users`` with hashes, and ``broker_roles``.

    Raises:
        Unreadable
    """
    found: dict[str, object] = {}
    listed = [{"name": name, "password_hash": value} for name, value in entries(users, USERS_FILE).items()]
    groups = [
        {"name": name, "users": [each.strip() for each in value.split(",") if each.strip()]}
        for name, value in entries(roles, ROLES_FILE).items()
    ]
    if listed:
        found["broker_users"] = listed
    if groups:
        found["broker_roles"] = groups
    return found


def rendered(
    found: Mapping[str, object], host: str, inventory: Mapping[str, Mapping[str, object]]
) -> tuple[str, tuple[str, ...]]:
    """The document that the variables give in this inventory, and its secrets."""
    topology = build_topology(inventory, {**inventory, host: found})
    nodes: Any = topology.as_dict()["nodes"]
    inputs = {name: found[f"broker_{name}"] for name in RENDERED if f"broker_{name}" in found}
    made = broker_xml({"core": nodes[host]["core"], **inputs, "extra": found.get("broker_config_extra", {})})
    return made.text, made.secrets


def without_defaults(found: Mapping[str, object]) -> dict[str, object]:
    """The variables whose value is not that of the default."""
    values: dict[str, object] = dict(found)
    for variable in table().roles["broker"].variables:
        if variable.name not in values:
            try:
                values[variable.name] = variable.default_for(values)
            except KeyError:  # a template over a variable that no file shows
                values[variable.name] = ""
    kept: dict[str, object] = {}
    known = {variable.name: variable for variable in table().roles["broker"].variables}
    for name, value in found.items():
        row = known.get(name)
        if row is None or row.required or value != _default(row, values):
            kept[name] = value
    return kept


def _default(variable: Variable, values: Mapping[str, object]) -> object:
    """The default in the type of the variable; None if there is none without the inventory."""
    try:
        return variable.read(variable.default_for(values))
    except (KeyError, Unusable):
        return None


def inventory_of(variables: Mapping[str, Any], host: str) -> dict[str, dict[str, object]]:
    """Variables of the hosts of the group broker, of the present host also if it is not one of them.

    Args:
        variables: Variables of the task.
        host: The present host.
    """
    names = [*variables.get("groups", {}).get("broker", [])]
    relevant = relevant_names()
    found = {name: _relevant(variables["hostvars"][name], relevant) for name in names}
    found.setdefault(host, {})
    return found


def _relevant(given: Mapping[str, object], relevant: frozenset[str]) -> dict[str, object]:
    return {name: given[name] for name in relevant if name in given}


def masked(value: Any, hidden: Sequence[str]) -> Any:
    """A value without the texts to be hidden."""
    if isinstance(value, dict):
        return {key: masked(below, hidden) for key, below in value.items()}
    if isinstance(value, list):
        return [masked(each, hidden) for each in value]
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, MASK)
    return value


@dataclass(frozen=True)
class Difference:
    """The variables in which two documents of one node differ."""

    variables: dict[str, object]
    """Variables of the second document that the first one lacks, or has with other values; secrets are masked."""
    defaults: tuple[str, ...]
    """Variables that have their default in the second document."""
    unexpressed: tuple[str, ...]
    """Elements of the second document that no variable can set, with the reason."""


def difference(before: ExportedNode, after: ExportedNode) -> Difference:
    """The variables that turn the first document into the second one."""
    hidden = sorted(spellings([*before.secrets, *after.secrets]), key=len, reverse=True)
    changed = {
        name: masked(value, hidden) for name, value in after.variables.items() if before.variables.get(name) != value
    }
    defaults = tuple(name for name in before.variables if name not in after.variables)
    unexpressed = tuple(redact(line, after.secrets) for line in after.unexpressed)
    return Difference(changed, defaults, unexpressed)
