"""Goal: the inventory of a replicated pair, or of a broker with TLS, gives a broker.xml that the broker reads as meant.

Method: the broker's own reader judges the rendered text; the plugins themselves never import understudy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.redaction import redact
from ansible_collections.understudy.broker.plugins.plugin_utils import topology
from ansible_collections.understudy.broker.plugins.plugin_utils.render import broker_xml
from understudy.config.high_availability import ReplicationConfiguration, Role
from understudy.config.lock_options import FileLockOptions, WitnessLockOptions, ZooKeeperLockOptions
from understudy.config.reading.reader import read_broker_xml

Hosts = dict[str, dict[str, object]]


def pair(**changes: object) -> Hosts:
    """A replicated pair on two hosts with a witness, and changes for both nodes."""
    common: dict[str, object] = {
        "broker_ha_policy": "replication",
        "broker_pair": "p",
        "broker_lock_manager_properties": {"addresses": "10.0.0.3:61619"},
        **changes,
    }
    return {
        "a": {"broker_ha_role": "primary", "broker_advertise_address": "10.0.0.1", **common},
        "b": {"broker_ha_role": "backup", "broker_advertise_address": "10.0.0.2", **common},
    }


def faults(hosts: Hosts) -> list[str]:
    return [str(fault) for fault in topology.build_topology(hosts, hosts).faults]


def rendered(hosts: Hosts, name: str) -> str:
    """broker.xml of a node; the inventory must have no fault."""
    built = topology.build_topology(hosts, hosts)
    assert built.faults == ()
    nodes: Any = built.as_dict()["nodes"]
    return broker_xml(
        {"core": nodes[name]["core"], "cluster_user": "c", "cluster_password": "a password of a test"}
    ).text


def read(hosts: Hosts, name: str) -> Any:
    """The policy as the broker reads it."""
    text = rendered(hosts, name).encode()
    return read_broker_xml(text, file="broker.xml", base_directory="/srv").configuration.ha_policy


def test_the_defaults_of_the_variables_are_those_of_the_broker() -> None:
    for name, role in (("a", Role.PRIMARY), ("b", Role.BACKUP)):
        policy = read(pair(), name)
        manager = WitnessLockOptions((("10.0.0.3", 61619),), "/opt/understudy/instance/etc/witness-secret")
        assert policy.role is role
        assert policy.replication == ReplicationConfiguration(group_name="p", lock_manager=manager)


@pytest.mark.parametrize("manager", ["witness", "zookeeper", "file", "votes"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_pair_with_defaults_starts_without_a_warning(manager: str, name: str) -> None:
    properties = {
        "witness": {"addresses": "10.0.0.3:61619"},
        "zookeeper": {"connect-string": "z1:2181,z2:2181,z3:2181"},
        "file": {"locks-folder": "/srv/locks"},
        "votes": {},
    }
    hosts = pair(broker_lock_manager=manager, broker_lock_manager_properties=properties[manager])
    text = rendered(hosts, name)
    assert [str(each) for each in read_broker_xml(text.encode(), file="x", base_directory="/srv").warnings] == []
    assert ("vote-retries" in text) is (manager == "votes")


def test_a_setting_of_votes_that_an_inventory_gives_is_written_and_the_broker_warns_of_it() -> None:
    text = rendered(pair(broker_vote_retries=3), "a")
    (warning,) = read_broker_xml(text.encode(), file="x", base_directory="/srv").warnings
    assert "vote-retries: has no effect with a manager" in str(warning)


SETTINGS = {
    "broker_durability_contract": ("durability_contract", "replica-memory"),
    "broker_group_name": ("group_name", "west"),
    "broker_initial_replication_sync_timeout_ms": ("initial_replication_sync_timeout_ms", 5000),
    "broker_max_saved_replicated_journals_size": ("max_saved_replicated_journals_size", -1),
    "broker_retry_replication_wait_ms": ("retry_replication_wait_ms", 100),
    "broker_vote_on_replication_failure": ("vote_on_replication_failure", True),
    "broker_vote_quorum_size": ("quorum_size", 3),
    "broker_vote_retries": ("vote_retries", 4),
    "broker_vote_retry_wait_ms": ("vote_retry_wait_ms", 700),
    "broker_vote_answer_wait_s": ("quorum_vote_wait_seconds", 9),
}


@pytest.mark.parametrize("variable", SETTINGS)
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_variable_changes_its_element_and_no_other(variable: str, name: str) -> None:
    field, value = SETTINGS[variable]
    before, after = (dataclasses.asdict(read(pair(**given), name).replication) for given in ({}, {variable: value}))
    changed = {each for each in after if after[each] != before[each]}
    assert changed == {field}
    assert getattr(after[field], "value", after[field]) == value


@pytest.mark.parametrize(
    ("manager", "properties", "expected"),
    [
        (
            "witness",
            {"addresses": "w1:1,w2:2", "secret-file": "/etc/s", "lease-ms": 3000, "id": "ab" * 16},
            WitnessLockOptions((("w1", 1), ("w2", 2)), "/etc/s", 3000, bytes.fromhex("ab" * 16)),
        ),
        (
            "zookeeper",
            {
                "connect-string": "z1:2181,z2:2181,z3:2181",
                "namespace": "orders",
                "session-ms": 12000,
                "session-percent": 50,
                "connection-ms": 4000,
                "retries": 3,
                "retries-ms": 500,
                "auth": "digest:orders:hidden",
            },
            ZooKeeperLockOptions("z1:2181,z2:2181,z3:2181", "orders", 12000, 50, 4000, 3, 500, "digest:orders:hidden"),
        ),
        ("file", {"locks-folder": "/srv/locks"}, FileLockOptions("/srv/locks")),
    ],
)
def test_every_property_of_a_lock_manager_can_be_given(
    manager: str, properties: dict[str, object], expected: object
) -> None:
    hosts = pair(broker_lock_manager=manager, broker_lock_manager_properties=properties)
    assert read(hosts, "a").replication.lock_manager == expected


def test_the_credential_of_zookeeper_is_masked_and_the_path_of_a_secret_is_shown() -> None:
    properties = {"connect-string": "z:2181", "auth": "digest:orders:hidden"}
    hosts = pair(broker_lock_manager="zookeeper", broker_lock_manager_properties=properties)
    nodes: Any = topology.build_topology(hosts, hosts).as_dict()["nodes"]
    document = broker_xml({"core": nodes["a"]["core"]})
    assert document.secrets == ("digest:orders:hidden",)
    assert "hidden" not in redact(document.text, ())
    nodes = topology.build_topology(pair(), pair()).as_dict()["nodes"]
    assert broker_xml({"core": nodes["a"]["core"]}).secrets == ()


def test_failback_is_rendered_for_the_backup() -> None:
    assert read(pair(broker_failback=False, broker_restart_backup=False), "b").allow_failback is False
    assert read(pair(), "b").allow_failback is True


def test_equal_primaries_share_an_identity_and_are_ready_in_either_state() -> None:
    hosts = pair(broker_coordination_id="orders", broker_ha_role="primary")
    built = topology.build_topology(hosts, hosts)
    assert [built.pairs[0].primary, *built.pairs[0].backups] == ["a", "b"]
    assert [node.start_gate for node in built.nodes] == ["ready", "ready"]
    for name in hosts:
        assert (read(hosts, name).role, read(hosts, name).replication.coordination_id) == (Role.PRIMARY, "orders")
    assert (
        "broker_ha_role: is backup, but pair 'p' has a broker_coordination_id"
        in faults({**hosts, "b": {**hosts["b"], "broker_ha_role": "backup"}})[0]
    )


def test_each_node_has_a_store_of_its_own() -> None:
    nodes: Any = topology.build_topology(pair(), pair()).as_dict()["nodes"]
    assert [(node["peers"], node["store_peers"]) for node in nodes.values()] == [(["b"], []), (["a"], [])]
    here: dict[str, object] = {"ansible_connection": "local", "broker_store_directory": "/srv/p"}
    together = {name: {**values, **here, "broker_root": f"/opt/{name}"} for name, values in pair().items()}
    assert any(
        "b: broker_store_directory: is /srv/p, which a uses on the same machine" in each for each in faults(together)
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"broker_lock_manager_properties": {}},
            "lacks 'addresses' or 'members', which the lock manager witness",
        ),
        (
            {"broker_lock_manager_properties": {"addresses": "w:1", "members": "u:1,v:1,w:1"}},
            "has more than one of 'addresses' or 'members'",
        ),
        ({"broker_lock_manager": "zookeeper"}, "lacks 'connect-string', which the lock manager zookeeper needs"),
        ({"broker_lock_manager": "file"}, "lacks 'locks-folder', which the lock manager file needs"),
        ({"broker_lock_manager": "votes"}, "is given, but votes uses no lock manager; remove it"),
        (
            {"broker_ha_policy": "shared_store", "broker_store_directory": "/srv/p"},
            "is given, but shared_store uses no lock manager; remove it",
        ),
        ({"broker_lock_manager": "paxos"}, "is 'paxos'; give one of witness, zookeeper, file, votes"),
        ({"broker_lock_manager_properties": "w:1"}, "is a str; give a mapping"),
        ({"broker_max_saved_replicated_journals_size": -2}, "is '-2'; give a whole number of at least -1"),
        ({"broker_pair": ""}, "is missing; replication nodes belong to a named pair"),
        ({"broker_durability_contract": "all"}, "is 'all'; give one of local, replica-memory, replica-disk"),
    ],
)
def test_a_fault_names_the_variable(changes: dict[str, object], expected: str) -> None:
    found = faults(pair(**changes))
    assert any(expected in each and each.startswith("a: broker_") for each in found), found


def test_both_nodes_use_the_same_lock_manager() -> None:
    hosts = pair()
    hosts["b"]["broker_lock_manager_properties"] = {"addresses": "10.0.0.4:61619"}
    (fault,) = faults(hosts)
    assert "b: broker_lock_manager_properties: is " in fault
    assert "the nodes of pair 'p' must agree" in fault


def test_tls_of_acceptors_and_connectors_is_given_as_parameters() -> None:
    host = {
        "broker_advertise_address": "10.0.0.1",
        "broker_sockets": {
            "core": {
                "parameters": {
                    "sslEnabled": True,
                    "keyStorePath": "broker.pem",
                    "trustStorePath": "ca.pem",
                    "needClientAuth": True,
                    "enabledProtocols": ["TLSv1.2", "TLSv1.3"],
                },
            }
        },
        "broker_connector_parameters": {"sslEnabled": True, "trustStorePath": "/etc/understudy/ca.pem"},
    }
    configuration = read_broker_xml(
        rendered({"solo": host}, "solo").encode(), file="broker.xml", base_directory="/srv/etc"
    ).configuration
    (connector,) = configuration.connectors
    assert [acceptor.name for acceptor in configuration.acceptors] == ["core", "amqp091"]
    for acceptor in configuration.acceptors:
        assert acceptor.tls is not None
        assert acceptor.tls.need_client_auth
        assert acceptor.tls.protocols == ("TLSv1.2", "TLSv1.3")
    assert connector.tls is not None


def two_pairs(**changes: object) -> Hosts:
    """Two replicated pairs of one cluster, with the variables of docs/operate/pair.md, and changes for all nodes."""
    hosts: Hosts = {}
    for number, name in enumerate(("east", "west")):
        for role in ("primary", "backup"):
            hosts[f"{name}_{role}"] = {
                "broker_ha_policy": "replication",
                "broker_cluster_name": "orders",
                "broker_pair": name,
                "broker_ha_role": role,
                "broker_advertise_address": f"10.0.{number}.{1 + (role == 'backup')}",
                "broker_lock_manager_properties": {"addresses": "10.0.9.3:61619"},
                **changes,
            }
    return hosts


def test_each_of_two_pairs_has_a_group_name_of_its_own_by_default() -> None:
    hosts = two_pairs()
    assert {name: read(hosts, name).replication.group_name for name in hosts} == {
        "east_primary": "east",
        "east_backup": "east",
        "west_primary": "west",
        "west_backup": "west",
    }


@pytest.mark.parametrize(("group", "said"), [("", "is empty"), ("all", "is 'all'")])
def test_two_pairs_that_would_take_the_backups_of_each_other_are_refused(group: str, said: str) -> None:
    found = faults(two_pairs(broker_group_name=group))
    assert [each.split(": ")[:2] for each in found] == [
        ["west_backup", "broker_group_name"],
        ["west_primary", "broker_group_name"],
    ]
    assert all(f"{said} like that of pair 'east' of cluster 'orders'" in each for each in found)


def test_pairs_of_two_clusters_may_have_the_same_group_name() -> None:
    hosts = two_pairs(broker_group_name="all")
    for name in ("west_primary", "west_backup"):
        hosts[name]["broker_cluster_name"] = "bills"
    assert faults(hosts) == []
