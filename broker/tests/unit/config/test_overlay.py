"""The overlay of broker.xml: its file, how states replace each other, and how they are merged."""

from __future__ import annotations

import pytest

from support.config import core
from understudy.config.edit import Clear, Ensure, Merged, Set, Target, merge
from understudy.config.edit.overlay import Override, format_overlay, parse_overlay, with_override
from understudy.errors import ConfigError
from understudy.limits import OVERLAY_BYTES_MAX, OVERRIDES_MAX

GROUP = "core/broadcast-groups/broadcast-group[@name='g']"


def override(target: Target) -> Override:
    return Override(target, "2026-11-30T05:00:00Z", "token@127.0.0.1", "a line")


def targets(*written: Target) -> list[Target]:
    """The states that are left when the given ones are written one after the other."""
    overrides: tuple[Override, ...] = ()
    for each in written:
        overrides = with_override(overrides, override(each))
    return [each.target for each in overrides]


def merged(body: str, *states: Target) -> Merged:
    def unread(file: str) -> bytes:
        raise AssertionError(file)

    return merge(core(body), states, file="broker.xml", read_file=unread, properties={})


def test_a_later_state_of_a_place_replaces_the_earlier_one() -> None:
    assert targets(Set("core/name", "a"), Set("core/name", "b")) == [Set("core/name", "b")]
    assert targets(Set("core/name", "a"), Clear("core/name")) == [Clear("core/name")]
    assert targets(Ensure(GROUP), Ensure(GROUP)) == [Ensure(GROUP)]


def test_a_removed_element_takes_the_states_in_it_along() -> None:
    inside = Set(f"{GROUP}/broadcast-period", "5")
    like = Set("core/broadcast-groups/broadcast-group[@name='g2']/broadcast-period", "5")
    assert targets(Ensure(GROUP), inside, like, Clear(GROUP)) == [like, Clear(GROUP)]


def test_an_element_that_is_made_again_is_removed_first() -> None:
    inside = Set(f"{GROUP}/broadcast-period", "5")
    assert targets(Clear(GROUP), Ensure(GROUP), inside) == [Clear(GROUP), Ensure(GROUP), inside]


def test_states_are_reached_from_any_document() -> None:
    states = (
        Set("core/name", "b"),
        Ensure(f"{GROUP}/connector-ref[.='netty']"),
        Clear(f"{GROUP}/connector-ref[.='http']"),
    )
    group = '<broadcast-group name="g"><connector-ref>{}</connector-ref></broadcast-group>'
    whole = f"<broadcast-groups>{group}</broadcast-groups>"
    for body in ("", "<name>a</name>", "<name>b</name>" + whole.format("http"), whole.format("netty")):
        data = merged(body, *states).data
        assert data.count(b"<name>b</name>") == 1
        assert data.count(b"<connector-ref>netty</connector-ref>") == 1
        assert b"http" not in data


def test_a_merge_says_which_states_differ_and_keeps_the_bytes_otherwise() -> None:
    found = merged("<name>b</name><!-- note -->", Set("core/name", "b"), Clear(GROUP))
    assert found.differs == (False, False)
    assert found.data == core("<name>b</name><!-- note -->")
    assert merged("", Set("core/name", "b")).differs == (True,)


def test_a_state_outside_of_the_schema_is_an_error() -> None:
    for state in (Set("core/nothing", "1"), Clear("core/nothing"), Ensure("core/nothing")):
        with pytest.raises(ConfigError, match="nothing"):
            merged("", state)


def test_an_overlay_is_written_as_it_is_read() -> None:
    overrides = [override(each) for each in (Set("core/name", "ä"), Ensure(GROUP), Clear("core/ha-policy"))]
    data = format_overlay(overrides)
    assert parse_overlay(data, "f") == tuple(overrides)
    assert data.endswith(b"}\n")
    assert [(each.state, each.value) for each in overrides] == [("set", "ä"), ("present", None), ("absent", None)]


ENTRIES = '{"format": 1, "overrides": ['
ENTRY = '{"path": "core/name", "state": "set", "value": "a", "time": "", "user": "", "line": ""}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "is no overlay of format 1"),
        ('{"format": 2, "overrides": []}', "is no overlay of format 1"),
        ('{"format": 1}', "'overrides' is no list"),
        ('{"format": 1, "overrides": [1]}', r"overrides\[1\]: needs the texts"),
        (ENTRIES + ENTRY.replace('"set"', '"gone"') + "]}", r"overrides\[1\]: state 'gone'"),
        (ENTRIES + ENTRY.replace('"value": "a", ', "") + "]}", r"state 'set' with this value"),
        (ENTRIES + ENTRY.replace("core/name", "core/[") + "]}", "is no step of a path"),
    ],
)
def test_a_wrong_overlay_is_an_error_that_names_the_entry(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_overlay(text.encode(), "etc/broker.d/50-cli.json")


def test_an_empty_file_has_no_states() -> None:
    assert parse_overlay(b" \n", "f") == ()


def test_an_overlay_has_limits() -> None:
    with pytest.raises(ConfigError, match="more than"):
        parse_overlay(b" " * (OVERLAY_BYTES_MAX + 1), "f")
    many = [override(Set("core/name", "a"))] * (OVERRIDES_MAX + 1)
    with pytest.raises(ConfigError, match=r"limits .* \(take them into broker\.xml"):
        format_overlay(many)
