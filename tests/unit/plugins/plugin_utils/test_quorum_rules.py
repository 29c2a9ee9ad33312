"""Goal: a witness or an ensemble that would fail together with a pair is refused by name."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.filter.filters import topology
from ansible_collections.understudy.broker.plugins.plugin_utils.topology import build_topology

Hosts = dict[str, dict[str, object]]


def inventory(manager: str = "witness", properties: dict[str, str] | None = None) -> Hosts:
    common: dict[str, object] = {
        "broker_ha_policy": "replication",
        "broker_pair": "p",
        "broker_lock_manager": manager,
        "broker_lock_manager_properties": properties or {"addresses": "10.0.0.3:61619"},
    }
    return {
        "a1": {
            **common,
            "broker_ha_role": "primary",
            "broker_advertise_address": "10.0.0.1",
            "broker_failure_domain": "east",
        },
        "a2": {
            **common,
            "broker_ha_role": "backup",
            "broker_advertise_address": "10.0.0.2",
            "broker_failure_domain": "west",
        },
        "w": {"ansible_host": "10.0.0.3"},
    }


def faults(hosts: Hosts) -> list[str]:
    return [str(each) for each in build_topology(["a1", "a2"], hosts, ["w"]).faults]


def test_a_witness_elsewhere_is_accepted() -> None:
    hosts = inventory()
    hosts["w"]["broker_failure_domain"] = "north"
    assert faults(hosts) == []
    result = topology(["a1", "a2"], hosts, ["w"])
    assert result["faults"] == []
    assert result["clusters"] == {
        "understudy": {
            "members": ["a1", "a2"],
            "connectors": {"a1": "tcp://10.0.0.1:61616", "a2": "tcp://10.0.0.2:61616"},
            "groups": {"p": ["a1", "a2"]},
            "rings": [],
        }
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ansible_host": "a1"}, "w: ansible_host: runs a witness on the machine of a1"),
        ({"broker_failure_domain": "west"}, "w: broker_failure_domain: is 'west' like that of a2"),
    ],
)
def test_a_witness_that_fails_with_a_node_is_refused(changes: dict[str, object], expected: str) -> None:
    hosts = inventory()
    hosts["w"].update(changes)
    (fault,) = faults(hosts)
    assert fault.startswith(expected)


def test_a_witness_beside_pairs_that_do_not_use_it_is_accepted() -> None:
    hosts = inventory("file", {"locks-folder": "/srv/locks"})
    hosts["w"]["ansible_host"] = "a1"
    assert faults(hosts) == []


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("z1:2181,z2:2181,z3:2181", []),
        ("z1:2181", []),
        ("10.0.0.1:2181,z2:2181,z3:2181", []),
        ("z1:2181,z2:2181", ["a1: broker_lock_manager_properties: names 2 servers", "a2: broker_lock_man"]),
        ("10.0.0.1:2181,10.0.0.2:2181,z3:2181", ["a1: broker_lock_manager_properties: has servers", "a2: broker_lock"]),
    ],
)
def test_an_ensemble_is_odd_and_not_on_the_pair_alone(servers: str, expected: list[str]) -> None:
    found = faults(inventory("zookeeper", {"connect-string": servers}))
    assert len(found) == len(expected)
    for fault, beginning in zip(found, expected, strict=True):
        assert fault.startswith(beginning)
