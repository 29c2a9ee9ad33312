"""Selectors by example: every operator, JMS' three values and types, headers, and invalid ones.

Goal: what a client writes is selected as JMS and the Artemis manual say. Method: one message, many
texts, each with the answer.
"""

from __future__ import annotations

import pytest

from understudy import selector as selector_module
from understudy.errors import InvalidSelector
from understudy.limits import (
    LIKE_TEXT_CHARACTERS_MAX,
    SELECTOR_CHARACTERS_MAX,
    SELECTOR_DEPTH_MAX,
    SELECTOR_LIKES_MAX,
    SELECTOR_STEPS_MAX,
)
from understudy.message import GROUP_ID, VALIDATED_USER, Message
from understudy.properties import BYTE, FLOAT, Properties
from understudy.selector import CACHE_MAX, Selector, parse_selector
from understudy.selector.parser import LIKE_CHARACTERS_MAX
from understudy.selector.work import WORK


def message() -> Message:
    properties = Properties(
        {
            "five": 5,
            "half": 0.5,
            "red": "red",
            "quote": "it's",
            "yes": True,
            "no": False,
            "numeric": "21",
            "raw": b"red",
            "nothing": None,
            "foo-bar": 7,
            "größe": 1,
            "JMSType": "order",
            "JMSCorrelationID": "c-1",
            GROUP_ID: "g",
            VALIDATED_USER: "alice",
            "_AMQ_GROUP_SEQUENCE": 3,
        }
    )
    properties.set_typed("byte", BYTE, 5)
    properties.set_typed("float", FLOAT, 0.5)
    return Message(
        b"body",
        address="orders",
        priority=6,
        timestamp=1000,
        expiration=2000,
        durable=True,
        user_id=bytes(range(16)),
        properties=properties,
    )


SELECTED = [
    "five = 5",
    "five = 5.0",
    "byte = five",
    "float = half",
    "five <> 6",
    "five > 4 AND five >= 5 AND five < 6 AND five <= 5",
    "red = 'red'",
    "'red' = red",
    "red <> 'blue'",
    "quote = 'it''s'",
    "yes",
    "(yes)",
    "yes = TRUE",
    "no = false",
    "yes <> no",
    "NOT no",
    "NOT NOT yes",
    "NOT NOT red IN ('red')",
    "NOT NOT NOT five = 4",
    "not five = 4",
    "NOT five = 4 AND yes",
    "NOT (five = 4 AND yes)",
    "yes = NOT no",
    "no OR yes",
    "absent = 1 OR yes",
    "NOT (absent = 1 AND no)",
    "absent IS NULL",
    "nothing IS NULL",
    "five is not null",
    "NOT (five IS NULL)",
    "five BETWEEN 5 AND 6",
    "five between 4 and 5 and yes",
    "five NOT BETWEEN 6 AND 10",
    "five + 1 BETWEEN 2 * 3 AND 6",
    "red IN ('blue', 'red')",
    "red NOT IN ('blue')",
    "NOT red IN ('blue')",
    "red LIKE 'r%'",
    "red LIKE '_e_'",
    "red LIKE 'red'",
    "red LIKE '%'",
    "red NOT LIKE 'b%'",
    "five LIKE '5' = FALSE",
    "five + 2 * 3 = 11",
    "(five + 2) * 3 = 21",
    "five - 2 - 1 = 2",
    "five - -5 = 10",
    "- five = -5",
    "+ five = +5",
    "-(five) * 2 = -10",
    "7 / 2 = 3.5",
    "12 / 2 / 3 = 2",
    "7 % 4 = 3",
    "-7 % 4 = -3",
    "five = 0x5 AND five = 05 AND five = 5L",
    "half = .5 AND half = 5E-1 AND half = 0.5d AND half = 50.e-2",
    "five = 5.",
    "9223372036854775807 = 9223372036854775807",
    "9223372036854775807 + five < 0",
    "1099511627776 * 1099511627776 = 0",
    "9223372036854775807 + 5.0 > 0",
    "-9223372036854775808 < 0",
    "five = 5 -- a comment\n AND yes",
    "five /* inside */ = 5",
    "five--5 = 10",
    '"foo-bar" = 7',
    "hyphenated_props:foo-bar = 7",
    "no_hyphenated_props:hyphenated_props:foo-bar = 7",
    "convert_string_expressions:numeric > 18",
    "convert_string_expressions:numeric = 21 AND numeric <> 22 AND numeric + 1 = 22",
    "convert_string_expressions:hyphenated_props:numeric = 21 AND foo-bar = 7",
    "größe = 1",
    "(five = 5) = yes",
    # headers
    "AMQPriority = 6 AND JMSPriority = 6",
    "AMQTimestamp = 1000 AND JMSTimestamp = 1000",
    "AMQExpiration = 2000 AND JMSExpiration = 2000",
    "AMQDurable = 'DURABLE' AND JMSDeliveryMode = 'PERSISTENT'",
    "AMQUserID = 'ID:00010203-0405-0607-0809-0a0b0c0d0e0f' AND JMSMessageID = AMQUserID",
    "AMQAddress = 'orders'",
    "AMQSize > 0",
    "AMQGroupID = 'g' AND JMSXGroupID = 'g' AND JMSXGroupSeq = 3",
    "JMSXUserID = 'alice'",
    "JMSType = 'order' AND JMSCorrelationID LIKE 'c-_'",
]

