"""Goal: one inventory gives one topology, whatever part of it a run touches, and every fault is named.

Method: Hypothesis draws inventories; broken ones are made from whole ones by one change each.
"""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.topology import build_topology
from hypothesis import given
from hypothesis import strategies as st


def pair_inventory(pairs: int = 1, backups: int = 1) -> dict[str, dict[str, object]]:
    """A faultless inventory of shared-store pairs on separate machines."""
    hosts: dict[str, dict[str, object]] = {}
    for pair, member in itertools.product(range(pairs), range(backups + 1)):
        hosts[f"p{pair}-{member}"] = {
            "broker_ha_policy": "shared_store",
            "broker_ha_role": "backup" if member else "primary",
            "broker_pair": f"pair{pair}",
            "broker_advertise_address": f"10.0.{pair}.{member + 1}",
            "broker_store_directory": f"/srv/pair{pair}",
        }
    return hosts


def faults(hosts: dict[str, dict[str, object]]) -> list[str]:
    return [str(fault) for fault in build_topology(hosts, hosts).faults]


@given(pairs=st.integers(1, 4), backups=st.integers(1, 3))
def test_whole_inventories_have_no_fault(pairs: int, backups: int) -> None:
    hosts = pair_inventory(pairs, backups)
    topology = build_topology(hosts, hosts)
    assert topology.faults == ()
    assert len(topology.pairs) == pairs
    for node in topology.nodes:
        assert len(topology.peers_of(node)) == backups
        assert {other.name for other in topology.cluster_of(node)} == set(hosts) - {node.name}


@pytest.mark.parametrize("variable", ["broker_uid", "broker_gid"])
def test_the_owner_of_a_shared_store_has_one_number_in_the_pair(variable: str) -> None:
    hosts = pair_inventory()
    for variables in hosts.values():
        variables[variable] = 990
    assert faults(hosts) == []
    hosts["p0-1"][variable] = 991
    (fault,) = faults(hosts)
    assert f"p0-1: {variable}: is 991 but 990 at p0-0" in fault
    hosts["p0-1"][variable] = "x"
    assert f"p0-1: {variable}: is 'x'; give a number" in faults(hosts)[0]


@given(order=st.permutations(sorted(pair_inventory(2, 2))), repeated=st.booleans())
def test_the_order_of_hosts_changes_nothing(order: list[str], repeated: bool) -> None:
    hosts = pair_inventory(2, 2)
    names = order * 2 if repeated else order
    assert build_topology(names, hosts) == build_topology(sorted(hosts), hosts)


@given(
    facts=st.dictionaries(
        st.sampled_from(["ansible_facts", "ansible_play_batch", "ansible_limit", "inventory_hostname", "other"]),
        st.text(max_size=5),
    )
)
def test_facts_and_play_variables_change_nothing(facts: dict[str, str]) -> None:
    hosts = pair_inventory()
    polluted = {name: {**variables, **facts} for name, variables in hosts.items()}
    assert build_topology(hosts, polluted) == build_topology(hosts, hosts)


@given(
    st.dictionaries(
        st.sampled_from(sorted(pair_inventory(2))),
        st.dictionaries(
            st.sampled_from(
                [
                    "broker_ha_role",
                    "broker_ha_policy",
                    "broker_pair",
                    "broker_port",
                    "broker_root",
                    "broker_failback",
                    "broker_advertise_address",
                    "broker_store_directory",
                    "broker_gate_timeout_s",
                ]
            ),
            st.one_of(st.none(), st.text(max_size=8), st.integers(-1, 70000), st.booleans()),
        ),
    )
)
def test_nonsense_gives_faults_that_name_host_and_variable_and_never_an_exception(
    changes: dict[str, dict[str, object]],
) -> None:
    hosts = pair_inventory(2)
    for name, change in changes.items():
        hosts[name] = {**hosts[name], **change}
    for fault in build_topology(hosts, hosts).faults:
        assert fault.host in hosts
        assert fault.variable.startswith("broker_")
        assert fault.problem


def test_a_node_by_itself_needs_only_its_address() -> None:
    hosts = {"solo": {"broker_advertise_address": "10.0.0.1"}}
    topology = build_topology(hosts, hosts)
    (node,) = topology.nodes
    assert topology.faults == ()
    assert topology.pairs == ()
    assert (node.sockets.core.port, node.sockets.management_port, node.ha_policy) == (61616, 8161, "primary_only")
    assert node.store_directory == "/opt/understudy/instance/data"
    assert node.start_gate == "active"


def test_pairs_name_the_primary_first() -> None:
    hosts = pair_inventory()
    hosts = {"z": hosts["p0-0"], "a": hosts["p0-1"]}
    (pair,) = build_topology(hosts, hosts).pairs
    assert (pair.primary, pair.backups) == ("z", ("a",))
    assert pair.client_url == "(tcp://10.0.0.1:61616,tcp://10.0.0.2:61616)?ha=true&reconnectAttempts=-1"


