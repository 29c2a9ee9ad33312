"""Goal: the rules of a broker's table say what was wanted, and are recognised in what nft prints.

That the kernel takes them, and that packets are dropped, is in tests/integration/test_firewall_rules.py.
"""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.packet_filter import (
    kept,
    listed_rules,
    networks,
    not_admitted,
    rules,
    ruleset,
    same,
    table_name,
    wanted_rules,
)
from hypothesis import given
from hypothesis import strategies as st

NETWORKS = st.lists(
    st.one_of(
        st.ip_addresses().map(str),
        st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 32)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
        st.tuples(st.ip_addresses(v=6).map(str), st.integers(0, 128)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    ),
    max_size=8,
)
LISTING = "\n".join(
    [
        "table inet understudy_a1 {",
        "\tchain input {",
        "\t\ttype filter hook input priority filter; policy accept;",
        '\t\tiif "lo" accept',
        "\t\ttcp dport 61616 ip saddr { 10.20.0.0/16, 10.0.0.2 } accept",
        "\t\ttcp dport 61616 counter packets 7 bytes 420 drop",
        "\t}",
        "}",
        "",
    ]
)


def test_the_rules_of_a_port() -> None:
    assert rules(61616, ["10.0.0.2", "10.20.1.7/16", "fd00::/8"]) == [
        "tcp dport 61616 ip saddr { 10.0.0.2, 10.20.0.0/16 } accept",
        "tcp dport 61616 ip6 saddr fd00::/8 accept",
        "tcp dport 61616 counter drop",
    ]


def test_a_port_without_sources_is_for_the_host_alone() -> None:
    assert wanted_rules({5: []}) == ['iif "lo" accept', "tcp dport 5 counter drop"]


def test_the_whole_text_replaces_the_table_in_one_transaction() -> None:
    assert ruleset("t", wanted_rules({5: ["10.0.0.1"]})).splitlines()[1:] == [
        "table inet t",
        "delete table inet t",
        "table inet t {",
        "\tchain input {",
        "\t\ttype filter hook input priority filter; policy accept;",
        '\t\tiif "lo" accept',
        "\t\ttcp dport 5 ip saddr 10.0.0.1 accept",
        "\t\ttcp dport 5 counter drop",
        "\t}",
        "}",
    ]


def test_a_listing_is_recognised_whatever_the_order_of_its_sets() -> None:
    wanted = wanted_rules({61616: ["10.0.0.2", "10.20.0.0/16"]})
    assert same(listed_rules(LISTING), wanted)
    assert not same(listed_rules(LISTING.replace("10.0.0.2", "10.0.0.3")), wanted)
    assert not same(listed_rules(LISTING.replace('\t\tiif "lo" accept\n', "")), wanted)
    assert not same(listed_rules(LISTING.replace("\t}\n}", "\t\ttcp dport 22 drop\n\t}\n}")), wanted)


def test_rules_of_other_ports_stay_where_a_broker_still_listens() -> None:
    found = [*kept(listed_rules(LISTING), {5: []})]
    assert found == ["tcp dport 61616 ip saddr { 10.0.0.2, 10.20.0.0/16 } accept", "tcp dport 61616 counter drop"]
    assert [*kept(listed_rules(LISTING), {61616: []})] == []


@given(NETWORKS)
def test_exactly_the_given_addresses_are_in_the_networks(sources: list[str]) -> None:
    wanted = [ipaddress.ip_network(each, strict=False) for each in sources]
    found = networks(sources)
    for network in wanted:
        # None of another family may compare with it.
        assert any(each.version == network.version and each.supernet_of(network) for each in found)  # type: ignore[arg-type]
    assert sum(each.num_addresses for each in found) <= sum(each.num_addresses for each in wanted)


@pytest.mark.parametrize(("name", "table"), [("understudy-a1", "understudy_a1"), ("a.b-c", "a_b_c")])
def test_a_name_becomes_one_that_nftables_takes(name: str, table: str) -> None:
    assert table_name(name) == table


@pytest.mark.parametrize("name", ["", "1a", "-", "a" * 62])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a table"):
        table_name(name)


def test_a_source_that_is_no_address_is_named() -> None:
    with pytest.raises(ValueError, match="office"):
        rules(1, ["office"])


@pytest.mark.parametrize(
    ("listing", "dropped"),
    [
        ("", [5445, 61616]),
        ("61616/tcp", [5445]),
        ("22/tcp 5000-6000/tcp 61616/udp", [61616]),
        ("61616/tcp 5445/tcp\n", []),
        ("61600-/tcp ssh", [5445, 61616]),
    ],
)
def test_ports_that_firewalld_does_not_list_are_found(listing: str, dropped: list[int]) -> None:
    assert not_admitted(listing, [61616, 5445]) == dropped
