"""The checksum of records, segments and page files: CRC-32 as in zlib.

Native twin: ``broker/kernel/src/log/crc.rs``.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

__all__ = ["crc32", "crc32_combine"]

#: The polynomial, lowest coefficient in the highest bit.
_POLYNOMIAL: Final = 0xEDB8_8320
#: The polynomial 1 in that form.
_ONE: Final = 1 << 31


def crc32_combine(first: int, second: int, second_length: int, /) -> int:
    """CRC-32 of two pieces of data from the crc of each, without the data.

    Args:
        first: CRC-32 of the first piece.
        second: CRC-32 of the second piece alone.
        second_length: Length of the second piece in bytes, less than 2**64.

    Raises:
        OverflowError: An argument is negative or too large.
    """
    for value, bits in ((first, 32), (second, 32), (second_length, 64)):
        if value < 0 or value >> bits:
            raise OverflowError(f"{value} is not an unsigned integer of {bits} bits")
    if not second_length:
        return first
    # the first piece is followed by 8 * second_length zero bits: multiplied by x to that power
    power = _ONE
    for bit, square in enumerate(_SQUARES):
        if second_length >> bit & 1:
            power = _multiply(square, power)
    return _multiply(power, first) ^ second


def _multiply(first: int, second: int) -> int:
    """Product of two polynomials modulo the polynomial of the crc."""
    product = 0
    bit = _ONE
    while bit:
        if first & bit:
            product ^= second
        second = second >> 1 ^ _POLYNOMIAL if second & 1 else second >> 1
        bit >>= 1
    return product


def _squares() -> tuple[int, ...]:
    power = _ONE >> 8
    powers = []
    for _ in range(64):
        powers.append(power)
        power = _multiply(power, power)
    return tuple(powers)


#: x to the power of 8 * 2**n, for each bit n of a length in bytes.
_SQUARES: Final = _squares()
