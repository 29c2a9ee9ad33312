"""Addresses of several cluster connections of a node."""

from __future__ import annotations

from itertools import product

import pytest

from support.config import CONNECTORS, PASSWORD, fails, read
from understudy.config.cluster_addresses import cluster_of, common_prefix, covers, split_addresses


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
        (("", ""), "cluster-connection 'c0' takes all addresses as well: their messages would have two ways", 3),
        (("a", "b", "ab"), "cluster-connection 'c0' takes addresses that begin with 'ab' as well", 4),
    ],
)
def test_one_address_in_two_cluster_connections_is_an_error(addresses: tuple[str, ...], says: str, line: int) -> None:
    error = fails(connections(*addresses))
    assert says in str(error)
    assert error.line == line


def test_a_node_has_one_address_in_its_cluster() -> None:
    error = fails(connections("a", "b", refs=("own", "peer")))
    assert "cluster-connection 'c0' has connector-ref 'own'" in str(error)
    assert error.path.endswith("cluster-connection[@name='c1']/connector-ref")


def test_a_grouping_handler_uses_the_cluster_connection_of_its_address() -> None:
    handler = '<grouping-handler name="g"><type>LOCAL</type><address>news</address></grouping-handler>'
    assert read(connections("orders", "news") + handler).configuration.grouping_handler is not None
    assert "is no address of cluster-connection" in str(fails(connections("orders", "other") + handler))
