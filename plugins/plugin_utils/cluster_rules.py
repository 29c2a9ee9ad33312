# SPDX-License-Identifier: Apache-2.0
"""Rules about what needs more than one pair: members, discovery, message groups, scale-down, colocated backups.

Each takes all nodes and yields a fault with host, variable and what to set. Pure: no Ansible, no files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible_collections.understudy.broker.plugins.plugin_utils.model import (
    BACKUP,
    PRIMARY,
    PRIMARY_ONLY,
    REPLICATION,
    SHARED_STORE,
    Fault,
    Node,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import PORT_MAX, Endpoint
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import CLUSTER, table

GENERATED = ("@name", "static-connectors", "discovery-group-ref")
"""Parts of a cluster connection that follow from the topology."""

CONNECTION = "cluster-connections/cluster-connection/"


def _clusters(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """Nodes by name of their cluster."""
    members: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        members[node.cluster_name].append(node)
    return dict(members)


def _others(nodes: Sequence[Node], node: Node) -> dict[str, Node]:
    """The other nodes of the cluster, by name."""
    return {each.name: each for each in nodes if each.cluster_name == node.cluster_name and each is not node}


def a_cluster_agrees(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Variables with scope cluster have one value."""
    for name, (first, *others) in _clusters(nodes).items():
        for node in others:
            for variable in (each for each in table().topology if each.scope == CLUSTER):
                found, expected = node.values[variable.key], first.values[variable.key]
                if found != expected:
                    problem = f"is {found!r} but {expected!r} at {first.name}; the nodes of cluster {name!r} must agree"
                    yield Fault(node.name, variable.name, problem)