def test_ipv6_addresses_get_brackets() -> None:
    hosts = {"solo": {"broker_advertise_address": "2001:db8::1", "broker_management_address": "::1"}}
    (node,) = build_topology(hosts, hosts).nodes
    assert node.sockets.connector.url == "tcp://[2001:db8::1]:61616"
    assert node.sockets.core.url == "tcp://[2001:db8::1]:61616"
    assert node.sockets.management_url == "http://[::1]:8161"


@pytest.mark.parametrize(
    ("failback", "gates"), [(True, {"p0-0": "active", "p0-1": "passive"}), (False, {"p0-0": "ready", "p0-1": "ready"})]
)
def test_the_gate_after_a_start_follows_failback(failback: bool, gates: dict[str, str]) -> None:
    hosts = {name: {**variables, "broker_failback": failback} for name, variables in pair_inventory().items()}
    assert {node.name: node.start_gate for node in build_topology(hosts, hosts).nodes} == gates


LOCAL = {"ansible_connection": "local"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"p0-1": {"broker_ha_role": "primary"}}, ["p0-1: broker_ha_role: is primary, but p0-0", "no backup"]),
        ({"p0-0": {"broker_ha_role": "backup"}}, ["p0-0: broker_ha_role: is backup like all"]),
        ({"p0-1": {"broker_pair": "other"}}, ["'pair0' has no backup", "p0-1: broker_ha_role: is backup like all"]),
        ({"p0-1": {"broker_pair": None}}, ["p0-1: broker_pair: is missing"]),
        (
            {"p0-1": {"broker_store_directory": "/srv/x"}},
            ["p0-1: broker_store_directory: is '/srv/x' but '/srv/pair0'"],
        ),
        ({"p0-1": {"broker_store_directory": None}}, ["p0-1: broker_store_directory: is missing"]),
        ({"p0-1": {"broker_store_directory": "srv"}}, ["p0-1: broker_store_directory: is 'srv'; give an absolute"]),
        ({"p0-1": {"broker_store_directory": "/a/../b"}}, ["p0-1: broker_store_directory: is '/a/../b'"]),
        ({"p0-1": {"broker_advertise_address": "10.0.0.1"}}, ["p0-1: broker_advertise_address: the advertised"]),
        ({"p0-1": {"broker_advertise_address": "0.0.0.0"}}, ["p0-1: broker_advertise_address: is the wildcard"]),
        ({"p0-1": {"broker_advertise_address": None}}, ["p0-1: broker_advertise_address: is missing"]),
        ({"p0-1": {"broker_cluster_name": "other"}}, ["p0-1: broker_cluster_name: is 'other' but 'understudy'"]),
        ({"p0-1": {"broker_cluster_name": ""}}, ["p0-1: broker_cluster_name: is empty"]),
        ({"p0-1": {"broker_failback": False}}, ["p0-1: broker_failback: is False but True"]),
        ({"p0-1": {"broker_failback": "perhaps"}}, ["p0-1: broker_failback: is 'perhaps'"]),
        ({"p0-0": {"broker_failure_domain": "r1"}}, ["p0-1: broker_failure_domain: is missing"]),
        (
            {name: {"broker_failure_domain": "r1"} for name in ("p0-0", "p0-1")},
            ["p0-1: broker_failure_domain: is 'r1'"],
        ),
        (
            {"p0-1": {"broker_ha_policy": "primary_only"}},
            ["p0-1: broker_ha_policy: is primary_only but broker_ha_role"],
        ),
        ({"p0-0": {"broker_ha_policy": "primary_only"}}, ["p0-0: broker_ha_policy: is primary_only but broker_pair"]),
        ({"p0-0": {"broker_ha_policy": "raid"}}, ["p0-0: broker_ha_policy: is 'raid'; give one of"]),
        ({"p0-0": {"broker_port": 0}}, ["p0-0: broker_port: is '0'"]),
        ({"p0-0": {"broker_gate_timeout_s": 0}}, ["p0-0: broker_gate_timeout_s: is '0'"]),
        (
            {"p0-0": LOCAL, "p0-1": LOCAL},
            ["p0-1: broker_root: the directory", "p0-1: broker_management_port: the socket"],
        ),
        ({"p0-0": {"ansible_host": "h"}, "p0-1": {"ansible_host": "h"}}, ["p0-1: broker_root: the directory"]),
        (
            {"p0-0": {"broker_management_address": "10.0.0.1", "broker_management_port": 61616}},
            ["p0-0: broker_management_port: the socket"],
        ),
    ],
)
def test_each_rule_names_the_host_and_the_variable(changes: dict[str, dict[str, object]], expected: list[str]) -> None:
    hosts = pair_inventory()
    for name, change in changes.items():
        hosts[name] = {**hosts[name], **change}
    found = faults(hosts)
    for text in expected:
        assert any(text in fault for fault in found), found


