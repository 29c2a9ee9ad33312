"""Goal: URLs of sockets give back their parameters, ports carry the offset, and unusable entries are named."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import Sockets, open_sockets, tcp_url
from hypothesis import given
from hypothesis import strategies as st

BASE: dict[str, object] = {
    "advertise_address": "10.0.0.1",
    "bind_address": "0.0.0.0",
    "port": 61616,
    "port_offset": 0,
    "management_address": "127.0.0.1",
    "management_port": 8161,
}


def sockets(**changes: object) -> Sockets:
    return open_sockets("east-1", {**BASE, **changes})


@given(st.dictionaries(st.from_regex(r"[A-Za-z-]{1,10}", fullmatch=True), st.text(min_size=1), max_size=3))
def test_any_parameter_comes_back(parameters: dict[str, str]) -> None:
    query = urlsplit(tcp_url("a", 1, parameters)).query
    assert parse_qs(query, separator=";") == {name: [value] for name, value in parameters.items()}


def test_lists_and_booleans_are_spelt_as_the_broker_reads_them() -> None:
    parameters = {
        "protocols": ["CORE", "STOMP"],
        "sslEnabled": True,
        "keyStorePath": "/etc/key store",
        "x": "${secret}",
    }
    assert tcp_url("::1", 5, parameters) == (
        "tcp://[::1]:5?protocols=CORE,STOMP;sslEnabled=true;keyStorePath=/etc/key%20store;x=${secret}"
    )


def test_the_acceptor_core_is_always_there_and_takes_parameters() -> None:
    found = sockets(acceptors=[{"name": "more", "port": 5000}, {"name": "core", "parameters": {"backlog": 5}}])
    assert [each.url for each in found.acceptors] == ["tcp://0.0.0.0:61616?backlog=5", "tcp://0.0.0.0:5000"]
    assert found.faults == ()


def test_the_offset_is_added_to_what_this_node_opens() -> None:
    found = sockets(
        port_offset=100,
        acceptors=[{"name": "more", "port": 5000, "address": "10.0.0.9"}],
        connectors=[{"name": "far", "address": "b"}, {"name": "near", "address": "c", "port": 7}],
        connector_parameters={"a": 1},
    )
    assert [each.url for each in found.acceptors] == ["tcp://0.0.0.0:61716", "tcp://10.0.0.9:5100"]
    assert found.connector.url == "tcp://10.0.0.1:61716?a=1"
    assert [each.url for each in found.connectors] == ["tcp://b:61616", "tcp://c:7"]
    assert found.management_url == "http://127.0.0.1:8261"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"port_offset": 4000}, ("port", "is 61616 with the offset 4000; give a port from 1 to 65535")),
        ({"acceptors": [{"name": "a", "port": 0}]}, ("acceptors", "is 0; give a port from 1 to 65535")),
        ({"acceptors": [{"name": "a"}]}, ("acceptors", "lacks the port of 'a' at [0]")),
        ({"acceptors": [{"name": "a", "port": True}]}, ("acceptors", "lacks the port of 'a' at [0]")),
        ({"acceptors": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, ("acceptors", "names 'a' twice")),
        ({"acceptors": [{"name": "a", "port": 1, "parameters": "x"}]}, ("acceptors", "has parameters at [0] that")),
        ({"acceptors": [{"name": "core", "port": 1}]}, ("acceptors", "set broker_bind_address and broker_port")),
        ({"connectors": [{"name": "east-1", "address": "b"}]}, ("connectors", "names 'east-1' twice")),
        ({"connectors": [{"name": "x", "address": "b", "port": "y"}]}, ("connectors", "has the port 'y' at [0]")),
    ],
)
def test_unusable_entries_are_named(changes: dict[str, object], fault: tuple[str, str]) -> None:
    (found,) = sockets(**changes).faults
    assert found[0] == fault[0]
    assert fault[1] in found[1]
