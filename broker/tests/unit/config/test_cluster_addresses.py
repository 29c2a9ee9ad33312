"""Addresses of several cluster connections of a node."""

from __future__ import annotations

from itertools import product

import pytest

from support.config import CONNECTORS, PASSWORD, fails, read
from understudy.config.cluster_addresses import by_connector, cluster_of, common_prefix, covers, split_addresses


def connections(*addresses: str, refs: tuple[str, ...] = ("own", "own", "own")) -> str:
    inner = "".join(
        f'\n<cluster-connection name="c{number}"><connector-ref>{ref}</connector-ref>'
        f"<address>{address}</address><max-hops>{number + 1}</max-hops></cluster-connection>"
        for number, (address, ref) in enumerate(zip(addresses, refs, strict=False))
    )
    return f"{PASSWORD}{CONNECTORS}<cluster-connections>{inner}</cluster-connections>"


def test_an_address_belongs_to_one_cluster_connection() -> None:
    found = read(connections("news", "orders,!orders.old", "!news,!orders")).configuration.cluster_connections
    names = {
        address: getattr(cluster_of(found, address), "name", None)
        for address in ("news.today", "orders", "orders.old.1", "other", "new")
    }
    assert names == {"news.today": "c0", "orders": "c1", "orders.old.1": None, "other": "c2", "new": "c2"}


@pytest.mark.parametrize(
    ("one", "other", "prefix"),
    [
        ("", "", ""),
        ("", "a", "a"),
        ("a", "ab", "ab"),
        ("a,b", "c,b.x", "b.x"),
        ("!a", "!b", ""),
        ("!a", "a", None),
        ("!a", "ab", None),
        ("!ab", "a", "a"),
        ("a,!ab", "ab", None),
        ("a,!abc", "ab", "ab"),
        ("a", "b", None),
        ("a,!a", "a", None),
    ],
)
def test_two_texts_take_a_common_address(one: str, other: str, prefix: str | None) -> None:
    assert common_prefix(one, other) == common_prefix(other, one) == prefix


def test_the_common_prefix_agrees_with_every_short_address() -> None:
    """Method: all addresses of up to four letters, all texts of two parts."""
    parts = ["", "a", "b", "ab", "!a", "!b", "!ab", "!aba"]
    addresses = ["".join(each) for size in range(1, 5) for each in product("ab", repeat=size)] + ["c"]
    for left, right, third, fourth in product(parts, repeat=4):
        one, other = f"{left},{right}", f"{third},{fourth}"
        both = [
            each for each in addresses if covers(each, *split_addresses(one)) and covers(each, *split_addresses(other))
        ]
        prefix = common_prefix(one, other)
        assert (prefix is not None) == bool(both), (one, other, both)
        assert prefix is None or any(each.startswith(prefix) for each in both)


@pytest.mark.parametrize(
    ("addresses", "says", "line"),
    [
        (("news", ""), "cluster-connection 'c0' takes addresses that begin with 'news' as well", 3),
        (
            ("", ""),
            "cluster-connection 'c0' takes all addresses as well: a queue of another member belongs to the first",
            3,
        ),
        (("a", "b", "ab"), "cluster-connection 'c0' takes addresses that begin with 'ab' as well", 4),
    ],
)
def test_one_address_in_two_cluster_connections_is_warned_of(addresses: tuple[str, ...], says: str, line: int) -> None:
    loaded = read(connections(*addresses))
    assert [each.line for each in loaded.warnings if says in each.message] == [line]
    first = cluster_of(loaded.configuration.cluster_connections, "ab" if addresses[0] == "a" else "news")
    assert first is not None
    assert first.name == "c0"


def acceptors(*urls: str) -> str:
    inner = "".join(f'\n<acceptor name="a{number}">{url}</acceptor>' for number, url in enumerate(urls))
    return f"<acceptors>{inner}</acceptors>"


