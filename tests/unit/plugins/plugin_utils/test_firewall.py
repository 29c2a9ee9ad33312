"""Goal: the firewall of a node admits its members and its clients to the right ports, unusable sources are named."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.filter.filters import topology
from ansible_collections.understudy.broker.plugins.plugin_utils.topology import build_topology

Hosts = dict[str, dict[str, object]]


def pair(**changes: object) -> Hosts:
    common: dict[str, object] = {
        "broker_ha_policy": "shared_store",
        "broker_pair": "p",
        "broker_store_directory": "/srv/p",
        "broker_firewall": True,
        "broker_client_sources": ["10.20.0.0/16"],
        "broker_amqp091_port": 0,
        **changes,
    }
    roles = {"a1": "primary", "a2": "backup"}
    return {
        name: {**common, "broker_ha_role": role, "broker_advertise_address": f"10.0.0.{number}"}
        for number, (name, role) in enumerate(roles.items(), 1)
    }


def ports(hosts: Hosts, host: str = "a1") -> list[dict[str, object]]:
    result: Any = topology(hosts, hosts)
    assert result["faults"] == []
    found: list[dict[str, object]] = result["nodes"][host]["firewall_ports"]
    return found


def test_members_and_clients_may_connect_to_core() -> None:
    assert ports(pair()) == [{"port": 61616, "sources": ["10.0.0.2", "10.20.0.0/16"]}]


def test_clients_may_connect_to_the_port_of_amqp_0_9_1() -> None:
    assert ports(pair(broker_amqp091_port=-1))[0] == {"port": 5672, "sources": ["10.20.0.0/16"]}


def test_a_socket_may_be_for_members_or_for_clients_only() -> None:
    hosts = pair(
        broker_port_offset=100,
        broker_interfaces={"inner": {"bind_address": "0.0.0.0", "advertise_address": "10.1.0.9"}},
        broker_sockets={
            "core": {"sources": ["members"]},
            "public": {"port": 5672, "sources": ["clients"]},
            "closed": {"port": 5673, "sources": [], "interface": "inner"},
        },
    )
    assert ports(hosts) == [
        {"port": 5772, "sources": ["10.20.0.0/16"]},
        {"port": 5773, "sources": []},
        {"port": 61716, "sources": ["10.0.0.2", "10.1.0.9"]},
    ]


def test_management_is_guarded_where_others_could_reach_it() -> None:
    hosts = pair(broker_management_address="0.0.0.0", broker_management_sources=["10.30.0.1"])
    assert ports(hosts)[0] == {"port": 8161, "sources": ["10.30.0.1"]}


def test_a_node_may_connect_from_other_addresses_than_it_advertises() -> None:
    hosts = pair()
    hosts["a2"]["broker_source_addresses"] = ["10.9.0.2"]
    assert ports(hosts)[0]["sources"] == ["10.20.0.0/16", "10.9.0.2"]


def test_the_ports_of_hosted_backups_are_guarded_as_well() -> None:
    common = {
        "broker_ha_policy": "colocated_shared_store",
        "broker_firewall": True,
        "broker_client_sources": ["10.20.0.0/16"],
        "broker_sockets": {"web": {"port": 8080, "parameters": {"httpUpgradeEnabled": True}}},
    }
    hosts: Hosts = {
        f"n{number}": {
            **common,
            "broker_advertise_address": f"10.0.0.{number}",
            "broker_store_directory": f"/srv/{number}",
        }
        for number in (1, 2)
    }
    assert [each["port"] for each in ports(hosts, "n1")] == [5672, 5772, 8080, 61616, 61716]


@pytest.mark.parametrize(
    ("host", "changes", "fault"),
    [
        ("a1", {"broker_client_sources": []}, "a1: broker_client_sources: is empty, but broker_firewall is true"),
        ("a1", {"broker_client_sources": ["office"]}, "a1: broker_client_sources: has 'office'; give an address or"),
        ("a1", {"broker_management_sources": ["10.0.0.0/40"]}, "a1: broker_management_sources: has '10.0.0.0/40'"),
        ("a2", {"broker_advertise_address": "a2.example"}, "a2: broker_source_addresses: has 'a2.example', which the"),
    ],
)
def test_unusable_sources_are_named(host: str, changes: dict[str, object], fault: str) -> None:
    hosts = pair()
    hosts[host].update(changes)
    found = [str(each) for each in build_topology(hosts, hosts).faults]
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_names_are_fine_without_a_firewall() -> None:
    hosts = pair(broker_firewall=False, broker_client_sources=[])
    hosts["a2"]["broker_advertise_address"] = "a2.example"
    assert build_topology(hosts, hosts).faults == ()