def an_element_of_a_cluster_connection_is_given_once(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Name and members of a cluster connection cannot be given, nor elements that have a variable of their own."""
    own = {
        path.removeprefix(CONNECTION): variable.name
        for variable in table().topology
        for path in variable.xml
        if path.startswith(CONNECTION)
    }
    for node in nodes:
        given = node.values["cluster_connection"]
        for name in given if isinstance(given, Mapping) else ():
            if name in GENERATED:
                yield Fault(node.name, "broker_cluster_connection", f"sets {name!r}, which follows from the topology")
            elif name in own:
                yield Fault(node.name, "broker_cluster_connection", f"sets {name!r}; set {own[name]} instead")


def members_are_hosts_of_the_cluster(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Names of other members are inventory names of other hosts of the same cluster."""
    for node in nodes:
        others = _others(nodes, node)
        for key in ("cluster_members", "scale_down_to"):
            for name in _names(node, key):
                if name == node.name:
                    yield Fault(node.name, f"broker_{key}", "names this host itself; name other hosts of its cluster")
                elif name not in others:
                    known = ", ".join(sorted(others)) or "none"
                    problem = f"names {name!r}, which is no other host of cluster {node.cluster_name!r} ({known})"
                    yield Fault(node.name, f"broker_{key}", problem)
                elif key == "scale_down_to" and node.pair and others[name].pair == node.pair:
                    yield Fault(node.name, "broker_scale_down_to", f"names {name!r}, which is in the same pair")


def a_node_that_connects_to_no_member_is_alone(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """A node that connects to no member names none, and has no partner that it must reach."""
    for node in nodes:
        if node.values["cluster_connects"]:
            continue
        for key in ("cluster_members", "cluster_direct_connections_only", "cluster_discovery"):
            if node.values[key]:
                problem = "is given, but broker_cluster_connects is false; remove one of the two"
                yield Fault(node.name, f"broker_{key}", problem)
        if node.pair:
            problem = f"is false, but the node belongs to pair {node.pair!r} and has to reach the other node; remove it"
            yield Fault(node.name, "broker_cluster_connects", problem)


def members_are_listed_or_discovered(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """A group of discovery is whole, and replaces the list of members."""
    for node in nodes:
        given = node.values["cluster_discovery"]
        if not isinstance(given, Mapping):
            continue  # has a fault already
        if not given:
            if node.values["cluster_discovery_interface"]:
                problem = "is given without broker_cluster_discovery; give the group as well"
                yield Fault(node.name, "broker_cluster_discovery_interface", problem)
            continue
        kinds = [set(given) & {"address", "port"}, set(given) & {"jgroups_file", "jgroups_channel"}]
        if sorted(map(len, kinds)) != [0, 2]:
            problem = "must have either 'address' and 'port', or 'jgroups_file' and 'jgroups_channel'"
            yield Fault(node.name, "broker_cluster_discovery", problem)
        for name in ("port", "broadcast_period_ms", "refresh_timeout_ms", "initial_wait_timeout_ms"):
            text = str(given.get(name, 1))
            if not (text.isascii() and text.isdigit() and int(text) > 0) or (name == "port" and int(text) > PORT_MAX):
                yield Fault(node.name, "broker_cluster_discovery", f"has {name} {text!r}; give a whole number above 0")
        for key in ("cluster_members", "cluster_direct_connections_only"):
            if node.values[key]:
                problem = "is given beside broker_cluster_discovery; remove one of the two"
                yield Fault(node.name, f"broker_{key}", problem)


def replicated_pairs_have_groups_of_their_own(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """A backup becomes the replica of any primary with its group name, also of another pair."""
    for name, members in _clusters(nodes).items():
        first: dict[str, Node] = {}
        for node in members:
            if node.ha_policy != REPLICATION or not node.pair:
                continue
            group = str(node.values["group_name"])
            other = first.setdefault(group, node)
            if other.pair != node.pair:
                said = repr(group) if group else "empty"
                problem = (
                    f"is {said} like that of pair {other.pair!r} of cluster {name!r}, so each pair may take the backup"
                    " of the other; leave it out, or give each pair its own"
                )
                yield Fault(node.name, "broker_group_name", problem)


def message_groups_have_one_owner(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """The owner of message groups is a primary of the cluster that keeps its log."""
    for name, members in _clusters(nodes).items():
        owner = members[0].values["grouping_owner"]
        found = next((each for each in members if each.name == owner), None)
        if not owner:
            continue
        if found is None or found.ha_role != PRIMARY:
            problem = f"is {owner!r}, which is no primary of cluster {name!r}; name one"
            yield Fault(members[0].name, "broker_grouping_owner", problem)
        elif found.values["scale_down"] and not found.colocated:
            problem = "moves its messages when it stops, but the groups stay in its log; choose another owner of groups"
            yield Fault(found.name, "broker_scale_down", problem)
        elif found.colocated:
            problem = f"is {owner!r}, whose backups are hosted by nodes that only ask; name a node without colocation"
            yield Fault(found.name, "broker_grouping_owner", problem)
        elif len(members) == 1:
            yield Fault(owner, "broker_grouping_owner", "is given, but the node is alone in its cluster; remove it")


def scale_down_has_a_place_to_go(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Only a single node, or a backup that takes over, moves its messages, and only to another member."""
    for node in nodes:
        moves, group = node.values["scale_down"], node.values["scale_down_group_name"]
        others = [each for each in _others(nodes, node).values() if not node.pair or each.pair != node.pair]
        if not moves:
            for key in ("scale_down_to", "scale_down_discovered"):
                if node.values[key]:
                    yield Fault(node.name, f"broker_{key}", "is given, but broker_scale_down is false; remove it")
        elif node.coordination_id:
            problem = (
                "is true, but only the primary of a pair returns without its messages; remove it or the coordination id"
            )
            yield Fault(node.name, "broker_scale_down", problem)
        elif node.ha_policy in (SHARED_STORE, REPLICATION) and node.ha_role == PRIMARY:
            problem = "is true for the primary of a pair, whose backup has its messages; give it to the backup"
            yield Fault(node.name, "broker_scale_down", problem)
        elif not others:
            yield Fault(node.name, "broker_scale_down", "is true, but the cluster has no other member to move to")
        elif group and not any(each.values["scale_down_group_name"] == group for each in others):
            problem = f"is {group!r}, which no other member has; messages would stay"
            yield Fault(node.name, "broker_scale_down_group_name", problem)
        if node.values["scale_down_discovered"]:
            if node.values["scale_down_to"]:
                problem = "is given beside broker_scale_down_discovered; remove one of the two"
                yield Fault(node.name, "broker_scale_down_to", problem)
            if not node.values["cluster_discovery"]:
                problem = "is true without broker_cluster_discovery; give that, or broker_scale_down_to"
                yield Fault(node.name, "broker_scale_down_discovered", problem)


def colocated_nodes_can_host(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Each is a primary without a pair, and the cluster has enough places for their backups."""
    for node in nodes:
        given = sorted(name for name in node.given if name.startswith(("broker_backup_", "broker_backups_")))
        if not node.colocated:
            for name in given:
                yield Fault(node.name, name, f"is given, but broker_ha_policy is {node.ha_policy}; remove it")
            continue
        if node.ha_role == BACKUP:
            problem = f"is {BACKUP}, but with {node.ha_policy} every node is a {PRIMARY} that hosts backups of others"
            yield Fault(node.name, "broker_ha_role", problem)
        if node.pair:
            problem = f"is {node.pair!r}, but colocated nodes find the hosts of their backups themselves; remove it"
            yield Fault(node.name, "broker_pair", problem)
        if node.values["coordination_id"]:
            problem = "is given, but equal primaries host no backups of each other; remove it"
            yield Fault(node.name, "broker_coordination_id", problem)
        connectors = {each.name for each in node.sockets.connectors}
        for name in _names(node, "backup_excludes"):
            if name not in connectors:
                problem = f"names {name!r}, which is not in broker_connectors (other members are always excluded)"
                yield Fault(node.name, "broker_backup_excludes", problem)
    for name, members in _clusters(nodes).items():
        yield from _places_suffice(name, [node for node in members if node.colocated])


def _places_suffice(cluster: str, members: Sequence[Node]) -> Iterator[Fault]:
    requests = [node for node in members if node.values["backup_request"]]
    for node in requests:
        places = sum(_number(each, "backups_max") for each in members if each is not node)
        if not places:
            problem = f"is true, but no other node of cluster {cluster!r} hosts backups; set broker_backups_max there"
            yield Fault(node.name, "broker_backup_request", problem)
    places = sum(_number(each, "backups_max") for each in members)
    # an odd number of nodes with one place each: two host each other, and the last one has no place
    odd = len(requests) > 2 and len(requests) % 2 == 1 and all(_number(each, "backups_max") == 1 for each in members)
    if len(requests) > places:
        problem = f"leaves {places} places for {len(requests)} backups in cluster {cluster!r}; give a larger number"
        yield Fault(members[0].name, "broker_backups_max", problem)
    elif odd and len(members) == len(requests):
        problem = f"is 1 at {len(members)} nodes: two may host each other, and the last one finds no place; give 2"
        yield Fault(members[0].name, "broker_backups_max", problem)


def stores_of_colocated_nodes_are_everywhere(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Every host reaches the shared stores of all members, each at a path of its own, and by the same owner."""
    for members in _clusters(nodes).values():
        shared = [node for node in members if node.colocated and node.store_kind == SHARED_STORE]
        paths: dict[str, Node] = {}
        for node in shared:
            if "broker_store_directory" not in node.given:
                problem = "is missing; name a directory that every member mounts at this path, one for each node"
                yield Fault(node.name, "broker_store_directory", problem)
            first = paths.setdefault(node.store_directory, node)
            if first is not node:
                problem = f"is {node.store_directory} like that of {first.name}; each node has a store of its own"
                yield Fault(node.name, "broker_store_directory", problem)
            for name in ("uid", "gid"):
                if node.values[name] != shared[0].values[name]:
                    problem = (
                        f"is {node.values[name]!r} but {shared[0].values[name]!r} at {shared[0].name}; they open each "
                        "other's stores and must agree"
                    )
                    yield Fault(node.name, f"broker_{name}", problem)
        replicated = [node for node in members if node.colocated and node.store_kind == REPLICATION]
        for node in replicated[1:]:
            for key in ("group_name", "lock_manager", "lock_manager_properties"):
                if node.values[key] != replicated[0].values[key]:
                    problem = f"differs from {replicated[0].name}; nodes that host each other's backups must agree"
                    yield Fault(node.name, f"broker_{key}", problem)


def hosted_backups_have_free_ports(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """The shifted ports of hosted backups are ports, and no other socket of the machine."""
    taken: dict[tuple[str, str, int], str] = {}
    for node in nodes:
        for address, port, _shifts in _listening(node):
            taken[(node.machine, address, port)] = node.name
    for node in nodes:
        for place, offset in enumerate(hosted_offsets(node), 1):
            for address, port, shifts in _listening(node):
                if not shifts:
                    continue
                shifted = port + offset
                holder = taken.setdefault((node.machine, address, shifted), f"hosted backup {place} of {node.name}")
                if shifted > PORT_MAX:
                    problem = f"gives hosted backup {place} the port {shifted}; the highest is {PORT_MAX}"
                    yield Fault(node.name, "broker_backup_port_offset", problem)
                elif holder != f"hosted backup {place} of {node.name}":
                    problem = f"gives hosted backup {place} the socket {address}:{shifted} of {holder}; give another"
                    yield Fault(node.name, "broker_backup_port_offset", problem)


def hosted_offsets(node: Node) -> list[int]:
    """What is added to the ports of each backup that a colocated node may host."""
    if not node.colocated or node.values["scale_down"]:
        return []
    return [place * _number(node, "backup_port_offset") for place in range(1, _number(node, "backups_max") + 1)]


def keeps_its_port(acceptor: Endpoint) -> bool:
    """Whether all servers of a process share the port of an acceptor."""
    return _is_true(acceptor.parameters.get("httpUpgradeEnabled"))


def _listening(node: Node) -> Iterator[tuple[str, int, bool]]:
    """Address and port of each socket, and whether a hosted backup has it at another port."""
    for acceptor in node.sockets.acceptors:
        yield acceptor.address, acceptor.port, not keeps_its_port(acceptor)
    yield node.sockets.management_address, node.sockets.management_port, True


def a_shared_port_has_upgrades_on_both_sides(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Acceptor and connector both begin with HTTP upgrades, or none does. The broker names the server itself."""
    for node in nodes:
        acceptor, connector = node.sockets.core.parameters, node.sockets.connector.parameters
        upgrades = _is_true(acceptor.get("httpUpgradeEnabled"))
        if node.colocated and upgrades != _is_true(connector.get("httpUpgradeEnabled")):
            problem = "must have httpUpgradeEnabled if, and only if, the acceptor core has it"
            yield Fault(node.name, "broker_connector_parameters", problem)


def a_node_alone_has_no_cluster(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Without other members there is no cluster connection, so nothing may be set for one."""
    for node in nodes:
        if _others(nodes, node) or node.ha_policy != PRIMARY_ONLY:
            continue
        for name in sorted(node.given):
            if name.startswith("broker_cluster_") and name not in ("broker_cluster_name", "broker_cluster_connection"):
                yield Fault(node.name, name, "is given, but the cluster has no other node; remove it")


def _names(node: Node, key: str) -> Sequence[str]:
    found = node.values[key]
    return found if isinstance(found, list) else ()


def _number(node: Node, key: str) -> int:
    found = node.values[key]
    return found if isinstance(found, int) else 0


def _is_true(value: object) -> bool:
    return str(value).lower() == "true"


RULES: tuple[Callable[[tuple[Node, ...]], Iterator[Fault]], ...] = (
    a_cluster_agrees,
    an_element_of_a_cluster_connection_is_given_once,
    members_are_hosts_of_the_cluster,
    members_are_listed_or_discovered,
    a_node_that_connects_to_no_member_is_alone,
    replicated_pairs_have_groups_of_their_own,
    message_groups_have_one_owner,
    scale_down_has_a_place_to_go,
    colocated_nodes_can_host,
    stores_of_colocated_nodes_are_everywhere,
    hosted_backups_have_free_ports,
    a_shared_port_has_upgrades_on_both_sides,
    a_node_alone_has_no_cluster,
)
