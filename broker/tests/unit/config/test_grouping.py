"""``grouping-handler`` of broker.xml (artemis-ha s. 7.8)."""

from __future__ import annotations

import pytest

from support.config import cluster, fails, read
from understudy.config.grouping import GroupingConfiguration, GroupingType

CLUSTER = cluster("")


def handler(inside: str, name: str = "g", own: str = CLUSTER) -> str:
    return f'{own}\n<grouping-handler name="{name}">{inside}</grouping-handler>'


def test_defaults_are_those_of_artemis() -> None:
    loaded = read(handler("<type>LOCAL</type>"))
    assert loaded.configuration.grouping_handler == GroupingConfiguration(
        "g", GroupingType.LOCAL, "", 5_000, -1, 30_000
    )
    assert not [each for each in loaded.warnings if "grouping" in each.path]
    assert read(CLUSTER).configuration.grouping_handler is None


@pytest.mark.parameter(
    "grouping-handler/name",
    "grouping-handler/type",
    "grouping-handler/address",
    "grouping-handler/timeout",
    "grouping-handler/group-timeout",
    "grouping-handler/reaper-period",
)
def test_every_element_is_read() -> None:
    found = read(
        handler(
            "<type>REMOTE</type><address>jms</address><timeout>1</timeout><group-timeout>2</group-timeout>"
            "<reaper-period>3</reaper-period>"
        )
    ).configuration.grouping_handler
    assert found == GroupingConfiguration("g", GroupingType.REMOTE, "jms", 1, 2, 3)


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("", "type"),
        ("<type>BOTH</type>", "'BOTH' is not one of LOCAL, REMOTE"),
        ("<type>local</type>", "is not one of"),
        ("<type>LOCAL</type>\n<timeout>0</timeout>", "0 is outside 1"),
        ("<type>LOCAL</type>\n<group-timeout>0</group-timeout>", "0 is neither -1 nor more than 0"),
        ("<type>LOCAL</type>\n<group-timeout>-2</group-timeout>", "-2 is outside -1"),
        ("<type>LOCAL</type>\n<reaper-period>-1</reaper-period>", "-1 is outside 1"),
        ("<type>LOCAL</type>\n<timeout>soon</timeout>", "soon"),
    ],
)
def test_a_bad_value_names_element_and_line(inside: str, message: str) -> None:
    error = fails(handler(inside))
    assert message in str(error)
    assert "grouping-handler" in str(error)
    assert error.line == (3 if "\n" in inside else 2)


def test_a_name_is_needed() -> None:
    assert "name" in str(fails(handler("<type>LOCAL</type>", name="")))


@pytest.mark.parameter("grouping-handler/address")
def test_with_an_address_that_the_cluster_connection_leaves_out_only_local_decides_and_only_here() -> None:
    own = cluster("<address>jms,!jms.private</address>")
    for inside in ("", "<address>jms.private.x</address>", "<address>other</address>"):
        for kind, effect in (("LOCAL", "sent at this node only"), ("REMOTE", "it has no effect")):
            loaded = read(handler(f"<type>{kind}</type>{inside}", own=own))
            assert (loaded.configuration.grouping_handler is not None) == (kind == "LOCAL")
            assert any(
                "no proposal reaches the other members" in each.message and effect in each.message
                for each in loaded.warnings
            )
    assert read(handler("<type>LOCAL</type><address>jms</address>", own=own)).configuration.grouping_handler is not None


def test_without_a_cluster_connection_it_has_no_effect_and_a_warning_says_so() -> None:
    for own in ("", cluster("<max-hops>0</max-hops>")):
        loaded = read(handler("<type>LOCAL</type>", own=own))
        assert loaded.configuration.grouping_handler is None
        assert "without a cluster-connection, or with its max-hops 0, it has no effect" in [
            each.message for each in loaded.warnings
        ]
