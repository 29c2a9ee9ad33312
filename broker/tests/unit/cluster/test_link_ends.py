"""Ends of a link: which connections a node takes as meant for itself."""

from __future__ import annotations

import pytest

from support.cluster_links import hello_of
from support.membership import Entropy
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.link_ends import OwnEnds, place_of, place_of_socket

CREDENTIALS = ClusterCredentials("cluster", "a password of this test", Entropy())
LOCAL = "10.0.0.1:61616"
OWN = OwnEnds(frozenset({("a.example:61616", ""), ("198.51.100.7:4000", "")}))
NAMED = OwnEnds(frozenset({("shared.example:80", "backup"), ("10.0.0.1:80", "backup")}))


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("A.Example.", "a.example:1"),
        ("10.0.0.1", "10.0.0.1:1"),
        ("::ffff:10.0.0.1", "10.0.0.1:1"),
        ("0:0:0:0:0:0:0:1", "[::1]:1"),
        ("[FE80::1%eth0]", "[fe80::1]:1"),
    ],
)
def test_places_are_compared_in_one_form(host: str, place: str) -> None:
    assert place_of(host, 1) == place
    assert place_of_socket(f"{host}:1") == place


@pytest.mark.parametrize(
    ("place", "address", "own"),
    [
        ("a.example:61616", "192.0.2.9:1", True),  # its connector, through a proxy
        ("A.example:61616", "", True),
        ("198.51.100.7:4000", "198.51.100.7:4000", True),  # translated, with a connector
        ("alias:61616", "10.0.0.1:61616", True),  # another name of its address
        ("alias:61616", "::ffff:10.0.0.1:61616", True),
        ("b.example:61616", "10.0.0.2:61616", False),  # another member
        ("203.0.113.6:1", "203.0.113.6:1", False),  # a stranger who was dialled
        ("a.example:61617", "10.0.0.1:61617", False),  # another port
        ("", "", False),
        ("a.example:61616:61616", "?", False),
    ],
)
def test_a_node_takes_connections_that_are_meant_for_it_only(place: str, address: str, own: bool) -> None:
    refusal = OWN.refusal(hello_of(CREDENTIALS, place=place, address=address), LOCAL, "")
    assert bool(refusal) is not own
    if not own:
        assert place in refusal
        assert "a.example:61616" in refusal
        assert LOCAL in refusal
        assert "connector-ref" in refusal, "the next step"


@pytest.mark.parametrize(
    ("server", "place", "own"),
    [
        ("backup", "shared.example:80", True),
        ("backup", "alias:80", True),
        ("", "shared.example:80", False),
        ("", "alias:80", False),
        ("another", "shared.example:80", False),
        ("another", "alias:80", False),
    ],
)
def test_servers_that_share_a_port_are_distinguished(server: str, place: str, own: bool) -> None:
    hello = hello_of(CREDENTIALS, place=place, address="10.0.0.1:80", server=server)
    assert bool(NAMED.refusal(hello, "10.0.0.1:80", "")) is not own


@pytest.mark.parametrize(
    ("meant", "own", "taken"), [("n", "n", True), ("n", "m", False), ("", "m", True), ("n", "", True)]
)
def test_a_node_id_that_is_meant_is_compared(meant: str, own: str, taken: bool) -> None:
    refusal = OWN.refusal(hello_of(CREDENTIALS, place="a.example:61616", node_id=meant), LOCAL, own)
    assert bool(refusal) is not taken


def test_a_refusal_shows_a_bounded_part_of_the_text_of_the_other_side() -> None:
    assert len(OWN.refusal(hello_of(CREDENTIALS, place="x" * 100_000), LOCAL, "")) < 2_000
