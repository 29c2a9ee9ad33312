# SPDX-License-Identifier: Apache-2.0
"""Variables of the inventory from a deployed broker.xml: the inverse of ``topology``, ``elements`` and ``render``.

What has a variable becomes one; all other elements become ``broker_config_extra``. So a document that is exported and
rendered again is the same document; ``Exported.unexpressed`` names what no variable can say. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote, urlsplit

from ansible_collections.understudy.broker.plugins.plugin_utils.elements import (
    DIRECTORIES,
    DISCOVERY,
    LISTENING,
    SENDING,
    place_of,
    policy_steps,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.render import DEFAULTS, LEFTOVER_ADDRESSES
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import (
    AMQP091,
    CORE,
    DEFAULT_PORT,
    WILDCARDS,
    amqp091_parameters,
    automatic_amqp091_port,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.structured import as_mapping, at, many, take
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import Unusable, table


@dataclass(frozen=True)
class Shape:
    """Policy and role that a document shows."""

    store_kind: str = "primary_only"
    colocated: bool = False
    ha_role: str = "primary"

    @property
    def ha_policy(self) -> str:
        return f"colocated_{self.store_kind}" if self.colocated else self.store_kind


@dataclass
class Exported:
    """What was found."""

    variables: dict[str, object] = field(default_factory=dict)
    unexpressed: list[str] = field(default_factory=list)
    """Elements that no variable can set, with the reason."""


def export_core(core: Mapping[str, object], host: str, members: Sequence[str], known: Mapping[str, object]) -> Exported:
    """The variables of a node.

    Args:
        core: Elements of ``core``, as ``structured.core_of_document`` returns them.
        host: Inventory name of the node.
        members: Inventory names of the other nodes of its cluster.
        known: What no document shows, from the inventory: ``broker_port_offset``, ``broker_cluster_name``,
            ``broker_grouping_owner`` and ``broker_instance_directory`` by name.
    """
    return _Exporter(core, host, sorted(members), known).run()


class _Exporter:
    """The elements that are left, and the variables so far."""

    def __init__(
        self, core: Mapping[str, object], host: str, members: Sequence[str], known: Mapping[str, object]
    ) -> None:
        self._core = cast("dict[str, object]", _copy(core))
        self._host = host
        self._members = members
        self._known = known
        self._found = Exported()
        self._variables = self._found.variables

    def run(self) -> Exported:
        shape = self._policy()
        self._names()
        self._sockets()
        clustered = self._cluster()
        self._grouping()
        self._steps_of_policy(shape)
        self._table(shape, clustered)
        self._security()
        self._content()
        rest = as_mapping(self._core.pop("ha-policy", None))
        if _leaves(rest):
            self._found.unexpressed.append(f"ha-policy: {', '.join(_leaves(rest))}: has no variable")
        for name, text in DEFAULTS.items():
            # a default is the last element; in another place it was an input
            if list(self._core)[-1:] == [name] and self._core[name] == text:
                del self._core[name]
        if self._core:
            self._variables["broker_config_extra"] = self._core
        return self._found

    def _differs(self, path: str, found: object, rendered: object) -> None:
        self._found.unexpressed.append(f"{path}: is {found!r}; the variables give {rendered!r}")

    # --- names and directories ---

    def _names(self) -> None:
        name = take(self._core, ["name"])
        if name != self._host:
            self._differs("name", name, self._host)
        journal = str(at(self._core, ["journal-directory"]) or "")
        store = journal.removesuffix("/journal")
        self._variables["broker_store_directory"] = store
        for element, directory in DIRECTORIES.items():
            value = take(self._core, [element])
            if value is not None and value != f"{store}/{directory}":
                self._differs(element, value, f"{store}/{directory}")

    # --- sockets ---

    def _sockets(self) -> None:
        offset = int(str(self._known.get("broker_port_offset") or 0))
        acceptors = self._endpoints("acceptors", "acceptor")
        core = acceptors.pop(CORE, None)
        if core is None:
            self._found.unexpressed.append(f"acceptors: there is no acceptor {CORE!r}, which every node gets")
            return
        bind, port, parameters = core
        self._variables.update(broker_bind_address=bind, broker_port=port - offset)
        listed: dict[str, dict[str, object]] = {CORE: _socket(parameters)} if parameters else {}
        interfaces: dict[str, dict[str, object]] = {}
        amqp091_port = self._amqp091(acceptors, (bind, parameters), offset)
        for name, (address, number, options) in acceptors.items():
            listed[name] = {"port": number - offset, **_socket(options)}
            if address != bind:
                # the document has no name for it
                interfaces[address] = {"bind_address": address}
                listed[name]["interface"] = address
                if address in WILDCARDS:
                    interfaces[address]["advertise_address"] = self._advertised()
        if interfaces:
            self._variables["broker_interfaces"] = interfaces
        if listed:
            self._variables["broker_sockets"] = listed
        if amqp091_port != automatic_amqp091_port(port - offset, listed):
            # a broker that is taken over opens no port that it did not have
            self._variables["broker_amqp091_port"] = amqp091_port
        self._connectors(port)

    def _amqp091(
        self,
        acceptors: dict[str, tuple[str, int, dict[str, object]]],
        core: tuple[str, Mapping[str, object]],
        offset: int,
    ) -> int:
        """Take the acceptor for AMQP 0-9-1 out of the others, if it is as its port would make it. Returns its port
        without the offset; 0: there is none.
        """
        address, number, options = acceptors.get(AMQP091, ("", 0, {}))
        others = {name: value for name, value in options.items() if name != "virtualHosts"}
        if address == core[0] and number > offset and others == amqp091_parameters(core[1], ()):
            del acceptors[AMQP091]
            if "virtualHosts" in options:
                self._variables["broker_amqp091_virtual_hosts"] = str(options["virtualHosts"]).split(",")
            return number - offset
        return 0

    def _advertised(self) -> str:
        """Address of the node's own connector; its bind address without one."""
        for entry in many(at(self._core, ["connectors", "connector"])):
            parts = as_mapping(entry)
            parsed = tcp_endpoint(str(parts.get("#text", "")))
            if parts.get("@name") == self._host and parsed is not None:
                return parsed[0]
        return str(self._variables["broker_bind_address"])

    def _connectors(self, port: int) -> None:
        connectors = self._endpoints("connectors", "connector")
        address, own_port, parameters = connectors.pop(self._host, ("", port, {}))
        self._variables["broker_advertise_address"] = address
        if not address or own_port != port:
            self._differs(f"connectors: {self._host}", f"{address}:{own_port}", f"port {port}")
        if parameters:
            self._variables["broker_connector_parameters"] = parameters
        others = [
            {
                "name": name,
                "address": address,
                **({"port": number} if number != DEFAULT_PORT else {}),
                **({"parameters": options} if options else {}),
            }
            for name, (address, number, options) in connectors.items()
            if name not in self._members
        ]
        if others:
            self._variables["broker_connectors"] = others

    def _endpoints(self, group: str, name: str) -> dict[str, tuple[str, int, dict[str, object]]]:
        """Address, port and parameters of each socket; those that are no TCP URL are left as they are."""
        found: dict[str, tuple[str, int, dict[str, object]]] = {}

        def read(entry: object) -> bool:
            parts = as_mapping(entry)
            parsed = tcp_endpoint(str(parts.get("#text", "")))
            if set(parts) != {"@name", "#text"} or parsed is None:
                return False
            found[str(parts["@name"])] = parsed
            return True

        self._consume([group, name], read)
        return found

    def _consume(self, steps: Sequence[str], read: Callable[[object], bool]) -> None:
        """Pass each entry of a group to ``read``; those that it cannot express stay for ``broker_config_extra``."""
        value = take(self._core, steps)
        left = [] if value is None else [entry for entry in many(value) if not read(entry)]
        if not left:
            if self._core.get(steps[0], {}) is None:
                del self._core[steps[0]]
            return
        group = self._core.setdefault(steps[0], {})
        if isinstance(group, dict):
            group[steps[1]] = left

    # --- cluster ---

    def _cluster(self) -> bool:
        """Whether there is a cluster connection that the topology gives; a node without members gets none."""
        connection = at(self._core, ["cluster-connections", "cluster-connection"])
        if not self._members or not isinstance(connection, Mapping) or "@name" not in connection:
            return False
        cluster = take(self._core, ["cluster-connections", "cluster-connection", "@name"])
        self._variables["broker_cluster_name"] = cluster
        given = as_mapping(at(self._core, ["cluster-connections", "cluster-connection"]))
        if given.get("connector-ref") == self._host:
            take(self._core, ["cluster-connections", "cluster-connection", "connector-ref"])
        static = as_mapping(take(self._core, ["cluster-connections", "cluster-connection", "static-connectors"]))
        if static:
            listed = many(static.get("connector-ref"))
            if listed != list(self._members):
                self._variables["broker_cluster_members"] = listed
            if static.get("@allow-direct-connections-only") is not None:
                self._variables["broker_cluster_direct_connections_only"] = (
                    static["@allow-direct-connections-only"] == "true"
                )
        elif take(self._core, ["cluster-connections", "cluster-connection", "discovery-group-ref"]) is not None:
            self._discovery(str(cluster))
        else:
            self._variables["broker_cluster_connects"] = False
        return True

    def _discovery(self, cluster: str) -> None:
        found: dict[str, object] = {}
        for group, options in (("broadcast-group", SENDING), ("discovery-group", LISTENING)):
            parts = as_mapping(at(self._core, [f"{group}s", group]))
            if parts.pop("@name", None) != cluster:
                self._found.unexpressed.append(f"{group}s: none of them has the name of the cluster, {cluster!r}")
                continue
            take(self._core, [f"{group}s", group])
            parts.pop("connector-ref", None)
            interface = parts.pop("local-bind-address", None)
            if interface is not None:
                self._variables["broker_cluster_discovery_interface"] = interface
            for option, element in {**DISCOVERY, **options}.items():
                if element in parts:
                    value = str(parts.pop(element))
                    found[option] = int(value) if option.endswith(("_ms", "port")) else value
            if parts:
                self._found.unexpressed.append(f"{group}s: {', '.join(parts)}: has no variable")
        if found:
            self._variables["broker_cluster_discovery"] = found

    def _grouping(self) -> None:
        handler = as_mapping(self._core.get("grouping-handler"))
        if not handler or not self._members:
            return
        del self._core["grouping-handler"]
        owner = str(self._known.get("broker_grouping_owner") or "")
        if handler.pop("type", "") == "LOCAL" and not owner:
            owner = self._host
        if not owner:
            self._found.unexpressed.append(
                "grouping-handler: is REMOTE; set broker_grouping_owner to the node with LOCAL"
            )
        else:
            self._variables["broker_grouping_owner"] = owner
        handler.pop("@name", None)
        for element, name in (
            ("address", "grouping_address"),
            ("timeout", "grouping_timeout_ms"),
            ("group-timeout", "grouping_idle_timeout_ms"),
            ("reaper-period", "grouping_reaper_period_ms"),
        ):
            value = handler.pop(element, None)
            if value is not None:
                self._read_into(f"broker_{name}", value, f"grouping-handler.{element}")
        if handler:
            self._found.unexpressed.append(f"grouping-handler: {', '.join(handler)}: has no variable")

    # --- high availability ---

    def _policy(self) -> Shape:
        policy = as_mapping(at(self._core, ["ha-policy"]))
        kind = next((each for each in ("shared-store", "replication") if each in policy), "primary-only")
        roles = as_mapping(policy.get(kind))
        shape = Shape(
            kind.replace("-", "_"),
            "colocated" in roles,
            "backup" if "backup" in roles and kind in policy else "primary",
        )
        self._variables["broker_ha_policy"] = shape.ha_policy
        if kind != "primary-only" and not shape.colocated:
            self._variables["broker_ha_role"] = shape.ha_role
        return shape

    def _steps_of_policy(self, shape: Shape) -> None:
        chosen = policy_steps(shape)
        roles = [[*chosen, role] for role in ("primary", "backup")] if shape.colocated else [chosen]
        managers = [take(self._core, [*steps, "manager"]) for steps in roles]
        if shape.store_kind == "replication":
            self._manager(as_mapping(managers[0]))
        if shape.colocated:
            excluded = as_mapping(take(self._core, [*chosen, "excludes"]))
            names = [name for name in many(excluded.get("connector-ref")) if name and name not in self._members]
            if names:
                self._variables["broker_backup_excludes"] = names
        scale_down = take(self._core, [*roles[-1], "scale-down"])
        if scale_down is not None:
            self._scale_down(as_mapping(scale_down))

    def _manager(self, manager: dict[str, object]) -> None:
        if not manager:
            self._variables["broker_lock_manager"] = "votes"
            return
        self._variables["broker_lock_manager"] = manager.get("class-name")
        properties = {
            str(as_mapping(each).get("@key")): as_mapping(each).get("@value")
            for each in many(as_mapping(manager.get("properties")).get("property"))
            if each is not None
        }
        if properties.get("secret-file") == f"{self._known.get('broker_instance_directory')}/etc/witness-secret":
            del properties["secret-file"]
        if properties:
            self._variables["broker_lock_manager_properties"] = properties

    def _scale_down(self, element: dict[str, object]) -> None:
        moves = element.get("enabled", "true") == "true"
        self._variables["broker_scale_down"] = moves
        if element.get("group-name"):
            self._variables["broker_scale_down_group_name"] = element["group-name"]
        connectors = as_mapping(element.get("connectors")).get("connector-ref")
        if connectors is not None:
            self._variables["broker_scale_down_to"] = many(connectors)
        if "discovery-group-ref" in element:
            self._variables["broker_scale_down_discovered"] = True
        if element.get("commit-interval") is not None:
            self._read_into(
                "broker_scale_down_commit_interval", element["commit-interval"], "scale-down.commit-interval"
            )

    # --- what the table of variables gives an element ---

    def _table(self, shape: Shape, clustered: bool) -> None:
        for variable in table().topology:
            places = [place_of(shape, path.split("/"), clustered=clustered) for path in variable.xml]
            values = [
                (steps, value)
                for steps in places
                if steps is not None and (value := take(self._core, steps)) is not None
            ]
            for steps, value in values[:1]:
                self._read_into(variable.name, value, "/".join(steps))
            for steps, value in values[1:]:
                if value != values[0][1]:
                    self._differs("/".join(steps), value, values[0][1])
        left = as_mapping(take(self._core, ["cluster-connections", "cluster-connection"])) if clustered else {}
        if left:
            self._variables["broker_cluster_connection"] = left

    def _read_into(self, name: str, value: object, path: str) -> None:
        """A variable from the text of an element."""
        variable = next(each for each in table().topology if each.name == name)
        try:
            self._variables[name] = variable.read(value)
        except Unusable as problem:
            self._found.unexpressed.append(f"{path}: {name} {problem}")

    # --- security and content ---

    def _security(self) -> None:
        enabled = self._core.pop("security-enabled", None)
        if enabled is not None:
            self._variables["broker_security_enabled"] = enabled == "true"
        for element in ("cluster-user", "cluster-password"):
            value = self._core.pop(element, None)
            if value is not None:
                self._variables[f"broker_{element.replace('-', '_')}"] = value
        self._listed("broker_security_settings", ["security-settings", "security-setting"], security_setting)

    def _content(self) -> None:
        self._listed("broker_address_settings", ["address-settings", "address-setting"], address_setting)
        self._listed("broker_addresses", ["addresses", "address"], address)
        self._listed("broker_diverts", ["diverts", "divert"], divert)
        self._listed("broker_bridges", ["bridges", "bridge"], bridge)
        self._leftover_addresses()

    def _leftover_addresses(self) -> None:
        """Variables of the addresses for messages that no consumer takes. The elements that the rendering makes for
        them are the last ones of their lists; in another place they were inputs.
        """
        match = at(self._core, ["wildcard-addresses", "any-words"]) or "#"
        settings = cast("list[dict[str, object]]", self._variables.pop("broker_address_settings", []))
        addresses = cast("list[dict[str, object]]", self._variables.pop("broker_addresses", []))
        for key, name in reversed(LEFTOVER_ADDRESSES.items()):
            self._variables[f"broker_{key}"] = ""
            entry = next((each for each in settings if each["match"] == match), None)
            elements = cast("dict[str, object]", entry["settings"]) if entry is not None else {}
            value = elements.get(name)
            if not value or not isinstance(value, str):
                continue
            self._variables[f"broker_{key}"] = value
            if list(elements)[-1] != name:
                continue
            if addresses[-1:] == [{"name": value, "anycast": [{"name": value}]}]:
                addresses.pop()
            elif all(each["name"] != value for each in addresses):
                continue
            del elements[name]
            if not elements and settings[-1] is entry:
                settings.pop()
        if settings:
            self._variables["broker_address_settings"] = settings
        if addresses:
            self._variables["broker_addresses"] = addresses

    def _listed(
        self, variable: str, steps: Sequence[str], read: Callable[[dict[str, object]], dict[str, object] | None]
    ) -> None:
        found: list[dict[str, object]] = []

        def consume(entry: object) -> bool:
            value = read(as_mapping(entry))
            if value is not None:
                found.append(value)
            return value is not None

        self._consume(steps, consume)
        if found:
            self._variables[variable] = found


