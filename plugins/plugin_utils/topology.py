"""Topology of a cluster, computed from inventory variables: pairs, connections between nodes, and errors.

Reads nothing but the variables it is given, host by host. It never sees facts, the hosts of the current play or a
``--limit``, so every run over an inventory computes the same topology, however few hosts that run touches. Pure: no
Ansible, no files, no network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from ansible_collections.understudy.broker.plugins.plugin_utils import cluster_rules, firewall, quorum_rules
from ansible_collections.understudy.broker.plugins.plugin_utils.model import (
    BACKUP,
    PRIMARY,
    PRIMARY_ONLY,
    REPLICATION,
    SHARED_STORE,
    VOTES,
    Fault,
    Node,
    Pair,
    Topology,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import WILDCARDS, open_sockets
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import PAIR, Unusable, table

MACHINE_VARIABLES = ("ansible_host", "ansible_connection")


def relevant_names() -> frozenset[str]:
    """Every inventory variable that a topology is made of, or that it refuses."""
    names = [variable.name for variable in table().topology] + [refusal[0] for refusal in table().refusals()]
    return frozenset((*names, *MACHINE_VARIABLES))


def build_topology(
    hosts: Iterable[str], variables: Mapping[str, Mapping[str, object]], witnesses: Iterable[str] = ()
) -> Topology:
    """The topology of ``hosts``, with every fault found rather than only the first.

    Args:
        hosts: inventory names of all broker hosts.
        variables: inventory variables of each host; what ``relevant_names`` does not name is left unread.
        witnesses: inventory names of the hosts of witnesses.
    """
    faults: list[Fault] = []
    nodes = tuple(_read_node(host, variables[host], faults) for host in sorted(set(hosts)))
    for rule in (*RULES, *cluster_rules.RULES, *firewall.RULES):
        faults.extend(rule(nodes))
    places = {host: _machine(host, variables[host]) for host in sorted(set(witnesses))}
    faults.extend(quorum_rules.find_faults(nodes, places, variables))
    return Topology(nodes=nodes, pairs=_pairs(nodes), faults=tuple(dict.fromkeys(faults)))


def _read_node(host: str, variables: Mapping[str, object], faults: list[Fault]) -> Node:
    values: dict[str, object] = {}
    by_name: dict[str, object] = {}
    for variable in table().topology:
        given = variables.get(variable.name)
        value = variable.default_for(by_name) if given is None else given
        try:
            value = variable.read(value)
        except Unusable as problem:
            faults.append(Fault(host, variable.name, str(problem)))
            value = _usable_default(variable.default_for(by_name), variable.read)
        values[variable.key] = by_name[variable.name] = value
    faults.extend(Fault(host, name, reason) for name, reason in table().refusals() if variables.get(name) is not None)
    sockets = open_sockets(host, values)
    faults.extend(Fault(host, f"broker_{name}", reason) for name, reason in sockets.faults)
    return Node(
        name=host,
        machine=_machine(host, variables),
        values=values,
        given=frozenset(name for name in by_name if variables.get(name) is not None),
        sockets=sockets,
    )


def _usable_default(default: object, read: Callable[[object], object]) -> object:
    """What stands in for an unusable value, so that the remaining rules can be judged."""
    try:
        return read(default)
    except Unusable:
        return default


def _machine(host: str, variables: Mapping[str, object]) -> str:
    if variables.get("ansible_connection") == "local":
        return "the controller"
    return str(variables.get("ansible_host") or host)


def _pairs(nodes: tuple[Node, ...]) -> tuple[Pair, ...]:
    pairs = []
    for name, members in _by_pair(nodes).items():
        ordered = sorted(members, key=lambda node: node.ha_role != PRIMARY)
        first = ordered[0].name if ordered[0].ha_role == PRIMARY else ""
        urls = ",".join(node.client_url for node in ordered)
        pairs.append(
            Pair(
                name=name,
                primary=first,
                backups=tuple(node.name for node in ordered if node.name != first),
                client_url=f"({urls})?ha=true&reconnectAttempts=-1",
            )
        )
    return tuple(pairs)


def _by_pair(nodes: tuple[Node, ...]) -> dict[str, list[Node]]:
    members: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.pair:
            members[node.pair].append(node)
    return dict(sorted(members.items()))


def addresses_are_usable(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Others must be able to connect to what a node advertises."""
    for node in nodes:
        address = node.sockets.connector.address
        if not address:
            yield Fault(
                node.name, "broker_advertise_address", "is missing; give the address that clients and peers use"
            )
        elif address in WILDCARDS:
            yield Fault(
                node.name,
                "broker_advertise_address",
                f"is the wildcard {address}; no client can connect to that, give one address "
                "(broker_bind_address may be a wildcard)",
            )
        if not node.cluster_name:
            yield Fault(node.name, "broker_cluster_name", "is empty; give the name of the cluster")


