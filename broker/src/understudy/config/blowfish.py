"""The Blowfish cipher in ECB mode with PKCS #5 padding, for passwords that ``artemis mask`` has masked.

Its tables are the binary digits of pi, which are computed once when they are needed. It is here because
Artemis' default password codec uses it, and for nothing else: masking keeps a password from being read in
passing; it does not protect it from a reader that has the key. Source: Schneier, "Description of a New
Variable-Length Key, 64-Bit Block Cipher"; test vectors by Eric Young.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

_ROUNDS: Final = 16
_P_WORDS: Final = _ROUNDS + 2
_BOXES: Final = 4
_BLOCK_BYTES: Final = 8
_MASK: Final = 0xFFFF_FFFF
KEY_BYTES_MAX: Final = 56

_BLOCK = struct.Struct(">II")


@cache
def _digits() -> tuple[int, ...]:
    """The fraction of pi as 32-bit words: first those of the P array, then those of the four S boxes."""
    words = _P_WORDS + _BOXES * 256
    guard_bits = 64
    one = 1 << (32 * words + guard_bits)

    def arctan_of_inverse(x: int) -> int:
        term = total = one // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    # Machin's formula
    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    fraction = (pi - 3 * one) >> guard_bits
    return tuple((fraction >> (32 * (words - 1 - index))) & _MASK for index in range(words))


def check_key(key: bytes) -> None:
    """Raises ValueError: no key, or one of more than ``KEY_BYTES_MAX`` bytes."""
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")


class Blowfish:
    """The cipher under one key."""

    def __init__(self, key: bytes) -> None:
        """Raises ValueError: no key, or one of more than ``KEY_BYTES_MAX`` bytes."""
        check_key(key)
        digits = _digits()
        repeated = key * (4 * _P_WORDS // len(key) + 1)
        mixed = struct.unpack_from(f">{_P_WORDS}I", repeated)
        self._p = [digit ^ word for digit, word in zip(digits, mixed, strict=False)]
        self._s = [list(digits[_P_WORDS + 256 * box :][:256]) for box in range(_BOXES)]
        left = right = 0
        for table in (self._p, *self._s):
            for index in range(0, len(table), 2):
                left, right = self._encrypt_block(left, right)
                table[index : index + 2] = (left, right)

    def encrypt(self, plain: bytes) -> bytes:
        """The padded text, encrypted."""
        missing = _BLOCK_BYTES - len(plain) % _BLOCK_BYTES
        padded = plain + bytes([missing]) * missing
        return b"".join(_BLOCK.pack(*self._encrypt_block(*block)) for block in _BLOCK.iter_unpack(padded))

    def decrypt(self, encrypted: bytes) -> bytes:
        """The text without its padding. Raises ValueError: it was not encrypted with this key."""
        if not encrypted or len(encrypted) % _BLOCK_BYTES:
            raise ValueError(f"{len(encrypted)} bytes are no whole blocks")
        padded = b"".join(_BLOCK.pack(*self._decrypt_block(*block)) for block in _BLOCK.iter_unpack(encrypted))
        missing = padded[-1]
        if not 0 < missing <= _BLOCK_BYTES or padded[-missing:] != bytes([missing]) * missing:
            raise ValueError("the padding is wrong")
        return padded[:-missing]

    def _encrypt_block(self, left: int, right: int) -> tuple[int, int]:
        return self._run(left, right, iter(self._p))

    def _decrypt_block(self, left: int, right: int) -> tuple[int, int]:
        return self._run(left, right, reversed(self._p))

    def _run(self, left: int, right: int, keys: Iterator[int]) -> tuple[int, int]:
        first, second, third, fourth = self._s
        for _ in range(_ROUNDS):
            left ^= next(keys)
            mixed = (first[left >> 24] + second[left >> 16 & 0xFF]) & _MASK
            right ^= ((mixed ^ third[left >> 8 & 0xFF]) + fourth[left & 0xFF]) & _MASK
            left, right = right, left
        left, right = right, left
        right ^= next(keys)
        left ^= next(keys)
        return left, right
