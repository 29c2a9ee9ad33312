"""Buckets of message groups (manual, "Message Grouping": group-buckets).

Which groups share a bucket is what clients of Artemis see in how messages are dealt out, so the hash is that of Artemis
(``SimpleString.hashCode``): h = 31 * h + b in 32 bits over the signed bytes of the UTF-16 little-endian form, from 0.

Not here: which consumer a group belongs to (``queue``).
"""

from __future__ import annotations

from codecs import utf_16_le_encode
from functools import lru_cache
from typing import Final

#: Names a bucket itself instead of a group, as in ``listGroupsAsJSON`` and ``resetGroup``.
BUCKET_KEY: Final = "_AMQ_GROUP_BUCKET_INT_KEY_"
#: Message groups of one queue that are told apart; further ones share an owner by hash.
GROUPS_MAX: Final = 100_000
#: Longest name whose hash is remembered.
_REMEMBERED_CHARACTERS: Final = 64
_INT_BITS: Final = 0x7FFF_FFFF


def bucket_key(group: str, buckets: int) -> str:
    """The key of the bucket of a group.

    Args:
        group: Its name, or a key that this function returned.
        buckets: How many there are, at least 1.
    """
    number = _remembered_hash(group) if len(group) <= _REMEMBERED_CHARACTERS else _hash(group)
    return f"{BUCKET_KEY}{number % buckets}"


def _hash(group: str) -> int:
    """The hash of a group's name, without its sign; of a bucket's own key that bucket."""
    number = group.removeprefix(BUCKET_KEY)
    if number is not group and _is_int(number):
        return int(number) & _INT_BITS
    value = 0
    # about 50 ns a byte; a name has at most STRING_UNITS_MAX characters
    for byte in memoryview(utf_16_le_encode(group, "surrogatepass")[0]).cast("b"):
        value = (31 * value + byte) & 0xFFFF_FFFF
    return value & _INT_BITS


def _is_int(text: str) -> bool:
    """Whether ``Integer.parseInt`` of Java takes it."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    # the last comparison is safe: the text is short
    return len(digits) <= 10 and digits.isascii() and digits.isdigit() and -_INT_BITS - 1 <= int(text) <= _INT_BITS


#: Groups come again and again, and every consumer that looks at a message asks.
_remembered_hash = lru_cache(maxsize=4096)(_hash)
