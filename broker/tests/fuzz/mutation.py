"""Changes to an input that keep most of it: blind to its meaning, but for numbers that look like sizes.

Everything is drawn from the generator given, so a seed repeats a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

#: Sizes, counts and ends that decoders get wrong.
INTERESTING = tuple(
    number.to_bytes(width, order)
    for width, order in ((4, "big"), (8, "big"), (4, "little"), (8, "little"), (2, "big"))
    for number in (
        0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF,
        *((0x10000, 0xFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF) if width > 2 else ()),
        *((1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1) if width > 4 else ()),
    )
)  # fmt: skip
#: Pieces of texts that parsers trip over.
TEXTS = (
    b"::", b"#", b"*", b"..", b"/", b"%", b"_", b"\\", b"'", b'"', b"(", b")", b"((((((((", b"NOT ", b" AND ", b" OR ",
    b" LIKE '%_%_'", b" IN (", b" BETWEEN ", b"1_0", b"1e999", b"-", b"NaN", b"0x1", b"\xd9\xa3", b"\xed\xa0\x80",
    b"\x00", b"<!DOCTYPE a [", b"&e;", b"<![CDATA[", b"<a/>", b"${", b"}", b"{", b"[", b"null", b"true", b"\r\n",
)  # fmt: skip

Mutator = Callable[[bytearray, random.Random, Sequence[bytes]], None]


def _flip_bit(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    if data:
        data[stream.randrange(len(data))] ^= 1 << stream.randrange(8)


def _set_byte(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    if data:
        data[stream.randrange(len(data))] = stream.choice((0, 1, 0x7F, 0x80, 0xFF, stream.randrange(256)))


def _overwrite_number(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    number = stream.choice(INTERESTING)
    if len(data) >= len(number):
        at = stream.randrange(len(data) - len(number) + 1)
        data[at : at + len(number)] = number


def _step_number(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    """A size that is off by little."""
    if len(data) >= 4:
        at = stream.randrange(len(data) - 3)
        value = int.from_bytes(data[at : at + 4]) + stream.randint(-16, 16)
        data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4)


def _remove(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    if data:
        at = stream.randrange(len(data))
        del data[at : at + stream.randint(1, 16)]


def _truncate(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    if data:
        del data[stream.randrange(len(data)) :]


def _repeat(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    if data:
        at = stream.randrange(len(data))
        piece = data[at : at + stream.randint(1, 64)]
        data[at:at] = piece * stream.choice((1, 2, 8, 32))


def _insert(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    at = stream.randint(0, len(data))
    data[at:at] = stream.choice((stream.randbytes(stream.randint(1, 8)), stream.choice(TEXTS)))


def _splice(data: bytearray, stream: random.Random, corpus: Sequence[bytes]) -> None:
    """Go on as another input does."""
    other = stream.choice(corpus)
    del data[stream.randint(0, len(data)) :]
    data += other[stream.randint(0, len(other)) :]


MUTATORS: tuple[Mutator, ...] = (
    _flip_bit, _set_byte, _overwrite_number, _overwrite_number, _step_number, _remove, _truncate, _repeat, _insert,
    _splice,
)  # fmt: skip


def mutate(corpus: Sequence[bytes], stream: random.Random, bytes_max: int) -> bytes:
    """One of the corpus with one to six changes; sometimes nothing of it."""
    if not corpus or stream.random() < 0.02:
        return stream.randbytes(stream.randint(0, min(64, bytes_max)))
    data = bytearray(stream.choice(corpus))
    for _ in range(stream.choice((1, 1, 1, 2, 2, 3, 6))):
        stream.choice(MUTATORS)(data, stream, corpus)
    return bytes(data[:bytes_max])