def test_cluster_connections_with_connectors_and_acceptors_of_their_own() -> None:
    own = acceptors("tcp://a:1", "tcp://b:1?clusterConnection=c1")
    loaded = read(own + connections("a", "b", "c", refs=("own", "peer", "own")))
    assert loaded.warnings == ()
    configuration = loaded.configuration
    assert [each.cluster_connection for each in configuration.acceptors] == [None, "c1"]
    names = [[each.name for each in sharing] for sharing in by_connector(configuration.cluster_connections)]
    assert names == [["c0", "c2"], ["c1"]]


def test_where_addresses_are_translated_the_ports_may_differ() -> None:
    own = acceptors("tcp://0.0.0.0:61616", "tcp://0.0.0.0:61617?clusterConnection=c1")
    assert len(read(own + connections("a", "b", refs=("own", "peer"))).configuration.acceptors) == 2


@pytest.mark.parametrize(
    ("urls", "says", "connector"),
    [
        (("tcp://a:1",), "connector 'peer' leads to acceptor 'a0' of cluster-connection 'c0'", "own"),
        (("tcp://a:3",), "connector 'peer' leads to no acceptor of this server", "own"),
        (
            ("tcp://b:1", "tcp://b:2?clusterConnection=c1"),
            "connector 'peer' leads to acceptor 'a0' of cluster-connection 'c0'",
            "own",
        ),
        (("tcp://b:2?clusterConnection=c1",), "connector 'own' leads to no acceptor of this server", "peer"),
    ],
)
def test_cluster_connections_with_connectors_to_one_acceptor_share_links_and_topology(
    urls: tuple[str, ...], says: str, connector: str
) -> None:
    loaded = read(acceptors(*urls) + connections("a", "b", refs=("own", "peer")))
    (warning,) = loaded.warnings
    assert says in warning.message
    assert "clusterConnection=c" in warning.message
    found = loaded.configuration.cluster_connections
    assert [[each.name for each in sharing] for sharing in by_connector(found)] == [["c0", "c1"]]
    assert {each.connector_ref for each in found} == {connector}


def test_connectors_that_lead_to_the_acceptor_of_each_other_are_joined() -> None:
    connectors = CONNECTORS.replace("tcp://b:1", "tcp://b:2")
    assert connectors != CONNECTORS
    crossed = acceptors("tcp://a:2", "tcp://b:1?clusterConnection=c1")
    text = connections("a", "b", refs=("own", "peer")).replace(CONNECTORS, connectors)
    found = read(crossed + text).configuration.cluster_connections
    assert [each.connector_ref for each in found] == ["own", "own"]


def test_an_acceptor_names_a_cluster_connection_that_exists() -> None:
    error = fails(acceptors("tcp://b:1?clusterConnection=c3") + connections("a", "b", refs=("own", "peer")))
    assert "acceptor 'a0': there is no cluster-connection 'c3'" in str(error)
    assert error.path.endswith("a0']")


def test_each_own_connector_of_a_backup_needs_another_static_connector() -> None:
    backup = "<ha-policy><replication><backup/></replication></ha-policy>"
    own = acceptors("tcp://a:1", "tcp://b:1?clusterConnection=c1")
    text = connections("a", "b", refs=("own", "peer")).replace(
        "<max-hops>2</max-hops>",
        "<max-hops>2</max-hops><static-connectors><connector-ref>peer</connector-ref></static-connectors>",
    )
    error = fails(own + text + backup)
    assert "connector-ref 'peer' and every static connector of 'c1' are tcp://b:1" in str(error)


def test_a_grouping_handler_uses_the_cluster_connection_of_its_address() -> None:
    handler = '<grouping-handler name="g"><type>LOCAL</type><address>news</address></grouping-handler>'
    assert read(connections("orders", "news") + handler).configuration.grouping_handler is not None
    loaded = read(connections("orders", "other") + handler)
    assert any("'news' is no address of a cluster-connection" in each.message for each in loaded.warnings)
