"""Goal: URLs of sockets give back their parameters, ports carry the offset, and unusable entries are named."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.sockets import (
    Sockets,
    client_url,
    open_sockets,
    tcp_url,
)
from hypothesis import given
from hypothesis import strategies as st

BASE: dict[str, object] = {
    "advertise_address": "10.0.0.1",
    "bind_address": "0.0.0.0",
    "port": 61616,
    "port_offset": 0,
    "management_address": "127.0.0.1",
    "management_port": 8161,
    "amqp091_port": 0,
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


@pytest.mark.parametrize(
    ("url", "over_amqp"),
    [
        ("tcp://a:61616", "amqp091://a:61616/"),
        ("tcp://[::1]:5?callTimeout=9", "amqp091://[::1]:5/?callTimeout=9"),
        ("(tcp://a:1,tcp://b:2)?ha=true&retryInterval=9", "amqp091://a:1,b:2/?ha=true&retryInterval=9"),
        (
            "(tcp://a:1?sslEnabled=true&trustStorePath=/ca,tcp://b:2?sslEnabled=true&trustStorePath=/ca)?ha=true",
            "amqp091+tls://a:1,b:2/?trustStorePath=/ca&ha=true",
        ),
        ("(tcp://a:1?x=1,2,tcp://b:2?x=1,2)", "amqp091://a:1,b:2/?x=1,2"),
    ],
)
def test_a_url_of_the_same_sockets_over_amqp(url: str, over_amqp: str) -> None:
    assert client_url(url, "AMQP091") == over_amqp
    assert client_url(url, "CORE") == url


def test_a_client_trusts_the_file_of_its_own_host() -> None:
    url = "(tcp://a:1?sslEnabled=true&trustStorePath=/a1/ca.pem,tcp://b:2?trustStorePath=/a2/ca.pem&x=1)?ha=true"
    own = "(tcp://a:1?sslEnabled=true&trustStorePath=/c/ca.pem,tcp://b:2?trustStorePath=/c/ca.pem&x=1)?ha=true"
    assert client_url(url, "CORE", "/c/ca.pem") == own
    assert client_url("tcp://a:1?x=1", "CORE", "/c/ca.pem") == "tcp://a:1?x=1"
    parts = (f"tcp://{place}?sslEnabled=true&trustStorePath=/{place[0]}.pem" for place in ("a:1", "b:2"))
    assert client_url(f"({','.join(parts)})", "AMQP091", "/c.pem") == "amqp091+tls://a:1,b:2/?trustStorePath=/c.pem"


def test_a_url_over_amqp_has_no_parameters_of_single_nodes() -> None:
    with pytest.raises(ValueError, match="nodes a:1, b:2 have different parameters"):
        client_url("(tcp://a:1?x=1,tcp://b:2)?ha=true", "AMQP091")
    with pytest.raises(ValueError, match="'STOMP' is none of CORE, AMQP091"):
        client_url("tcp://a:1", "STOMP")


def test_the_acceptor_core_is_always_there_and_takes_parameters() -> None:
    found = sockets(sockets={"more": {"port": 5000}, "core": {"parameters": {"backlog": 5}}})
    assert [each.url for each in found.acceptors] == ["tcp://0.0.0.0:61616?backlog=5", "tcp://0.0.0.0:5000"]
    assert found.faults == ()


def test_the_offset_is_added_to_what_this_node_opens() -> None:
    found = sockets(
        port_offset=100,
        interfaces={"inner": {"bind_address": "10.0.0.9"}},
        sockets={"more": {"port": 5000, "interface": "inner"}},
        connectors=[{"name": "far", "address": "b"}, {"name": "near", "address": "c", "port": 7}],
        connector_parameters={"a": 1},
    )
    assert [each.url for each in found.acceptors] == ["tcp://0.0.0.0:61716", "tcp://10.0.0.9:5100"]
    assert found.connector.url == "tcp://10.0.0.1:61716?a=1"
    assert [each.url for each in found.connectors] == ["tcp://b:61616", "tcp://c:7"]
    assert found.management_url == "http://127.0.0.1:8261"


def test_a_socket_has_its_own_network_protocols_and_sources() -> None:
    found = sockets(
        interfaces={
            "inner": {"bind_address": "10.1.0.1"},
            "outer": {"bind_address": "0.0.0.0", "advertise_address": "192.0.2.1"},
        },
        sockets={
            "messaging": {"port": 5445, "interface": "inner", "protocols": ["CORE"], "sources": ["members"]},
            "public": {"port": 5672, "interface": "outer", "protocols": "AMQP,STOMP", "sources": ["clients"]},
        },
    )
    assert found.faults == ()
    assert [(each.name, each.url, each.advertised, each.sources) for each in found.acceptors] == [
        ("core", "tcp://0.0.0.0:61616", "10.0.0.1", ("members", "clients")),
        ("messaging", "tcp://10.1.0.1:5445?protocols=CORE", "10.1.0.1", ("members",)),
        ("public", "tcp://0.0.0.0:5672?protocols=AMQP,STOMP", "192.0.2.1", ("clients",)),
    ]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"port_offset": 4000}, ("port", "is 61616 with the offset 4000; give a port from 1 to 65535")),
        ({"sockets": {"a": {"port": 0}}}, ("sockets", "is 0; give a port from 1 to 65535")),
        ({"sockets": {"a": None}}, ("sockets", "lacks the port of 'a'")),
        ({"sockets": {"a": {"port": True}}}, ("sockets", "lacks the port of 'a'")),
        ({"sockets": {"a": 5}}, ("sockets", "has for 'a' a int; give a mapping")),
        ({"sockets": {"a": {"prot": 1}}}, ("sockets", "has 'prot' for 'a'; give only port, interface, protocols")),
        (
            {"sockets": {"a": {"port": 1, "interface": "x"}}},
            ("sockets", "has the interface 'x' for 'a'; broker_"),
        ),
        ({"sockets": {"a": {"port": 1, "parameters": "x"}}}, ("sockets", "has parameters for 'a' that are no mapping")),
        ({"sockets": {"a": {"port": 1, "sources": ["x"]}}}, ("sockets", "has the source 'x' for 'a'; give members")),
        (
            {"sockets": {"a": {"port": 1, "protocols": "CORE", "parameters": {"protocols": "AMQP"}}}},
            ("sockets", "has protocols for 'a' twice"),
        ),
        ({"sockets": {"core": {"port": 1}}}, ("sockets", "set broker_port and broker_bind_address")),
        ({"interfaces": {"i": "10.0.0.1"}}, ("interfaces", "needs, for 'i', a mapping with bind_address")),
        ({"interfaces": {"i": {"bind_address": "::"}}}, ("interfaces", "has no address that others could connect to")),
        ({"connectors": [{"name": "east-1", "address": "b"}]}, ("connectors", "names 'east-1' twice")),
        ({"connectors": [{"name": "x", "address": "b", "port": "y"}]}, ("connectors", "has the port 'y' at [0]")),
    ],
)
def test_unusable_entries_are_named(changes: dict[str, object], fault: tuple[str, str]) -> None:
    (found,) = sockets(**changes).faults
    assert found[0] == fault[0]
    assert fault[1] in found[1]


def amqp091(**changes: object) -> tuple[str, tuple[str, ...]] | None:
    """URL and sources of the acceptor for AMQP 0-9-1; None: there is none."""
    found = sockets(**{"amqp091_port": -1, **changes})
    assert not found.faults
    return next(((each.url, each.sources) for each in found.acceptors if each.name == "amqp091"), None)


@pytest.mark.parametrize(
    ("changes", "url"),
    [
        ({}, "tcp://0.0.0.0:5672?protocols=AMQP091"),
        ({"port_offset": 100}, "tcp://0.0.0.0:5772?protocols=AMQP091"),
        ({"port": 61617}, None),
        ({"port": 61617, "amqp091_port": 5673}, "tcp://0.0.0.0:5673?protocols=AMQP091"),
        ({"amqp091_port": 0}, None),
        ({"protocols": ["CORE"]}, None),
        ({"protocols": ["CORE"], "amqp091_port": 5672}, None),
        ({"sockets": {"other": {"port": 5672}}}, None),
        ({"amqp091_virtual_hosts": ["shop", "x"]}, "tcp://0.0.0.0:5672?protocols=AMQP091;virtualHosts=shop,x"),
    ],
)
def test_the_acceptor_for_amqp_0_9_1(changes: dict[str, object], url: str | None) -> None:
    assert amqp091(**changes) == (None if url is None else (url, ("clients",)))


def test_amqp_0_9_1_has_the_tls_of_core_and_not_what_only_core_has() -> None:
    parameters = {"sslEnabled": True, "keyStorePath": "k.pem", "httpUpgradeEnabled": True}
    found = amqp091(sockets={"core": {"protocols": "CORE,AMQP091", "parameters": parameters}})
    assert found is not None
    assert found[0] == "tcp://0.0.0.0:5672?protocols=AMQP091;sslEnabled=true;keyStorePath=k.pem"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"protocols": ["CORE", "MQTT"]}, ("protocols", "has 'MQTT'")),
        ({"protocols": ["AMQP091"]}, ("protocols", "lacks CORE")),
        ({"amqp091_port": 65000, "port_offset": 1000, "port": 1, "management_port": 1}, ("amqp091_port", "is 65000")),
        ({"amqp091_port": 5672, "sockets": {"amqp091": {"port": 5673}}}, ("sockets", "has the acceptor amqp091")),
    ],
)
def test_protocols_that_cannot_be_served(changes: dict[str, object], fault: tuple[str, str]) -> None:
    ((variable, problem),) = sockets(**changes).faults
    assert variable == fault[0]
    assert problem.startswith(fault[1])


def test_without_amqp_0_9_1_core_says_so() -> None:
    assert sockets(protocols=["CORE"]).core.url == "tcp://0.0.0.0:61616?protocols=CORE"
    assert sockets().core.url == "tcp://0.0.0.0:61616"


def test_an_acceptor_of_that_name_in_the_sockets_is_the_only_one() -> None:
    found = sockets(amqp091_port=-1, sockets={"amqp091": {"port": 5673}})
    assert [(each.name, each.port) for each in found.acceptors] == [("core", 61616), ("amqp091", 5673)]
