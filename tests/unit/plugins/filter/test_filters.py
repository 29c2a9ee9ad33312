"""Goal: the filters read only what they should of the host variables, and turn faults into readable errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.understudy.broker.plugins.filter.filters import FilterModule


class Variables(dict[str, object]):
    """Host variables of which some must not be touched."""

    def __getitem__(self, name: str) -> object:
        assert name.startswith(("broker_", "ansible_host", "ansible_connection")), f"{name} was read"
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all variables were read")


class HostVariables(dict[str, Variables]):
    """hostvars, which computes all variables of a host whenever the host is looked up."""

    lookups = 0

    def __getitem__(self, name: str) -> Variables:
        self.lookups += 1
        return super().__getitem__(name)


FILTERS = FilterModule().filters()


def hostvars(**changes: object) -> HostVariables:
    return HostVariables(a=Variables(broker_advertise_address="10.0.0.1", ansible_facts={}, secret="x", **changes))


def test_only_topology_variables_are_read_and_each_host_once() -> None:
    given = hostvars()
    result = FILTERS["topology"](["a"], given)  # type: ignore[operator]
    assert result["faults"] == []
    connectors = result["nodes"]["a"]["core"]["connectors"]["connector"]
    assert connectors == [{"@name": "a", "#text": "tcp://10.0.0.1:61616"}]
    assert given.lookups == 1


def test_a_topology_holds_no_secret() -> None:
    given = hostvars(broker_cluster_password="cluster-secret", broker_management_token="token-secret")
    assert "-secret" not in str(FILTERS["topology"](["a"], given))  # type: ignore[operator]


def test_incomplete_models_and_records_are_errors() -> None:
    with pytest.raises(AnsibleFilterError, match=r"broker_config_extra: must be a mapping, not list"):
        FILTERS["broker_xml"]({"extra": [1]})  # type: ignore[operator]
    with pytest.raises(AnsibleFilterError, match=r"broker_network_\*: KeyError"):
        FILTERS["broker_sockets"]({}, "a", "broker_network_")  # type: ignore[operator]
    with pytest.raises(AnsibleFilterError, match="client_url: 'STOMP' is none of CORE, AMQP091"):
        FILTERS["client_url"]("tcp://a:1", "STOMP")  # type: ignore[operator]
    with pytest.raises(AnsibleFilterError, match="records are incomplete: KeyError"):
        FILTERS["drill_report"]([{}], 1)  # type: ignore[operator]


def test_sockets_are_named_for_the_role_that_tries_them() -> None:
    values = {
        "advertise_address": "a.example",
        "bind_address": "10.0.0.1",
        "port": 61616,
        "port_offset": 10,
        "management_address": "127.0.0.1",
        "management_port": 8161,
        "sockets": {"more": {"port": 5000}, "none": {}},
    }
    result = FILTERS["broker_sockets"](values, "east-1", "broker_network_")  # type: ignore[operator]
    assert [(each["name"], each["port"]) for each in result["listening"]] == [
        ("core", 61626),
        ("more", 5010),
        ("amqp091", 5682),
        ("management", 8171),
    ]
    assert result["faults"] == ["broker_network_sockets: lacks the port of 'none', which is a number"]
    assert result["core"]["connectors"] == {"connector": [{"@name": "east-1", "#text": "tcp://a.example:61626"}]}


@pytest.mark.parametrize(("address", "remote"), [("127.0.0.1", False), ("::1", False), ("10.0.0.1", True)])
def test_management_beyond_the_machine_is_allowed_explicitly(address: str, remote: bool) -> None:
    options = FILTERS["management_options"](address, 8161, "/t")  # type: ignore[operator]
    shown = f"[{address}]" if ":" in address else address
    assert options[:4] == ["--http", f"{shown}:8161", "--http-token-file", "/t"]
    assert ("--http-allow-remote" in options) is remote
