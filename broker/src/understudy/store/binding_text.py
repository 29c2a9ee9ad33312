"""Reads the JSON of ADDRESS_ADD and QUEUE_ADD (docs/build/journal-format.md s. 4.2).

In a log with many addresses and queues most of these texts differ in the name only. What stands around the name is
parsed once, checked once, and the result is shared by all records that have it: the settings of two records may be the
same object, and nothing changes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

T = TypeVar("T")

AddressText = tuple[str, tuple[int, ...], bool, Mapping[str, object]]
"""Text of the record of an address: name, routing types, whether it was made on demand, settings."""
QueueText = tuple[str, int, str | None, bool, Mapping[str, object]]
"""Name, routing type, filter, whether it is durable, settings."""

_NAME: Final = b'"name":"'
#: Parsed in the place of a name, to see whether it is the name of the record that was cut out.
_CUT_OUT: Final = "the name was cut out here"
#: Texts without their names that are remembered; one takes about 2 KiB.
_SHAPES_MAX: Final = 64


def read_address(text: bytes) -> AddressText:
    """Decode an ADDRESS_ADD, without its id.

    Raises:
        ValueError, KeyError, TypeError: It is not what a broker could have written.
    """
    parts = _around_name(text)
    shape = None if parts is None else _address_shape(parts[0], parts[2])
    if parts is None or shape is None:
        return _address(_parsed(text))
    return (parts[1], *shape[1:])


def read_queue(text: bytes) -> QueueText:
    """Decode a QUEUE_ADD, without its ids.

    Raises:
        ValueError, KeyError, TypeError: It is not what a broker could have written.
    """
    parts = _around_name(text)
    shape = None if parts is None else _queue_shape(parts[0], parts[2])
    if parts is None or shape is None:
        return _queue(_parsed(text))
    return (parts[1], *shape[1:])


def _around_name(text: bytes) -> tuple[bytes, str, bytes] | None:
    """The text before the first name in it, that name, and the text after it; None if the name has
    escapes or anything else that JSON does not take as it is.
    """
    before, _, rest = text.partition(_NAME)
    quoted, quote, behind = rest.partition(b'"')
    if not quote or b"\\" in quoted or not quoted.isascii():
        return None
    name = str(quoted, "ascii")
    return (before, name, behind) if name.isprintable() else None


@lru_cache(_SHAPES_MAX)
def _address_shape(before: bytes, behind: bytes) -> AddressText | None:
    values = _shape(before, behind)
    return None if values is None else _address(values)


@lru_cache(_SHAPES_MAX)
def _queue_shape(before: bytes, behind: bytes) -> QueueText | None:
    values = _shape(before, behind)
    return None if values is None else _queue(values)


def _shape(before: bytes, behind: bytes) -> Any:
    """The parsed text around a name; None if that name is not the name of the record."""
    if before.count(b"{") != 1:
        # the text may be the name of something within the record
        return None
    try:
        values = _parsed(b"".join((before, _NAME, _CUT_OUT.encode(), b'"', behind)))
    except ValueError:
        return None
    return values if isinstance(values, dict) and values.get("name") == _CUT_OUT else None


def _parsed(text: bytes) -> Any:
    return json.loads(str(text, "utf-8"))


def _address(values: Any) -> AddressText:
    return (
        _typed(values, "name", str),
        tuple(_routing_type(each) for each in _typed(values, "routing_types", list)),
        _typed(values, "auto_created", bool),
        _typed(values, "settings", dict),
    )


def _queue(values: Any) -> QueueText:
    return (
        _typed(values, "name", str),
        _routing_type(values["routing_type"]),
        None if values["filter"] is None else _typed(values, "filter", str),
        _typed(values, "durable", bool),
        _typed(values, "settings", dict),
    )


def _typed(values: Any, name: str, kind: type[T]) -> T:
    value = values[name]
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _routing_type(number: object) -> int:
    if number is not True and number is not False and number in (0, 1):
        return int(number == 1)
    raise ValueError(f"no routing type {number!r}")
