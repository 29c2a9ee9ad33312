"""From inventory variables to a topology: pairs, connections between nodes, and errors.

Reads nothing but the variables it is given, host by host. It never sees facts, the hosts of the current play or a
``--limit``, so every run over an inventory computes the same topology, however few hosts that run touches. Pure: no
Ansible, no files, no network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from ansible_collections.understudy.broker.plugins.module_utils.model import (
    BACKUP,
    POLICIES,
    PRIMARY,
    PRIMARY_ONLY,
    ROLES,
    SHARED_STORE,
    Fault,
    Node,
    Pair,
    Topology,
)

DEFAULTS: Mapping[str, object] = {
    "broker_cluster_name": "understudy",
    "broker_pair": "",
    "broker_ha_policy": PRIMARY_ONLY,
    "broker_ha_role": PRIMARY,
    "broker_failback": True,
    "broker_failure_domain": "",
    "broker_port": 61616,
    "broker_management_address": "127.0.0.1",
    "broker_management_port": 8161,
    "broker_root": "/opt/understudy",
    "broker_uid": 0,
    "broker_gid": 0,
    "broker_gate_timeout_s": 90,
}
"""The value of each input the inventory leaves out; a unit test holds roles/broker/defaults to the same values."""

ID_MAX = 2**32 - 2
"""Largest number of a user or group; the next one means no change to chown(2)."""

WILDCARDS = ("0.0.0.0", "::", "*")


def build_topology(hosts: Iterable[str], variables: Mapping[str, Mapping[str, object]]) -> Topology:
    """The topology of ``hosts``, with every fault found rather than only the first.

    Args:
        hosts: inventory names of all broker hosts.
        variables: inventory variables of each host; anything but ``broker_*``, ``ansible_host`` and
            ``ansible_connection`` is left unread.
    """
    faults: list[Fault] = []
    nodes = tuple(_read_node(host, variables[host], faults) for host in sorted(set(hosts)))
    for rule in RULES:
        faults.extend(rule(nodes))
    return Topology(nodes=nodes, pairs=_pairs(nodes), faults=tuple(dict.fromkeys(faults)))


def find_strays(node: Node, given: Mapping[str, object]) -> list[Fault]:
    """Inputs that reached this play by a way the other hosts cannot see (play or task variables, role parameters).

    Such a value would be rendered here and not at the partner, so it is a fault, never an override.
    """
    seen: dict[str, object] = {
        "broker_advertise_address": node.advertise_address,
        "broker_bind_address": node.bind_address,
        "broker_instance_directory": node.instance_directory,
        "broker_store_directory": node.store_directory,
        **{name: getattr(node, name.removeprefix("broker_")) for name in DEFAULTS},
    }
    return [
        Fault(
            node.name,
            name,
            f"is {value!r} in this play but {seen[name]!r} in the inventory; set it in the inventory, "
            "where every host of the cluster can see it",
        )
        for name, value in given.items()
        if name in seen and str(value) != str(seen[name])
    ]


def _read_node(host: str, variables: Mapping[str, object], faults: list[Fault]) -> Node:
    def text(name: str, default: str = "") -> str:
        value = variables.get(name)
        return str(DEFAULTS.get(name, default) if value is None else value).strip()

    def directory(name: str, default: str) -> str:
        path = text(name, default)
        if not path.startswith("/") or "/../" in f"{path}/":
            faults.append(Fault(host, name, f"is {path!r}; give an absolute path without '..'"))
        return path.rstrip("/") or "/"

    def port(name: str) -> int:
        value = text(name)
        if value.isascii() and value.isdigit() and 1 <= int(value) <= 65535:
            return int(value)
        faults.append(Fault(host, name, f"is {value!r}; give a port from 1 to 65535"))
        return int(str(DEFAULTS[name]))

    def choice(name: str, allowed: tuple[str, ...]) -> str:
        value = text(name)
        if value in allowed:
            return value
        faults.append(Fault(host, name, f"is {value!r}; give one of {', '.join(allowed)}"))
        return str(DEFAULTS[name])

    def boolean(name: str) -> bool:
        value = text(name).lower()
        if value in ("true", "yes", "on", "1"):
            return True
        if value not in ("false", "no", "off", "0"):
            faults.append(Fault(host, name, f"is {value!r}; give true or false"))
        return False

    def seconds(name: str) -> int:
        value = text(name)
        if value.isascii() and value.isdigit() and int(value) > 0:
            return int(value)
        faults.append(Fault(host, name, f"is {value!r}; give a number of seconds above 0"))
        return int(str(DEFAULTS[name]))

    def number(name: str) -> int:
        value = text(name)
        if value.isascii() and value.isdigit() and int(value) <= ID_MAX:
            return int(value)
        faults.append(
            Fault(host, name, f"is {value!r}; give a number from 1 to {ID_MAX}, or 0 to leave it to the host")
        )
        return 0

    advertise_address = text("broker_advertise_address")
    root = directory("broker_root", "")
    instance_directory = directory("broker_instance_directory", f"{root}/instance")
    return Node(
        name=host,
        cluster_name=text("broker_cluster_name"),
        pair=text("broker_pair"),
        ha_policy=choice("broker_ha_policy", POLICIES),
        ha_role=choice("broker_ha_role", ROLES),
        failback=boolean("broker_failback"),
        failure_domain=text("broker_failure_domain"),
        advertise_address=advertise_address,
        bind_address=text("broker_bind_address", advertise_address),
        port=port("broker_port"),
        management_address=text("broker_management_address"),
        management_port=port("broker_management_port"),
        root=root,
        instance_directory=instance_directory,
        store_directory=directory("broker_store_directory", f"{instance_directory}/data"),
        store_is_given=variables.get("broker_store_directory") is not None,
        uid=number("broker_uid"),
        gid=number("broker_gid"),
        gate_timeout_s=seconds("broker_gate_timeout_s"),
        machine=_machine(host, variables),
    )


def _machine(host: str, variables: Mapping[str, object]) -> str:
    if variables.get("ansible_connection") == "local":
        return "the controller"
    return str(variables.get("ansible_host") or host)


def _pairs(nodes: tuple[Node, ...]) -> tuple[Pair, ...]:
    pairs = []
    for name, members in _by_pair(nodes).items():
        primaries = [node for node in members if node.ha_role == PRIMARY]
        backups = [node for node in members if node.ha_role == BACKUP]
        urls = ",".join(node.connector.url for node in (*primaries, *backups))
        pairs.append(
            Pair(
                name=name,
                primary=primaries[0].name if primaries else "",
                backups=tuple(node.name for node in backups),
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
        if not node.advertise_address:
            yield Fault(
                node.name, "broker_advertise_address", "is missing; give the address that clients and peers use"
            )
        elif node.advertise_address in WILDCARDS:
            yield Fault(
                node.name,
                "broker_advertise_address",
                f"is the wildcard {node.advertise_address}; no client can connect to that, give one address "
                "(broker_bind_address may be a wildcard)",
            )
        if not node.cluster_name:
            yield Fault(node.name, "broker_cluster_name", "is empty; give the name of the cluster")


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
                f"is {PRIMARY_ONLY} but broker_pair is {node.pair!r}; set {SHARED_STORE}, or leave broker_pair out",
            )


def every_pair_is_complete(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """One primary, one or more backups, one cluster, one mind about failback."""
    for node in nodes:
        if node.ha_policy == SHARED_STORE and not node.pair:
            yield Fault(node.name, "broker_pair", f"is missing; {SHARED_STORE} nodes belong to a named pair")
    for name, members in _by_pair(nodes).items():
        primaries = [node for node in members if node.ha_role == PRIMARY]
        for extra in primaries[1:]:
            yield Fault(
                extra.name,
                "broker_ha_role",
                f"is {PRIMARY}, but {primaries[0].name} already is the primary of pair {name!r}; make one a {BACKUP}",
            )
        if not primaries:
            yield Fault(
                members[0].name, "broker_ha_role", f"is {BACKUP} like all of pair {name!r}; make one node the {PRIMARY}"
            )
        if len(primaries) == len(members):
            yield Fault(members[0].name, "broker_pair", f"{name!r} has no backup; give it a node with role {BACKUP}")
        for node in members[1:]:
            yield from _same(members[0], node, "broker_cluster_name", name)
            yield from _same(members[0], node, "broker_ha_policy", name)
            yield from _same(members[0], node, "broker_failback", name)


def a_shared_store_is_shared(nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """All nodes name the same directory and the same owner, and no other pair of the same machine uses it.

    Owners count as numbers: NFS and cluster file systems compare uid and gid, not names.
    """
    for name, members in _by_pair(nodes).items():
        sharing = [node for node in members if node.ha_policy == SHARED_STORE]
        for node in sharing:
            if not node.store_is_given:
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
        if first is not node and (not node.pair or first.pair != node.pair):
            yield Fault(
                node.name,
                "broker_store_directory",
                f"is {node.store_directory}, which {first.name} uses on the same machine; "
                "one store serves one pair only",
            )


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
        advertised = ("advertised", node.advertise_address, str(node.port))
        yield from _claim(owners, node, advertised, "broker_advertise_address", "advertised address and port")
        where = node.machine
        bound = ("socket", where, node.bind_address, str(node.port))
        yield from _claim(owners, node, bound, "broker_bind_address", "socket")
        management = ("socket", where, node.management_address, str(node.management_port))
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
    expected, found = getattr(first, field), getattr(other, field)
    if expected != found:
        yield Fault(
            other.name,
            variable,
            f"is {found!r} but {expected!r} at {first.name}; the nodes of pair {pair!r} must agree",
        )


RULES: tuple[Callable[[tuple[Node, ...]], Iterator[Fault]], ...] = (
    addresses_are_usable,
    a_primary_alone_has_no_partner,
    every_pair_is_complete,
    a_shared_store_is_shared,
    failure_domains_differ,
    nothing_is_used_twice,
)