def connectors_have_names_of_their_own(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """A further connector must not be named like a node of the cluster, whose connector has that name."""
    for node in nodes:
        members = {other.name for other in nodes if other.cluster_name == node.cluster_name and other is not node}
        for endpoint in node.sockets.connectors:
            if endpoint.name in members:
                yield Fault(
                    node.name,
                    "broker_connectors",
                    f"names {endpoint.name!r}, which is the connector of that host; give another name",
                )


def a_primary_alone_has_no_partner(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """``primary_only`` means no partner, so nothing may suggest one."""
    for node in nodes:
        if node.ha_policy != PRIMARY_ONLY:
            continue
        if node.ha_role == BACKUP:
            yield Fault(
                node.name,
                "broker_ha_policy",
                f"is {PRIMARY_ONLY} but broker_ha_role is {BACKUP}; a backup needs a policy with pairs, such as "
                f"{SHARED_STORE}",
            )
        elif node.pair:
            yield Fault(
                node.name,
                "broker_ha_policy",
                f"is {PRIMARY_ONLY} but broker_pair is {node.pair!r}; set {SHARED_STORE} or {REPLICATION}, or leave "
                "broker_pair out",
            )


def every_pair_is_complete(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """One primary and one or more backups, or only primaries that share a coordination id; the same value of every
    variable with scope pair."""
    for node in nodes:
        if node.ha_policy != PRIMARY_ONLY and not node.pair and not node.colocated:
            yield Fault(node.name, "broker_pair", f"is missing; {node.ha_policy} nodes belong to a named pair")
    for name, members in _by_pair(nodes).items():
        primaries = [node for node in members if node.ha_role == PRIMARY]
        equal = bool(members[0].coordination_id)
        for backup in (node for node in members if equal and node.ha_role == BACKUP):
            problem = f"is {BACKUP}, but pair {name!r} has a broker_coordination_id; make all of its nodes {PRIMARY}"
            yield Fault(backup.name, "broker_ha_role", problem)
        for extra in () if equal else primaries[1:]:
            yield Fault(
                extra.name,
                "broker_ha_role",
                f"is {PRIMARY}, but {primaries[0].name} already is the primary of pair {name!r}; make one a {BACKUP}",
            )
        if not primaries and not equal:
            yield Fault(
                members[0].name, "broker_ha_role", f"is {BACKUP} like all of pair {name!r}; make one node the {PRIMARY}"
            )
        if len(primaries) == len(members) and (len(members) == 1 or not equal):
            yield Fault(members[0].name, "broker_pair", f"{name!r} has no backup; give it a node with role {BACKUP}")
        for node in members[1:]:
            for variable in table().topology:
                if variable.scope == PAIR:
                    yield from _same(members[0], node, variable.name, name)


def a_shared_store_is_shared(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """All nodes name the same directory and the same owner, and no other pair of the same machine uses it.

    Owners count as numbers: NFS and cluster file systems compare uid and gid, not names.
    """
    for name, members in _by_pair(nodes).items():
        sharing = [node for node in members if node.ha_policy == SHARED_STORE]
        for node in sharing:
            if "broker_store_directory" not in node.given:
                yield Fault(
                    node.name,
                    "broker_store_directory",
                    f"is missing; name the directory that all nodes of pair {name!r} share",
                )
        for node in sharing[1:]:
            yield from _same(sharing[0], node, "broker_store_directory", name)
            yield from _same(sharing[0], node, "broker_uid", name)
            yield from _same(sharing[0], node, "broker_gid", name)
    owners: dict[tuple[str, str], Node] = {}
    for node in nodes:
        first = owners.setdefault((node.machine, node.store_directory), node)
        together = first.pair == node.pair and node.ha_policy == first.ha_policy == SHARED_STORE
        if first is not node and not (node.pair and together):
            yield Fault(
                node.name,
                "broker_store_directory",
                f"is {node.store_directory}, which {first.name} uses on the same machine; "
                "one store serves one pair only",
            )


REQUIRED_PROPERTIES = {
    "witness": ("addresses", "members"),
    "zookeeper": ("connect-string",),
    "file": ("locks-folder",),
}
"""One of them is given."""


def a_lock_manager_has_its_address(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """The property without which no service can be asked is given, and none where no lock manager is used."""
    for node in nodes:
        properties = node.values["lock_manager_properties"]
        if not isinstance(properties, Mapping):
            continue  # has a fault already
        used = node.uses_lock_manager
        if properties and not used:
            unused = f"is given, but {VOTES if node.store_kind == REPLICATION else node.ha_policy} uses no lock manager"
            yield Fault(node.name, "broker_lock_manager_properties", f"{unused}; remove it")
        required = REQUIRED_PROPERTIES.get(node.lock_manager, ())
        given = [name for name in required if properties.get(name)]
        if used and required and len(given) != 1:
            names = " or ".join(map(repr, required))
            lacks = f"lacks {names}, which the lock manager {node.lock_manager} needs"
            problem = f"has more than one of {names}" if given else lacks
            yield Fault(node.name, "broker_lock_manager_properties", problem)


def failure_domains_differ(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """A pair within one rack or power feed fails as one."""
    for name, members in _by_pair(nodes).items():
        seen: dict[str, Node] = {}
        for node in members:
            if not node.failure_domain:
                if any(other.failure_domain for other in members):
                    yield Fault(
                        node.name,
                        "broker_failure_domain",
                        f"is missing, but others of pair {name!r} have one; give it to all or to none",
                    )
                continue
            first = seen.setdefault(node.failure_domain, node)
            if first is not node:
                yield Fault(
                    node.name,
                    "broker_failure_domain",
                    f"is {node.failure_domain!r} like that of {first.name}; the nodes of pair {name!r} must not fail "
                    "together",
                )


def nothing_is_used_twice(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Advertised sockets are unique everywhere; bound sockets and directories on each machine."""
    owners: dict[tuple[str, ...], str] = {}
    for node in nodes:
        connector, where = node.sockets.connector, node.machine
        advertised = ("advertised", connector.address, str(connector.port))
        yield from _claim(owners, node, advertised, "broker_advertise_address", "advertised address and port")
        for acceptor in node.sockets.acceptors:
            variable = "broker_bind_address" if acceptor is node.sockets.core else acceptor.origin
            bound = ("socket", where, acceptor.address, str(acceptor.port))
            yield from _claim(owners, node, bound, variable, "socket")
        management = ("socket", where, node.sockets.management_address, str(node.sockets.management_port))
        yield from _claim(owners, node, management, "broker_management_port", "socket")
        yield from _claim(owners, node, ("root", where, node.root), "broker_root", "directory")
        instance = ("instance", where, node.instance_directory)
        yield from _claim(owners, node, instance, "broker_instance_directory", "directory")


def _claim(
    owners: dict[tuple[str, ...], str], node: Node, key: tuple[str, ...], variable: str, noun: str
) -> Iterator[Fault]:
    holder = owners.setdefault(key, f"{node.name} ({variable})")
    if holder != f"{node.name} ({variable})":
        yield Fault(node.name, variable, f"the {noun} {':'.join(key[1:])} is already taken by {holder}; give another")


def _same(first: Node, other: Node, variable: str, pair: str) -> Iterator[Fault]:
    field = variable.removeprefix("broker_")
    expected, found = first.values[field], other.values[field]
    if expected != found:
        yield Fault(
            other.name,
            variable,
            f"is {found!r} but {expected!r} at {first.name}; the nodes of pair {pair!r} must agree",
        )


RULES: tuple[Callable[[tuple[Node, ...]], Iterator[Fault]], ...] = (
    addresses_are_usable,
    connectors_have_names_of_their_own,
    a_primary_alone_has_no_partner,
    every_pair_is_complete,
    a_shared_store_is_shared,
    a_lock_manager_has_its_address,
    failure_domains_differ,
    nothing_is_used_twice,
)
