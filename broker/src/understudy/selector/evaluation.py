"""The closures a selector is compiled to: one for each operator, over a ``Message``.

None is unknown: the value of an absent property and of every expression that depends on it. Not here: which
combinations are allowed (``parser``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final

from understudy.ids import uuid_text
from understudy.limits import LIKE_TEXT_CHARACTERS_MAX
from understudy.message import GROUP_ID, VALIDATED_USER, Message
from understudy.selector.like import LikePattern
from understudy.selector.work import WORK

Value = bool | int | float | str | bytes | None
Evaluate = Callable[[Message], Value]
Operation = Callable[[float, float], float]

ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def constant(value: Value) -> Evaluate:
    """Evaluation of a literal."""
    return lambda message: value


def property_value(name: str) -> Evaluate:
    """A property of the message, None when it is absent."""
    return lambda message: message.properties.get(name)


def _user_id(message: Message) -> Value:
    return None if message.user_id is None else f"ID:{uuid_text(message.user_id)}"


HEADERS: Final[dict[str, Evaluate]] = {
    "AMQAddress": lambda message: message.address,
    "AMQDurable": lambda message: "DURABLE" if message.durable else "NON_DURABLE",
    "AMQExpiration": lambda message: message.expiration,
    "AMQGroupID": property_value(GROUP_ID),
    "AMQPriority": lambda message: message.priority,
    "AMQSize": lambda message: message.encode_size,
    "AMQTimestamp": lambda message: message.timestamp,
    "AMQUserID": _user_id,
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.durable else "NON_PERSISTENT",
    "JMSExpiration": lambda message: message.expiration,
    "JMSMessageID": _user_id,
    "JMSPriority": lambda message: message.priority,
    "JMSTimestamp": lambda message: message.timestamp,
    "JMSXGroupID": property_value(GROUP_ID),
    "JMSXGroupSeq": property_value("_AMQ_GROUP_SEQUENCE"),
    "JMSXUserID": property_value(VALIDATED_USER),
}
"""Identifiers that are no properties (artemis-core s. 5.1; manual, filter expressions).

JMSType, JMSCorrelationID and JMSReplyTo are properties of these very names.
"""


def identifier(name: str) -> Evaluate:
    """The value of an identifier: a header field, or the property of that name."""
    return HEADERS.get(name) or property_value(name)


def _kind(value: Value) -> str:
    """Values of one kind can be compared. A bool is not a number here, unlike in Python."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "bytes"