def _socket(parameters: Mapping[str, object]) -> dict[str, object]:
    """Protocols and other parameters of an entry of ``broker_sockets``; protocols stay where they are not first."""
    found: dict[str, object] = {}
    left = dict(parameters)
    if list(left)[:1] == ["protocols"]:
        found["protocols"] = str(left.pop("protocols")).split(",")
    if left:
        found["parameters"] = left
    return found


def _copy(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _copy(below) for key, below in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value


def _leaves(value: Mapping[str, object], path: str = "") -> list[str]:
    """Paths of the texts below a mapping; elements without content are none."""
    found: list[str] = []
    for name, below in value.items():
        if isinstance(below, Mapping):
            found += _leaves(below, f"{path}{name}/")
        elif below is not None:
            found.append(f"{path}{name}")
    return found


def tcp_endpoint(url: str) -> tuple[str, int, dict[str, object]] | None:
    """Address, port and parameters of a ``tcp://`` URL as broker.xml has it; None if it is another one."""
    base, mark, query = url.partition("?")
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "tcp" or not parts.hostname or port is None or parts.path:
        return None
    parameters: dict[str, object] = {}
    for pair in query.replace("&", ";").split(";") if mark else ():
        name, separator, value = pair.partition("=")
        if not separator or unquote(name) in parameters:
            return None
        parameters[unquote(name)] = unquote(value)
    address = base.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    return address, port, parameters


# --- entries; None for one with something that its variable cannot say ---------------------------


def security_setting(entry: dict[str, object]) -> dict[str, object] | None:
    """An entry of ``broker_security_settings``."""
    match, permissions = entry.pop("@match", None), entry.pop("permission", None)
    granted: dict[str, object] = {}
    for each in [] if permissions is None else many(permissions):
        parts = as_mapping(each)
        kind, roles = parts.pop("@type", None), parts.pop("@roles", None)
        if parts or not isinstance(kind, str) or not isinstance(roles, str) or kind in granted:
            return None
        granted[kind] = roles.split(",") if roles else []
    return None if entry or match is None else {"match": match, "permissions": granted}


def address_setting(entry: dict[str, object]) -> dict[str, object] | None:
    """An entry of ``broker_address_settings``."""
    match = entry.pop("@match", None)
    return (
        None
        if match is None or any(name.startswith(("@", "#")) for name in entry)
        else {"match": match, "settings": entry}
    )


def address(entry: dict[str, object]) -> dict[str, object] | None:
    """An entry of ``broker_addresses``."""
    found: dict[str, object] = {"name": entry.pop("@name", None)}
    for routing in ("anycast", "multicast"):
        if routing not in entry:
            continue
        group = as_mapping(entry.pop(routing))
        queues = [] if "queue" not in group else [queue(as_mapping(each)) for each in many(group.pop("queue"))]
        if group or None in queues:
            return None
        found[routing] = queues
    return None if entry or found["name"] is None else found


def queue(entry: dict[str, object]) -> dict[str, object] | None:
    """A queue of an address."""
    selector = as_mapping(entry.pop("filter", None))
    text, durable = selector.pop("@string", None), entry.pop("durable", None)
    if selector or any(not name.startswith("@") for name in entry):
        return None
    found: dict[str, object] = {name[1:].replace("-", "_"): value for name, value in entry.items()}
    if text is not None:
        found["filter"] = text
    if durable is not None:
        found["durable"] = durable
    return found if "name" in found else None


def divert(entry: dict[str, object]) -> dict[str, object] | None:
    """An entry of ``broker_diverts``."""
    return _named(entry)


def _named(entry: dict[str, object]) -> dict[str, object] | None:
    name, selector = entry.pop("@name", None), as_mapping(entry.pop("filter", None))
    text = selector.pop("@string", None)
    if name is None or selector or any(each.startswith(("@", "#")) for each in entry):
        return None
    return {"name": name, **entry, **({"filter": text} if text is not None else {})}


def bridge(entry: dict[str, object]) -> dict[str, object] | None:
    """An entry of ``broker_bridges``."""
    group = as_mapping(entry.pop("discovery-group-ref", None)).get("@discovery-group-name")
    connectors = as_mapping(entry.pop("static-connectors", None)).get("connector-ref")
    found = _named(entry)
    if found is None or bool(group) == bool(connectors):
        return None
    names: dict[str, object] = {"connectors": many(connectors)} if connectors else {"discovery_group": group}
    return {name.replace("-", "_"): value for name, value in found.items()} | names
