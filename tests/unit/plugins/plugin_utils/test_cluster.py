"""Goal: inventories of clusters give a broker.xml that the broker reads as meant; impossible ones name the variable.

Method: the broker's own reader judges the rendered text; the plugins themselves never import understudy.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils import topology
from ansible_collections.understudy.broker.plugins.plugin_utils.render import Misplaced, broker_xml
from understudy.config.grouping import GroupingType
from understudy.config.high_availability import Role
from understudy.config.model import ClusterConnectionConfiguration, Configuration
from understudy.config.reading.reader import read_broker_xml

Hosts = dict[str, dict[str, object]]
ALONE = {"broker_cluster_connects": False}
SECRET = {"addresses": "10.0.0.9:61619"}


def singles(count: int = 3, **common: object) -> Hosts:
    """Nodes ``n0``, ``n1`` … of one cluster, without partners."""
    return {f"n{number}": {"broker_advertise_address": f"10.0.0.{number + 1}", **common} for number in range(count)}


def shared(count: int = 2, **common: object) -> Hosts:
    """Colocated nodes, each with a shared store of its own."""
    hosts = singles(count, broker_ha_policy="colocated_shared_store", **common)
    for name, variables in hosts.items():
        variables.setdefault("broker_store_directory", f"/srv/{name}")
    return hosts


def pairs(**common: object) -> Hosts:
    """Two shared-store pairs of one cluster: ``a0`` and ``a1``, ``b0`` and ``b1``."""
    return {
        f"{pair}{member}": {
            "broker_advertise_address": f"10.0.{number}.{member + 1}",
            "broker_ha_policy": "shared_store",
            "broker_ha_role": "backup" if member else "primary",
            "broker_pair": pair,
            "broker_store_directory": f"/srv/{pair}",
            **common,
        }
        for number, pair in enumerate("ab")
        for member in (0, 1)
    }


def replicated_pairs(**common: object) -> Hosts:
    """Two replicated pairs of one cluster, which vote."""
    hosts = pairs(**{"broker_lock_manager": "votes", **common})
    for name, variables in hosts.items():
        del variables["broker_store_directory"]
        variables |= {"broker_ha_policy": "replication", "broker_group_name": name[0]}
    return hosts


def with_changes(hosts: Hosts, changes: Hosts) -> Hosts:
    return {name: {**variables, **changes.get(name, {})} for name, variables in hosts.items()}


def faults(hosts: Hosts) -> list[str]:
    return [str(fault) for fault in topology.build_topology(hosts, hosts).faults]


def read(hosts: Hosts, name: str, **inputs: object) -> Configuration:
    """The configuration of a node as the broker reads it; the inventory must have no fault, the file no warning.

    With a lock manager the elements of votes have no effect, which the broker says.
    """
    built = topology.build_topology(hosts, hosts)
    assert built.faults == ()
    nodes: Any = built.as_dict()["nodes"]
    core = {"core": nodes[name]["core"], "cluster_user": "c", "cluster_password": "a password of a test"}
    found = read_broker_xml(broker_xml({**core, **inputs}).text.encode(), file="broker.xml", base_directory="/srv")
    assert [str(each) for each in found.warnings] == []
    return found.configuration


def test_a_cluster_connection_has_the_defaults_of_the_broker_and_what_is_given() -> None:
    (usual,) = read(singles(), "n0").cluster_connections
    assert usual == ClusterConnectionConfiguration("understudy", "n0", static_connectors=("n1", "n2"))
    given = {
        "broker_cluster_load_balancing": "OFF_WITH_REDISTRIBUTION",
        "broker_cluster_max_hops": 2,
        "broker_cluster_addresses": "orders,!internal",
        "broker_cluster_members": ["n2"],
        "broker_cluster_direct_connections_only": True,
        "broker_cluster_duplicate_detection": False,
        "broker_cluster_confirmation_window_size": "2M",
        "broker_cluster_producer_window_size": "-1",
        "broker_cluster_retry_interval_ms": 250,
        "broker_cluster_retry_interval_multiplier": 1.5,
        "broker_cluster_retry_interval_max_ms": 9000,
        "broker_cluster_initial_connect_attempts": 4,
        "broker_cluster_reconnect_attempts": 5,
        "broker_cluster_connection": {"call-timeout": 7000},
    }
    (changed,) = read(with_changes(singles(), {"n0": given}), "n0").cluster_connections
    assert changed.static_connectors == ("n2",)
    assert changed.allow_direct_connections_only is True
    assert changed.message_load_balancing.value == "OFF_WITH_REDISTRIBUTION"
    assert (changed.max_hops, changed.address, changed.use_duplicate_detection) == (2, "orders,!internal", False)
    assert (changed.confirmation_window_size_bytes, changed.producer_window_size_bytes) == (2 * 1024 * 1024, -1)
    assert (changed.retry_interval_ms, changed.max_retry_interval_ms) == (250, 9000)
    assert changed.retry_interval_multiplier == 1.5
    assert (changed.initial_connect_attempts, changed.reconnect_attempts) == (4, 5)
    assert changed.call_timeout_ms == 7000


def test_the_last_node_of_a_chain_connects_to_no_member() -> None:
    (last,) = read(with_changes(singles(), {"n0": {"broker_cluster_connects": False}}), "n0").cluster_connections
    assert (last.static_connectors, last.discovery_group) == ((), None)


@pytest.mark.parametrize(
    "group", [{"address": "231.7.7.7", "port": 9876}, {"jgroups_file": "stack.xml", "jgroups_channel": "c"}]
)
def test_discovery_replaces_the_list_of_members(group: dict[str, object]) -> None:
    given = {"broker_cluster_discovery": group, "broker_cluster_discovery_interface": "10.0.0.1"}
    text = broker_xml({"core": node_of(singles(**given), "n0")["core"]}).text
    assert "static-connectors" not in text
    assert '<discovery-group-ref discovery-group-name="understudy" />' in text
    for name in ("broadcast-group", "discovery-group"):
        inner = text.split(f'<{name} name="understudy">')[1].split(f"</{name}>")[0]
        assert all(f">{value}</" in inner for value in (*group.values(), "10.0.0.1")), inner
    if "port" in group:
        found = read(singles(**given), "n0")
        assert found.cluster_connections[0].discovery_group == "understudy"


def node_of(hosts: Hosts, name: str) -> dict[str, Any]:
    built = topology.build_topology(hosts, hosts)
    assert built.faults == ()
    nodes: Any = built.as_dict()["nodes"]
    return nodes[name]  # type: ignore[no-any-return]


def test_the_owner_of_groups_and_its_backup_decide() -> None:
    hosts = pairs(broker_grouping_owner="a0", broker_grouping_idle_timeout_ms=60000, broker_grouping_timeout_ms=900)
    found = {name: read(hosts, name).grouping_handler for name in hosts}
    assert all(each is not None for each in found.values())
    local = [name for name, each in found.items() if each is not None and each.type is GroupingType.LOCAL]
    assert local == ["a0", "a1"]
    assert {(each.timeout_ms, each.group_timeout_ms) for each in found.values() if each is not None} == {(900, 60000)}
    assert read(pairs(), "a0").grouping_handler is None


def test_a_single_node_scales_down_to_the_named_members() -> None:
    given = {
        "broker_scale_down": True,
        "broker_scale_down_to": ["n2", "n1"],
        "broker_scale_down_group_name": "g",
        "broker_scale_down_commit_interval": 50,
    }
    hosts = with_changes(singles(broker_scale_down_group_name="g"), {"n0": given})
    found = read(hosts, "n0").ha_policy.scale_down
    assert found is not None
    assert (found.enabled, found.connectors, found.group_name, found.commit_interval) == (True, ("n2", "n1"), "g", 50)
    other = read(hosts, "n1").ha_policy.scale_down
    assert other is not None
    assert (other.enabled, other.group_name) == (False, "g")
    assert read(singles(), "n0").ha_policy.scale_down is None


def test_a_backup_on_a_shared_store_scales_down() -> None:
    found = read(with_changes(pairs(), {"a1": {"broker_scale_down": True, "broker_scale_down_to": ["b0"]}}), "a1")
    assert found.ha_policy.role is Role.BACKUP
    assert found.ha_policy.scale_down is not None
    assert found.ha_policy.scale_down.connectors == ("b0",)


def test_a_replica_scales_down() -> None:
    found = read(with_changes(replicated_pairs(), {"a1": {"broker_scale_down": True}}), "a1")
    assert found.ha_policy.role is Role.BACKUP
    assert found.ha_policy.scale_down is not None


def test_hosted_replicas_scale_down() -> None:
    hosts = singles(
        2, broker_ha_policy="colocated_replication", broker_lock_manager="votes", broker_scale_down=True,
        broker_scale_down_group_name="g",
    )  # fmt: skip
    hosted = read(hosts, "n0").ha_policy.colocated
    assert hosted is not None
    assert hosted.backup.scale_down is not None
    assert hosted.backup.scale_down.group_name == "g"


def test_discovered_members_take_the_messages() -> None:
    group = {"address": "231.7.7.7", "port": 9876}
    hosts = singles(broker_scale_down=True, broker_scale_down_discovered=True, broker_cluster_discovery=group)
    found = read(hosts, "n0").ha_policy.scale_down
    assert found is not None
    assert found.discovery_group == "understudy"


def test_colocated_nodes_on_shared_stores() -> None:
    hosts = shared(
        broker_backup_request_retries=3,
        broker_backup_request_interval_ms=700,
        broker_backup_port_offset=10,
        broker_failover_on_shutdown=True,
        broker_connectors=[{"name": "elsewhere", "address": "10.9.9.9"}],
        broker_backup_excludes=["elsewhere"],
    )
    configuration = read(hosts, "n0")
    found = configuration.ha_policy.colocated
    assert found is not None
    assert (found.request_backup, found.backup_request_retries, found.backup_request_retry_interval_ms) == (
        True,
        3,
        700,
    )
    assert (found.max_backups, found.backup_port_offset, found.excludes) == (1, 10, ("n1", "elsewhere"))
    assert configuration.ha_policy.failover_on_shutdown is True
    assert found.backup.failover_on_shutdown is True
    assert configuration.node_manager_lock_directory == configuration.journal_directory
    node = node_of(hosts, "n0")
    assert (node["hosted_stores"], node["store_users"], node["store_peers"]) == (["/srv/n1"], ["n1"], [])
    assert node["client_url"] == "(tcp://10.0.0.1:61616)?ha=true&reconnectAttempts=-1"


def test_colocated_nodes_that_replicate() -> None:
    hosts = singles(
        2,
        broker_ha_policy="colocated_replication",
        broker_lock_manager_properties=SECRET,
        broker_group_name="g",
        broker_failback=False,
    )
    configuration = read(hosts, "n0")
    found = configuration.ha_policy.colocated
    assert found is not None
    for policy in (configuration.ha_policy, found.backup):
        assert policy.replication is not None
        assert policy.replication.group_name == "g"
        assert policy.replication.lock_manager is not None
    assert found.backup.allow_failback is False
    assert node_of(hosts, "n0")["hosted_stores"] == []


def shared_port() -> Hosts:
    """Colocated nodes whose servers share a port."""
    hosts = shared(broker_sockets={"core": {"parameters": {"httpUpgradeEnabled": True}}})
    for variables in hosts.values():
        variables["broker_connector_parameters"] = {"httpUpgradeEnabled": True}
    return hosts


def test_servers_of_colocated_nodes_may_share_a_port() -> None:
    acceptor, amqp091 = read(shared_port(), "n0").acceptors
    assert (acceptor.name, acceptor.http_upgrade) == ("core", True)
    assert (amqp091.name, amqp091.http_upgrade) == ("amqp091", False)
    url = str(node_of(shared_port(), "n0")["client_url"])
    assert "httpUpgradeEnabled=true" in url
    assert "activemqServerName" not in url, "the broker names the server itself (ADR 0179)"


def test_a_bridge_has_all_that_is_given() -> None:
    bridge = {
        "name": "out",
        "queue_name": "q",
        "connectors": ["n1"],
        "forwarding_address": "there",
        "filter": "a > 1",
        "routing_type": "MULTICAST",
        "ha": True,
        "retry_interval": 100,
        "user": None,
    }
    (found,) = read(singles(2), "n0", bridges=[bridge]).bridges
    assert (found.name, found.queue_name, found.target.static_connectors) == ("out", "q", ("n1",))
    assert (found.forwarding_address, found.filter, found.routing_type) == ("there", "a > 1", "MULTICAST")
    assert (found.target.ha, found.connection.retry_interval_ms) == (True, 100)
    for wrong in ({"connectors": []}, {"discovery_group": "g"}):
        with pytest.raises(Misplaced, match=r"bridges\[0\]: must have either 'connectors' or 'discovery_group'"):
            broker_xml({"core": {}, "bridges": [{**bridge, **wrong}]})


GROUP = {"address": "231.7.7.7", "port": 9876}


@pytest.mark.parametrize(
    ("hosts", "changes", "expected"),
    [
        (singles(), {"n0": {"broker_cluster_connection": {"max-hops": 2}}}, "'max-hops'; set broker_cluster_max_hops"),
        (singles(), {"n0": {"broker_cluster_connection": {"discovery-group-ref": {}}}}, "which follows from the topo"),
        (singles(), {"n0": {"broker_cluster_members": ["n9"]}}, "n0: broker_cluster_members: names 'n9', which is no"),
        (singles(), {"n0": {"broker_cluster_members": ["n0"]}}, "n0: broker_cluster_members: names this host itself"),
        (singles(), {"n0": {"broker_cluster_members": [3]}}, "n0: broker_cluster_members: has 3 at [0]; give a name"),
        (singles(), {"n0": {"broker_cluster_load_balancing": "SOME"}}, "is 'SOME'; give one of ON_DEMAND, STRICT"),
        (singles(), {"n0": {"broker_cluster_retry_interval_multiplier": "x"}}, "is 'x'; give a number of at least 1"),
        (singles(), {"n0": {"broker_cluster_discovery": GROUP}}, "n1: broker_cluster_discovery: is {} but"),
        (singles(broker_cluster_discovery={"address": "a"}), {}, "must have either 'address' and 'port'"),
        (singles(broker_cluster_discovery={"adress": "a"}), {}, "has 'adress'; give only address, port"),
        (singles(broker_cluster_discovery={**GROUP, "port": "x"}), {}, "broker_cluster_discovery: has port 'x'"),
        (singles(broker_cluster_discovery=GROUP, broker_cluster_members=["n1"]), {}, "beside broker_cluster_discovery"),
        (singles(), {"n0": {"broker_cluster_discovery_interface": "10.0.0.1"}}, "without broker_cluster_discovery"),
        (singles(), {"n0": {**ALONE, "broker_cluster_members": ["n1"]}}, "but broker_cluster_connects is false"),
        (pairs(), {"a0": ALONE}, "a0: broker_cluster_connects: is false, but the node belongs to pair"),
        (singles(1, broker_cluster_max_hops=2), {}, "n0: broker_cluster_max_hops: is given, but the cluster"),
        (singles(broker_grouping_owner="n9"), {}, "n0: broker_grouping_owner: is 'n9', which is no primary"),
        (pairs(broker_grouping_owner="a1"), {}, "broker_grouping_owner: is 'a1', which is no primary"),
        (singles(broker_grouping_owner="n1"), {"n1": {"broker_scale_down": True}}, "n1: broker_scale_down: moves its"),
        (shared(broker_grouping_owner="n0"), {}, "n0: broker_grouping_owner: is 'n0', whose backups are hosted"),
        (singles(), {"n0": {"broker_grouping_owner": "n0"}}, "n1: broker_grouping_owner: is '' but 'n0' at n0"),
        (singles(), {"n0": {"broker_scale_down_to": ["n1"]}}, "is given, but broker_scale_down is false"),
        (singles(1, broker_scale_down=True), {}, "n0: broker_scale_down: is true, but the cluster has no other member"),
        (pairs(), {"a0": {"broker_scale_down": True}}, "a0: broker_scale_down: is true for the primary of a pair"),
        (pairs(), {"a1": {"broker_scale_down": True, "broker_scale_down_to": ["a0"]}}, "'a0', which is in the same"),
        (singles(), {"n0": {"broker_scale_down": True, "broker_scale_down_group_name": "g"}}, "which no other memb"),
        (singles(), {"n0": {"broker_scale_down": True, "broker_scale_down_discovered": True}}, "is true without brok"),
        (replicated_pairs(), {"a0": {"broker_scale_down": True}}, "a0: broker_scale_down: is true for the primary of"),
        (replicated_pairs(broker_coordination_id="c", broker_ha_role="primary", broker_lock_manager="witness",
                          broker_lock_manager_properties=SECRET),
         {"a1": {"broker_scale_down": True}}, "a1: broker_scale_down: is true, but only the primary of a pair returns"),
        (shared(1), {}, "n0: broker_backup_request: is true, but no other node"),
        (shared(3), {}, "n0: broker_backups_max: is 1 at 3 nodes"),
        (shared(2), {"n1": {"broker_backups_max": 0}}, "n0: broker_backup_request: is true, but no other node"),
        (shared(), {"n0": {"broker_pair": "p"}}, "n0: broker_pair: is 'p', but colocated nodes"),
        (shared(), {"n0": {"broker_ha_role": "backup"}}, "n0: broker_ha_role: is backup, but with colocated"),
        (shared(), {"n0": {"broker_store_directory": None}}, "n0: broker_store_directory: is missing; name a dir"),
        (shared(), {"n0": {"broker_store_directory": "/srv/n1"}}, "n1: broker_store_directory: is /srv/n1 like that"),
        (shared(), {"n0": {"broker_uid": 990}}, "n1: broker_uid: is 0 but 990 at n0; they open each other's stores"),
        (shared(), {"n0": {"broker_backup_excludes": ["x"]}}, "n0: broker_backup_excludes: names 'x', which is not in"),
        (shared(), {"n0": {"broker_port": 65500}}, "n0: broker_backup_port_offset: gives hosted backup 1 the port"),
        (shared(), {"n0": {"broker_sockets": {"b": {"port": 61716}}}}, "the socket 10.0.0.1:61716 of n0"),
        (singles(), {"n0": {"broker_backup_port_offset": 7}}, "n0: broker_backup_port_offset: is given, but broker"),
        (shared_port(), {"n0": {"broker_connector_parameters": {}}}, "must have httpUpgradeEnabled if, and only if"),
    ],
)  # fmt: skip
def test_what_cannot_be_deployed_names_host_and_variable(hosts: Hosts, changes: Hosts, expected: str) -> None:
    found = faults(with_changes(hosts, changes))
    assert any(expected in fault for fault in found), found


@pytest.mark.parametrize("hosts", [singles(), pairs(), shared(), shared_port(), shared(3, broker_backups_max=2)])
def test_whole_inventories_have_no_fault(hosts: Hosts) -> None:
    assert faults(hosts) == []