def test_two_pairs_of_one_machine_may_not_share_a_store() -> None:
    hosts = pair_inventory(2)
    for number, (name, variables) in enumerate(hosts.items()):
        variables.update(LOCAL, broker_root=f"/srv/{name}", broker_management_port=9000 + number)
        variables["broker_store_directory"] = "/srv/one"
    assert any("one store serves one pair only" in fault for fault in faults(hosts))


def test_two_pairs_of_separate_machines_may_mount_at_the_same_path() -> None:
    hosts = pair_inventory(2)
    for variables in hosts.values():
        variables["broker_store_directory"] = "/srv/store"
    assert faults(hosts) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"broker_sockets": {"more": {"port": 61616}}},
            "p0-1: broker_sockets.more: the socket",
        ),
        ({"broker_sockets": [{"name": "x"}]}, "p0-1: broker_sockets: is a list; give a mapping"),
        ({"broker_acceptors": [{"name": "x"}]}, "p0-1: broker_acceptors: is a former name; set broker_sockets instead"),
        ({"broker_connectors": [{"name": "p0-0", "address": "b"}]}, "p0-1: broker_connectors: names 'p0-0', which is"),
        ({"broker_cluster_connection": {"static-connectors": {}}}, "sets 'static-connectors', which follows"),
        ({"broker_port_offset": 65000}, "p0-1: broker_port: is 61616 with the offset 65000"),
    ],
)
def test_each_rule_about_sockets_names_the_entry(changes: dict[str, object], expected: str) -> None:
    hosts = pair_inventory()
    hosts["p0-1"] = {**hosts["p0-1"], **changes}
    assert any(expected in fault for fault in faults(hosts)), faults(hosts)


def test_nodes_that_share_a_machine_change_it_one_after_the_other() -> None:
    hosts = pair_inventory(2)
    for name, address in (("p0-0", "10.9.0.1"), ("p1-1", "10.9.0.1"), ("p0-1", "10.9.0.2"), ("p1-0", "10.9.0.3")):
        hosts[name]["ansible_host"] = address
    hosts["p1-1"]["broker_root"] = "/srv/1"
    hosts["p1-1"]["broker_port_offset"] = 1
    assert faults(hosts) == []
    nodes: dict[str, dict[str, object]] = build_topology(hosts, hosts).as_dict()["nodes"]  # type: ignore[assignment]
    assert {name: node["throttle"] for name, node in nodes.items()} == {"p0-0": 1, "p0-1": 0, "p1-0": 0, "p1-1": 1}


def test_nodes_of_one_machine_are_kept_apart_by_the_offset() -> None:
    hosts = pair_inventory()
    for number, variables in enumerate(hosts.values()):
        variables.update(LOCAL, broker_root=f"/srv/{number}", broker_advertise_address="10.0.0.1")
        variables["broker_port_offset"] = 100 * number
        variables["broker_sockets"] = {"more": {"port": 5000}}
    assert faults(hosts) == []
    (pair,) = build_topology(hosts, hosts).pairs
    assert pair.client_url.startswith("(tcp://10.0.0.1:61616,tcp://10.0.0.1:61716)")


def test_connectors_of_other_nodes_are_rendered_as_they_were_judged_there() -> None:
    hosts = pair_inventory()
    hosts["p0-1"]["broker_connector_parameters"] = {"sslEnabled": True, "trustStorePath": "/t"}
    topology = build_topology(hosts, hosts)
    node: dict[str, dict[str, dict[str, object]]] = topology.as_dict()["nodes"]["p0-0"]  # type: ignore[index]
    assert node["core"]["connectors"]["connector"] == [
        {"@name": "p0-0", "#text": "tcp://10.0.0.1:61616"},
        {"@name": "p0-1", "#text": "tcp://10.0.0.2:61616?sslEnabled=true;trustStorePath=/t"},
    ]
    assert "tcp://10.0.0.2:61616?sslEnabled=true&trustStorePath=/t" in topology.pairs[0].client_url


@pytest.mark.parametrize(
    ("given", "path"),
    [("ca.pem", "/opt/understudy/instance/etc/ca.pem"), ("/etc/ssl/orders.pem", "/etc/ssl/orders.pem"), (None, "")],
)
def test_the_url_of_clients_names_a_file_that_is_at_one_place_on_all_hosts(given: str | None, path: str) -> None:
    parameters = {"sslEnabled": True, **({"trustStorePath": given} if given else {})}
    hosts = {"a": {"broker_advertise_address": "10.0.0.1", "broker_connector_parameters": parameters}}
    (node,) = build_topology(hosts, hosts).as_dict()["nodes"].values()  # type: ignore[attr-defined]
    assert node["trust_path"] == path
    expected = "tcp://10.0.0.1:61616?sslEnabled=true" + (f"&trustStorePath={path}" if path else "")
    assert node["client_url"] == expected
    # other brokers take the parameter as it is given
    assert (f"trustStorePath={given}" in str(node["core"])) is bool(given)
