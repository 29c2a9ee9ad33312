"""Kinds of values: accepted and refused texts, and the names of fields."""

from __future__ import annotations

import pytest

from understudy.config.schema.grammar import (
    Attribute,
    Element,
    Kind,
    Support,
    Value,
    container,
    field_name,
    no_effect,
    not_yet,
    parse_value,
    refused,
    row,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.TEXT, " kept as it is ", " kept as it is "),
        (Kind.PATH, "/a b", "/a b"),
        (Kind.BOOLEAN, " True ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INTEGER, "-1", -1),
        (Kind.INTEGER, "+7", 7),
        (Kind.INTEGER, "2147483647", 2**31 - 1),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DECIMAL, "1.5", 1.5),
        (Kind.DECIMAL, "2", 2.0),
        (Kind.BYTES, "10M", 10 * 1024 * 1024),
        (Kind.BYTES, "-1", -1),
        (Kind.MILLISECONDS, "5000", 5000),
        (Kind.MILLISECONDS, "-1", -1),
        (Kind.MILLISECONDS, "30s", 30_000),
        (Kind.SECONDS, "30", 30),
        (Kind.NANOSECONDS, "3333333", 3_333_333),
        (Kind.PERCENT, "90", 90),
        (Kind.CHOICE, "ONE", "ONE"),
    ],
)
def test_a_value_is_read(kind: Kind, text: str, value: Value) -> None:
    assert parse_value(text, row("x", kind, None, "X.", choices=("ONE", "TWO"))) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "1"),
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, ""),
        (Kind.INTEGER, ""),
        (Kind.INTEGER, "1.0"),
        (Kind.INTEGER, "1_000"),
        (Kind.INTEGER, "٣"),
        (Kind.INTEGER, "2147483648"),
        (Kind.INTEGER, "-2"),
        (Kind.INTEGER, "9" * 5000),
        (Kind.LONG, "9223372036854775808"),
        (Kind.DECIMAL, "nan"),
        (Kind.DECIMAL, "inf"),
        (Kind.DECIMAL, "-1"),
        (Kind.DECIMAL, "1_0"),
        (Kind.DECIMAL, "one"),
        (Kind.BYTES, "10X"),
        (Kind.MILLISECONDS, "5 weeks"),
        (Kind.SECONDS, "30s"),
        (Kind.PERCENT, "90%"),
        (Kind.CHOICE, "one"),
    ],
)
def test_no_value_is_a_value_error(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError):
        parse_value(text, row("x", kind, None, "X.", choices=("ONE", "TWO")))


def test_bounds_are_those_of_the_row() -> None:
    port = Attribute("port", Kind.INTEGER, "Port.", minimum=1, maximum=65535)
    assert parse_value("65535", port) == 65535
    with pytest.raises(ValueError, match="65536 is outside 1 to 65535"):
        parse_value("65536", port)


@pytest.mark.parametrize(
    ("name", "kind", "field"),
    [
        ("journal-file-size", Kind.BYTES, "journal_file_size_bytes"),
        ("max-size-bytes", Kind.BYTES, "max_size_bytes"),
        ("retry-interval", Kind.MILLISECONDS, "retry_interval_ms"),
        ("quorum-vote-wait", Kind.SECONDS, "quorum_vote_wait_seconds"),
        ("network-check-NIC", Kind.TEXT, "network_check_nic"),
    ],
)
def test_a_field_has_its_unit_last(name: str, kind: Kind, field: str) -> None:
    assert field_name(name, kind) == field
    assert row(name, kind, None, "X.").field == field


def test_children_answer_to_their_old_names_too() -> None:
    child = row("primary", Kind.TEXT, None, "X.", aliases=("master",))
    parent = container("parent", "P.", child)
    assert parent.by_name == {"primary": child, "master": child}
    assert [path for path, _ in parent.walk()] == ["parent", "parent/primary"]


def test_two_children_of_one_name_are_a_mistake_in_the_schema() -> None:
    with pytest.raises(ValueError, match="share a name"):
        container("parent", "P.", row("a", Kind.TEXT, None, "A."), row("b", Kind.TEXT, None, "B.", aliases=("a",)))


@pytest.mark.parametrize(
    ("make", "support"),
    [
        (lambda each: not_yet(each), Support.NOT_YET),
        (lambda each: no_effect("why", each), Support.NO_EFFECT),
        (lambda each: refused("why", each), Support.REFUSED),
    ],
)
def test_support_applies_to_all_children(make: object, support: Support) -> None:
    tree = container("a", "A.", container("b", "B.", row("c", Kind.TEXT, None, "C.")))
    (changed,) = make(tree)  # type: ignore[operator]
    assert isinstance(changed, Element)
    assert {each.support for _, each in changed.walk()} == {support}
    assert {each.support for _, each in tree.walk()} == {Support.IMPLEMENTED}