NOT_SELECTED = [
    "five = 6",
    "five = '5'",
    "five <> '5'",
    "red = 5",
    "red <> 5",
    "yes = 1",
    "yes <> 1",
    "yes = 'true'",
    "raw = 'red'",
    "raw <> 'red'",
    "red > five",
    "red < red",
    "yes >= no",
    "no",
    "red",
    "five",
    "absent",
    "NOT absent",
    "NOT yes",
    "absent = 1",
    "absent <> 1",
    "NOT absent = 1",
    "absent = absent",
    "absent = 1 AND yes",
    "absent = 1 OR no",
    "absent > 1 OR absent <= 1",
    "absent BETWEEN 1 AND 2",
    "absent NOT BETWEEN 1 AND 2",
    "absent IN ('a')",
    "absent NOT IN ('a')",
    "five IN ('5')",
    "five NOT IN ('5')",
    "absent LIKE '%'",
    "absent NOT LIKE '%'",
    "five LIKE '5'",
    "five IS NULL",
    "absent IS NOT NULL",
    "red + 1 = 1",
    "NOT (red + 1 = 1)",
    "absent + 1 = 1",
    "numeric > 18",
    "convert_string_expressions:red > 18",
    "convert_string_expressions:red = 18",
    "convert_string_expressions:red <> 18",
    "1 / 0 = 1",
    "0 / 0 = 0",
    "five % 0 = 0",
    "AMQDurable = 'NON_DURABLE'",
    "foo = 7",
]


@pytest.mark.parametrize("text", SELECTED)
def test_selected(text: str) -> None:
    assert parse_selector(text).matches(message())


@pytest.mark.parametrize("text", NOT_SELECTED)
def test_messages_that_are_not_selected(text: str) -> None:
    assert not parse_selector(text).matches(message())


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("   ", 4),
        ("five =", 7),
        ("= 5", 1),
        ("five = 5 six", 10),
        ("five == 5", 7),
        ("(five = 5", 10),
        ("five = 5)", 9),
        ("five = 'five", 8),
        ("five = 5 AND", 13),
        ("five = 5 AND 6", 14),
        ("'text'", 1),
        ("5", 1),
        ("five + 1", 1),
        ("NULL", 1),
        ("five = NULL", 8),
        ("five IS 5", 9),
        ("five IS NOT 5", 13),
        ("five > 'four'", 8),
        ("five > TRUE", 8),
        ("(five = 5) > 4", 2),
        ("five BETWEEN 1 OR 2", 16),
        ("five BETWEEN 1 AND 'x'", 20),
        ("five IN ()", 10),
        ("five IN (5)", 10),
        ("five IN ('a' 'b')", 14),
        ("5 IN ('a')", 1),
        ("five LIKE 5", 11),
        ("five LIKE 'a' ESCAPE 'ab'", 22),
        ("five LIKE 'a' ESCAPE", 21),
        ("five NOT 5", 6),
        ("five + 'x' = 5", 8),
        ("-'x' = 5", 2),
        ("-yes = TRUE AND -(yes AND no) = 1", 19),
        ("five = 08", 8),
        ("five = 0x", 8),
        ("five = 5x", 8),
        ("five = 5.5.5", 8),
        ("five = 9223372036854775808", 8),
        ("five = 99999999999999999999999999999999999999", 8),
        ("five = 1e999", 8),
        ("five ! 5", 6),
        ("five = 5;", 9),
        ('"" = 5', 1),
        ('"five = 5', 1),
        ("five /* = 5", 6),
        ("foo-bar = 7 AND five ?", 22),
        ("XPATH '//a'", 1),
        ("xquery 'x'", 1),
        ("five = \x00", 8),
    ],
)
def test_an_invalid_selector_names_the_position(text: str, position: int) -> None:
    with pytest.raises(InvalidSelector, match=rf"at position {position}$"):
        parse_selector(text)


def test_length_is_limited() -> None:
    fits = "five = 5" + " " * (SELECTOR_CHARACTERS_MAX - 8)
    assert parse_selector(fits).matches(message())
    with pytest.raises(InvalidSelector, match="limit"):
        parse_selector(fits + " ")


@pytest.mark.parametrize(
    ("opening", "middle", "closing"),
    [
        ("(", "yes", ")"),
        ("NOT ", "yes", ""),
        ("-", "five = 5", ""),
        ("yes AND (", "yes", ")"),
        ("five = 1 + (", "4", ")"),
        ("yes = (", "yes", ")"),
    ],
)
def test_depth_is_limited_and_never_the_stack(opening: str, middle: str, closing: str) -> None:
    for depth in (SELECTOR_DEPTH_MAX * 2, SELECTOR_CHARACTERS_MAX // (len(opening) + len(closing)) - 10):
        with pytest.raises(InvalidSelector, match="nested deeper"):
            parse_selector(opening * depth + middle + closing * depth)


@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("NOT ", ""), ("yes AND (", ")"), ("yes = (", ")"), ("NOT (", ")")]
)
def test_depth_within_the_limit_is_fine(opening: str, closing: str) -> None:
    depth = SELECTOR_DEPTH_MAX // 4
    parse_selector(opening * depth + "yes" + closing * depth).matches(message())


