"""Goal: the files of a deployed node give variables that hold no default, and these give the same files again."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.credentials import make_hash
from ansible_collections.understudy.broker.plugins.plugin_utils.export_node import (
    ExportedNode,
    Files,
    difference,
    export_node,
    service_variables,
    without_drill,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.render import broker_xml
from ansible_collections.understudy.broker.plugins.plugin_utils.topology import build_topology

HASH = make_hash("password of a test", bytes(16), 2, 1, 1)
SERVICE = {
    "backend": "systemd",
    "user": "understudy",
    "command": [
        *("/opt/understudy/current/bin/understudy", "run", "--config", "/opt/understudy/instance/etc/broker.xml"),
        *("--http", "127.0.0.1:8261", "--http-token-file", "/opt/understudy/instance/etc/management.token"),
    ],
}
PAIR: dict[str, dict[str, object]] = {
    name: {
        "broker_advertise_address": f"10.0.0.{number}",
        "broker_ha_policy": "shared_store",
        "broker_ha_role": role,
        "broker_pair": "east",
        "broker_store_directory": "/srv/east",
        "broker_port_offset": 100,
    }
    for number, (name, role) in enumerate({"a": "primary", "b": "backup"}.items())
}


def files(hosts: dict[str, dict[str, object]], host: str) -> Files:
    nodes: Any = build_topology(hosts, hosts).as_dict()["nodes"]
    inputs = {"cluster_user": "understudy.cluster", "cluster_password": "top-secret-password", "security_enabled": True}
    inputs |= {"dead_letter_address": "DLQ", "expiry_address": "ExpiryQueue"}
    text = broker_xml({"core": nodes[host]["core"], **inputs, "extra": {"id-cache-size": 500}}).text
    return Files(text, f"ann = {HASH}\n", "shops = ann\nempty = \n", SERVICE)


def export(hosts: dict[str, dict[str, object]], host: str) -> ExportedNode:
    return export_node(files(hosts, host), "/opt/understudy/instance", host, hosts)


@pytest.mark.parametrize("host", PAIR)
def test_a_node_of_a_pair(host: str) -> None:
    exported = export(PAIR, host)
    assert exported.unexpressed == ()
    assert exported.document == files(PAIR, host).document
    expected = {name: value for name, value in PAIR[host].items() if value != "primary"}
    assert exported.variables == {
        **expected,
        "broker_service_backend": "systemd",
        "broker_cluster_password": "top-secret-password",
        "broker_users": [{"name": "ann", "password_hash": HASH}],
        "broker_roles": [{"name": "shops", "users": ["ann"]}, {"name": "empty", "users": []}],
        "broker_config_extra": {"id-cache-size": "500"},
    }
    assert {"top-secret-password", HASH} <= set(exported.secrets)


def test_a_node_without_addresses_for_messages_that_no_consumer_takes() -> None:
    text = files(PAIR, "a").document
    for element in ("<dead-letter-address>DLQ</dead-letter-address>", "<expiry-address>ExpiryQueue</expiry-address>"):
        assert element in text
        text = text.replace(element, "")
    exported = export_node(Files(text, "", "", SERVICE), "/opt/understudy/instance", "a", PAIR)
    assert (exported.variables["broker_dead_letter_address"], exported.variables["broker_expiry_address"]) == ("", "")
    assert "dead-letter-address" not in exported.document


def test_a_host_that_is_in_no_inventory() -> None:
    hosts = {"n0": {"broker_advertise_address": "10.0.0.1"}}
    exported = export_node(files(hosts, "n0"), "/srv/n0", "n0", {"n0": {}})
    assert exported.variables["broker_advertise_address"] == "10.0.0.1"
    assert exported.variables["broker_store_directory"] == "/opt/understudy/instance/data"
    assert exported.document == files(hosts, "n0").document


def test_members_that_the_inventory_does_not_have_become_free_elements() -> None:
    """A node of a cluster, exported without the other nodes, keeps its cluster connection."""
    exported = export_node(files(PAIR, "a"), "/opt/understudy/instance", "a", {"a": {}})
    extra: Any = exported.variables["broker_config_extra"]
    assert extra["cluster-connections"]["cluster-connection"]["static-connectors"] == {"connector-ref": "b"}
    assert exported.variables["broker_connectors"] == [{"name": "b", "address": "10.0.0.1", "port": 61716}]
    assert exported.document.count("<connector-ref>b</connector-ref>") == 1


def test_entries_of_the_drill_are_those_of_the_role() -> None:
    found: dict[str, object] = {
        "broker_users": [{"name": "drill"}, {"name": "ann"}],
        "broker_roles": [{"name": "drill", "users": ["drill"]}],
        "broker_security_settings": [{"match": "#"}, {"match": "drill"}, {"match": "drill.kept"}],
        "broker_port": 1,
    }
    assert without_drill(found, "drill", "drill") == {
        "broker_users": [{"name": "ann"}],
        "broker_security_settings": [{"match": "#"}],
        "broker_port": 1,
    }


@pytest.mark.parametrize("service", [{}, {"command": []}, {"command": ["/usr/bin/understudy", "--http"]}])
def test_a_service_definition_of_another_hand(service: dict[str, object]) -> None:
    assert "broker_management_port" not in service_variables(service, "/srv/x")


def test_the_difference_of_two_documents_is_the_variables_to_set() -> None:
    before = files(PAIR, "a")
    text = before.document.replace("<id-cache-size>500</id-cache-size>", "").replace(
        "top-secret-password", "another-secret-password"
    )
    after = Files(text, before.users, before.roles, before.service)
    found = difference(*(export_node(each, "/opt/understudy/instance", "a", PAIR) for each in (before, after)))
    assert found.variables == {"broker_cluster_password": "********"}
    assert found.defaults == ("broker_config_extra",)
    assert found.unexpressed == ()
    exported = export_node(before, "/opt/understudy/instance", "a", PAIR)
    same = difference(exported, exported)
    assert (same.variables, same.defaults) == ({}, ())


def test_elements_beside_core_are_named_since_no_variable_makes_them() -> None:
    before = files(PAIR, "a")
    assert "<core" in before.document
    beside = '<path name="shared" path="/mnt"/><socket-binding-group name="sockets"/>'
    text = before.document.replace("<core", f"{beside}<core", 1)
    after = Files(text, before.users, before.roles, before.service)
    found = difference(*(export_node(each, "/opt/understudy/instance", "a", PAIR) for each in (before, after)))
    assert found.unexpressed == (
        "path shared: beside core, has no variable",
        "socket-binding-group sockets: beside core, has no variable",
    )