def _number_of(value: Value, convert: bool) -> int | float | None:
    """A value as a number; None if it is not a number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return _converted(value) if convert and isinstance(value, str) else None


def _converted(text: str) -> int | float | None:
    text = text.strip()
    if not text.isascii() or "_" in text or len(text) > 40:
        return None
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits.isdigit():
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def boolean_of(evaluate: Evaluate) -> Evaluate:
    """An identifier used as a condition: a value that is not a boolean is false."""

    def boolean(message: Message) -> Value:
        value = evaluate(message)
        return None if value is None else value is True

    return boolean


def not_of(evaluate: Evaluate) -> Evaluate:
    """NOT: unknown stays unknown."""

    def negation(message: Message) -> Value:
        value = evaluate(message)
        return None if value is None else not value

    return negation


def all_of(closures: tuple[Evaluate, ...]) -> Evaluate:
    """AND of two or more."""

    def conjunction(message: Message) -> Value:
        result: Value = True
        for evaluate in closures:
            value = evaluate(message)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return conjunction


def any_of(closures: tuple[Evaluate, ...]) -> Evaluate:
    """OR of two or more."""

    def disjunction(message: Message) -> Value:
        result: Value = False
        for evaluate in closures:
            value = evaluate(message)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return disjunction


def is_null(evaluate: Evaluate, wanted: bool) -> Evaluate:
    """IS NULL, or IS NOT NULL when ``wanted`` is False."""
    return lambda message: (evaluate(message) is None) is wanted


def equals(left: Evaluate, right: Evaluate, wanted: bool, convert: bool) -> Evaluate:
    """= or, when ``wanted`` is False, <>; for values of different kinds the result is False either way."""

    def equality(message: Message) -> Value:
        first, second = left(message), right(message)
        if first is None or second is None:
            return None
        if type(first) is not type(second) and _kind(first) != _kind(second):
            if not convert or "string" not in (_kind(first), _kind(second)):
                return False
            return _equals_converted(first, second, wanted)
        return (first == second) is wanted

    return equality


def _equals_converted(first: Value, second: Value, wanted: bool) -> bool:
    """Equality of a text with a value of another kind (``convert_string_expressions:``)."""
    text, other = (first, second) if isinstance(first, str) else (second, first)
    assert isinstance(text, str)
    if isinstance(other, bool):
        return ((text.lower() == "true") == other) is wanted
    number = _converted(text)
    return number is not None and (number == other) is wanted


def orders(left: Evaluate, right: Evaluate, holds: Callable[[float, float], bool], convert: bool) -> Evaluate:
    """A comparison of order: false unless both are numbers."""

    def order(message: Message) -> Value:
        first, second = left(message), right(message)
        if first is None or second is None:
            return None
        one, two = _number_of(first, convert), _number_of(second, convert)
        return one is not None and two is not None and holds(one, two)

    return order


def is_in(evaluate: Evaluate, texts: frozenset[str]) -> Evaluate:
    """IN: unknown for a value that is not a string (JMS 2.0 s. 3.8.1.1)."""

    def membership(message: Message) -> Value:
        value = evaluate(message)
        return value in texts if isinstance(value, str) else None

    return membership


class LikeTexts:
    """Limit for the length of the texts that the LIKE operators of one selector compare character by character."""

    __slots__ = ("characters_max", "count")

    def __init__(self) -> None:
        self.count = 0
        self.characters_max = LIKE_TEXT_CHARACTERS_MAX

    def add(self) -> None:
        """Count one more LIKE operator of the selector."""
        self.count += 1
        self.characters_max = LIKE_TEXT_CHARACTERS_MAX // self.count


def is_like(evaluate: Evaluate, pattern: LikePattern, texts: LikeTexts) -> Evaluate:
    """LIKE: false for a value that is not a string, unknown for a text above the limit for LIKE."""
    searches = pattern.searches
    if searches:
        texts.add()

    def like(message: Message) -> Value:
        value = evaluate(message)
        if value is None:
            return None
        if not isinstance(value, str):
            return False
        length = len(value)
        if searches:
            WORK.steps += length
            return None if length > texts.characters_max else pattern.matches(value)
        WORK.steps += length >> 6
        return None if length > LIKE_TEXT_CHARACTERS_MAX else pattern.matches(value)

    return like


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _divide(one: float, two: float) -> float:
    """Division of doubles according to IEEE 754; Python raises for a divisor of zero."""
    dividend, divisor = _float(one), _float(two)
    if divisor:
        return dividend / divisor
    if not dividend or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def _remainder(one: float, two: float) -> float:
    """Remainder of doubles with the sign of the dividend, as in Java."""
    dividend, divisor = _float(one), _float(two)
    return math.nan if not divisor or math.isinf(dividend) else math.fmod(dividend, divisor)


_TWO_63: Final = 1 << 63

ARITHMETIC: Final[dict[str, Operation]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
}


def arithmetic_of(first: Evaluate, steps: tuple[tuple[Operation, Evaluate], ...], convert: bool) -> Evaluate:
    """Operators of one precedence from left to right; unknown if an operand is not a number."""

    def arithmetic(message: Message) -> Value:
        result = _number_of(first(message), convert)
        for operation, evaluate in steps:
            operand = _number_of(evaluate(message), convert)
            if result is None or operand is None:
                return None
            result = operation(result, operand)
            if not -_TWO_63 <= result < _TWO_63 and isinstance(result, int):
                # as longs of Java; Artemis computes with 32 bits if both operands are ints
                result = (result + _TWO_63) % (2 * _TWO_63) - _TWO_63
        return result

    return arithmetic
