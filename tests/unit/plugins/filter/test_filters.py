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


FILTERS = FilterModule().filters()
HOSTVARS = {"a": Variables(broker_advertise_address="10.0.0.1", ansible_facts={}, secret="x")}


def test_only_topology_variables_are_read() -> None:
    result = FILTERS["topology"](["a"], HOSTVARS)  # type: ignore[operator]
    assert result["faults"] == []
    assert result["nodes"]["a"]["connector"] == {"name": "a", "url": "tcp://10.0.0.1:61616"}


def test_strays_are_faults() -> None:
    result = FILTERS["topology"](["a"], HOSTVARS, "a", {"broker_port": 1})  # type: ignore[operator]
    assert any("a: broker_port: is 1 in this play" in fault for fault in result["faults"])


def test_a_host_outside_the_brokers_is_an_error() -> None:
    with pytest.raises(AnsibleFilterError, match="b is not among the broker hosts a"):
        FILTERS["topology"](["a"], HOSTVARS, "b", {})  # type: ignore[operator]


def test_incomplete_models_and_records_are_errors() -> None:
    with pytest.raises(AnsibleFilterError, match=r"broker\.xml cannot be rendered: KeyError"):
        FILTERS["broker_xml"]({})  # type: ignore[operator]
    with pytest.raises(AnsibleFilterError, match="records are incomplete: KeyError"):
        FILTERS["drill_report"]([{}], 1)  # type: ignore[operator]
