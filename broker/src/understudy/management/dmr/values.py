"""Values of the management model, and the same values as JSON.

``undefined`` is None, a long integer is ``Long``, a decimal number is ``Decimal``. JSON has one kind of number, so a
value that went through JSON is an ``int`` where it was a ``Long``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from understudy.errors import ConfigError

#: Maximum nesting of lists and objects in a value.
DEPTH_MAX: Final = 32
_BYTES: Final = "BYTES_VALUE"
_EXPRESSION: Final = "EXPRESSION_VALUE"


class Long(int):
    """A whole number of 64 bits, which is written with the suffix L."""

    __slots__ = ()


Value = None | bool | int | Decimal | str | bytes | Sequence[Any] | Mapping[str, Any]
"""``Sequence`` and ``Mapping`` hold values; ``Long`` is an ``int``."""


def to_json(value: Value) -> Any:
    """A value as builtins of Python that ``json`` writes; ``undefined`` is null, bytes are base64 in an object."""
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, Decimal):
        return int(value) if abs(value.adjusted()) < 30 and value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return int(value) if isinstance(value, Long) else value


def from_json(value: Any, depth: int = 0) -> Value:
    """A value of parsed JSON.

    Raises:
        ConfigError: it is nested too deeply, or is no value of the model.
    """
    if depth > DEPTH_MAX:
        raise ConfigError(f"a value is nested more than {DEPTH_MAX} times")
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list):
        return [from_json(each, depth + 1) for each in value]
    if isinstance(value, dict):
        if list(value) == [_BYTES] and isinstance(value[_BYTES], str):
            return _bytes(value[_BYTES])
        if list(value) == [_EXPRESSION] and isinstance(value[_EXPRESSION], str):
            return value[_EXPRESSION]
        return {str(name): from_json(each, depth + 1) for name, each in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ConfigError(f"{type(value).__name__} is no value of the management model")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{_BYTES}: the text is not base64") from None
