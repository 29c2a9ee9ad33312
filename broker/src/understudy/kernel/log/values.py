"""Property values of the messages of a run, for selectors that compare them."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from understudy.kernel.changes import block_of, entries_of
from understudy.kernel.log.runs import Run

_STRING: Final = 10
_NUMBERS: Final = {
    3: Struct(">b"), 5: Struct(">h"), 6: Struct(">i"), 7: Struct(">q"), 8: Struct(">f"), 9: Struct(">d"),
    11: Struct(">H"),
}  # fmt: skip

Value = int | float | str


def run_values(run: Run, begin: int, end: int, names: Sequence[bytes]) -> dict[tuple[Value, ...], list[int]]:
    """The rows of a run by the values that their messages have for these properties.

    Args:
        run: The messages, which are in memory.
        begin: First row.
        end: The row after the last one.
        names: Names of the properties, in UTF-16.

    Returns:
        Values in the order of ``names``, and the rows with them, which rise. Rows are left out in which a property is
        absent or no text and no number: such a value equals no literal of a selector but TRUE and FALSE.

    Raises:
        ValueError: A message is malformed, or the run is without its messages.
    """
    rows: dict[tuple[Value, ...], list[int]] = {}
    for row in range(begin, end):
        message = run.encoded(row)
        stop = len(message)
        block = block_of(message, 0, stop)
        if block < 0:
            raise ValueError(f"row {row} is malformed")
        found: dict[bytes, tuple[int, int, int]] = {}
        for entry in entries_of(message, block, stop):
            if entry is None:
                raise ValueError(f"row {row} is malformed")
            _, name, name_end, tag, value, value_end = entry
            # the last one of a name counts
            found[message[name:name_end]] = tag, value, value_end
        values: list[Value] = []
        for wanted in names:
            known = found.get(wanted)
            each = _value(message, *known) if known is not None else None
            if each is None:
                break
            values.append(each)
        if len(values) == len(names):
            rows.setdefault(tuple(values), []).append(row)
    return rows


def _value(message: bytes, tag: int, begin: int, end: int) -> Value | None:
    """A text or a number; None: it is neither."""
    number = _NUMBERS.get(tag)
    if number is not None:
        found: Value = number.unpack_from(message, begin)[0]
        return found
    return message[begin:end].decode("utf-16-le", "surrogatepass") if tag == _STRING else None
