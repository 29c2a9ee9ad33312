"""The two kernels (ADR 0034) for tests that compare them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

import pytest

from understudy.kernel import load_native

T = TypeVar("T")

NATIVE: ModuleType | None
"""The native module; None where it cannot be used."""
try:
    NATIVE = load_native()
    _why = ""
except ImportError as error:
    NATIVE = None
    _why = str(error)

#: Skips a test that needs the native module, with the reason.
needs_native = pytest.mark.skipif(NATIVE is None, reason=_why)


def both(function: Callable[..., T], *arguments: object) -> T:
    """The value that a function of ``understudy.kernel`` returns, or the exception it raises.

    Args:
        function: The Python twin; the native function has the same name.
        arguments: Given to both.

    Raises:
        AssertionError: The results differ, in value or type, or one of them raises another type of exception.
    """
    assert NATIVE is not None
    expected, found = _outcome(function, arguments), _outcome(getattr(NATIVE, function.__name__), arguments)
    if isinstance(expected, Exception):
        assert type(found) is type(expected), f"the native function gave {found!r}, the twin {expected!r}"
        raise expected
    assert found == expected
    assert type(found) is type(expected)
    return expected


def _outcome(function: Callable[..., T], arguments: tuple[object, ...]) -> T | Exception:
    try:
        return function(*arguments)
    except Exception as error:
        return error
