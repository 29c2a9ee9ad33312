"""Message groups of a queue and their owners, and buckets of groups (manual, "Message Grouping").

Which groups share a bucket is what clients of Artemis see in how messages are dealt out, so the hash is that of Artemis
(``SimpleString.hashCode``): h = 31 * h + b in 32 bits over the signed bytes of the UTF-16 little-endian form, from 0.

Not here: which consumer becomes an owner (``delivery``).
"""

from __future__ import annotations

import hashlib
import zlib
from codecs import utf_16_le_encode
from functools import lru_cache
from typing import Final

from understudy.limits import GROUP_NAME_CHARACTERS_MAX
from understudy.routing.queues.consumer import Consumer

#: Names a bucket itself instead of a group, as in ``listGroupsAsJSON`` and ``resetGroup``.
BUCKET_KEY: Final = "_AMQ_GROUP_BUCKET_INT_KEY_"
#: Message groups of one queue with an owner of their own; further ones share an owner by hash.
GROUPS_MAX: Final = 100_000
#: Longest name whose hash is remembered.
_REMEMBERED_CHARACTERS: Final = 64
_INT_BITS: Final = 0x7FFF_FFFF


def bucket_key(group: str, buckets: int) -> str:
    """The key of the bucket of a group.

    Args:
        group: Name of the group, or a key that this function returned.
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


class MessageGroups:
    """Message groups of one queue that have an owner."""

    __slots__ = ("met", "owners")

    def __init__(self) -> None:
        self.met = False
        """Whether a message of a group was met since the activation."""
        self.owners: dict[str, Consumer] = {}
        """Key of a group (``key``) to its consumer."""

    def key(self, group: str, buckets: int | None) -> str:
        """Key of a group: its name, or its bucket where there are buckets or too many groups.

        Args:
            buckets: ``group-buckets`` of the queue.
        """
        if len(group) > GROUP_NAME_CHARACTERS_MAX:
            digest = hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()
            group = f"{group[:GROUP_NAME_CHARACTERS_MAX]}...{digest}"
        if buckets is not None and buckets > 0:
            return bucket_key(group, buckets)
        if len(self.owners) >= GROUPS_MAX and group not in self.owners:
            return f"\x00{zlib.crc32(group.encode('utf-8', 'surrogatepass')) % 1024}"
        return group

    def consumer_left(self, consumer: Consumer) -> None:
        """Called when the groups of a consumer have no owner any more."""
        self.owners = {key: owner for key, owner in self.owners.items() if owner is not consumer}