@pytest.mark.parametrize("text", [" AND ".join(["yes"] * 4000), " OR ".join(["no"] * 3999 + ["yes"])])
def test_long_chains_are_not_deep(text: str) -> None:
    assert parse_selector(text, stored=True).matches(message())


def test_long_sums_are_not_deep() -> None:
    assert parse_selector("five = " + " + ".join(["1"] * 5000) + " - 4995", stored=True).matches(message())


@pytest.mark.parametrize("part", ["yes = yes", "NOT yes", "five + 1 > 2", "five BETWEEN 1 AND 9", "five IS NULL"])
def test_the_work_of_a_selector_is_limited(part: str) -> None:
    parse_selector(" OR ".join([part] * (SELECTOR_STEPS_MAX // 7)))
    text = " OR ".join([part] * SELECTOR_STEPS_MAX)[: SELECTOR_CHARACTERS_MAX - 20].rpartition(" OR ")[0]
    with pytest.raises(InvalidSelector, match="operands and operators"):
        parse_selector(text)
    assert parse_selector(text, stored=True).steps > SELECTOR_STEPS_MAX


def test_a_long_list_is_one_step() -> None:
    names = ",".join(f"'name-{number}'" for number in range(2_000))
    assert parse_selector(f"red IN ({names})").steps < 10


def test_every_look_counts_its_work() -> None:
    selector = parse_selector("five = 5 AND red LIKE '%e_%'")
    before = WORK.steps
    selector.matches(message())
    assert WORK.steps - before == selector.steps + 3, "the characters of red too"


def test_deep_chains_of_comparisons_are_limited() -> None:
    with pytest.raises(InvalidSelector, match="nested deeper"):
        parse_selector("yes = yes" + " = yes" * 1000)


def test_a_like_pattern_is_limited() -> None:
    parse_selector(f"red LIKE '{'_' * LIKE_CHARACTERS_MAX}'")
    with pytest.raises(InvalidSelector, match="pattern longer"):
        parse_selector(f"red LIKE '{'_' * (LIKE_CHARACTERS_MAX + 1)}'")


def test_the_work_of_likes_is_limited() -> None:
    """2,000 LIKE over a property of a million characters held the loop for minutes."""
    one = "red LIKE '%_b%'"
    parse_selector(" OR ".join([one] * SELECTOR_LIKES_MAX))
    with pytest.raises(InvalidSelector, match="more than 64 LIKE"):
        parse_selector(" OR ".join([one] * (SELECTOR_LIKES_MAX + 1)))
    longest, longer = ("a" * (LIKE_TEXT_CHARACTERS_MAX - 1 + more) + "b" for more in (0, 1))
    assert parse_selector("x LIKE '%_b'").matches(Message(properties={"x": longest}))
    for text in ("x LIKE '%_b'", "NOT x LIKE '%_b'", "x NOT LIKE '%_b'"):
        assert not parse_selector(text).matches(Message(properties={"x": longer})), "unknown"


def test_integers_overflow_as_longs_of_java() -> None:
    product = " * ".join(["9223372036854775807"] * 900)
    assert parse_selector(f"{product} = 1").matches(message())
    assert parse_selector(f"{product} + 0.5 < five").matches(message())
    assert parse_selector(f"{product} / 2 = 0.5").matches(message())
    assert parse_selector(f"five - {product} * 9223372036854775807 < 0").matches(message())


def test_a_message_without_a_user_id_has_none() -> None:
    plain = Message(durable=False)
    assert parse_selector("AMQUserID IS NULL AND AMQAddress IS NULL").matches(plain)
    assert parse_selector("AMQDurable = 'NON_DURABLE' AND JMSDeliveryMode = 'NON_PERSISTENT'").matches(plain)


def test_a_selector_is_remembered_within_bounds() -> None:
    assert parse_selector("five = 5") is parse_selector("five = 5")
    for number in range(CACHE_MAX + 10):
        parse_selector(f"five = {number}")
    assert selector_module.parse_selector.cache_info().currsize == CACHE_MAX


def test_a_selector_shows_its_text() -> None:
    found = parse_selector("five = 5")
    assert isinstance(found, Selector)
    assert found.text == "five = 5"
    assert repr(found) == "<Selector 'five = 5'>"


def test_an_error_says_that_it_is_about_a_selector() -> None:
    with pytest.raises(InvalidSelector, match=r"^selector: unexpected end at position 4$"):
        parse_selector("a =")
    with pytest.raises(InvalidSelector, match=r"^selector: unexpected '=' at position 1$"):
        parse_selector("= a")
