"""Numbers of publishes and commits that channels of AMQP 0-9-1 have in the log (ADR 0195).

A number is a duplicate id of its own form. Of each channel the log keeps the highest one: the client learns after a
failover which of its publishes were accepted. Such ids are in no circle of an address, where other clients displace
ids.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from understudy.ids import uuid_bytes, uuid_text
from understudy.store.setting_record import SettingRecord

#: Address id of the records of numbers that no MESSAGE_ADD has.
NO_ADDRESS: Final = 0
#: First bytes of each such id.
NUMBER_PREFIX: Final = b"\0session\0"
#: UUID of the session, channel, incarnation, number.
_LAYOUT: Final = struct.Struct(f">{len(NUMBER_PREFIX)}s16sHIQ")
_NUMBER: Final = struct.Struct(">Q")
#: Bytes of each such id.
NUMBER_ID_BYTES: Final = _LAYOUT.size
_CHANNEL_LAYOUT: Final = struct.Struct(">HI")
_LAST: Final = slice(NUMBER_ID_BYTES - _NUMBER.size, NUMBER_ID_BYTES)
_CHANNEL: Final = slice(_LAST.start - _CHANNEL_LAYOUT.size, _LAST.start)
_SESSION: Final = slice(0, _CHANNEL.start)


def number_id(uuid: str, channel: int, incarnation: int, number: int) -> bytes:
    """The duplicate id of a number.

    Args:
        uuid: UUID of the session, as text.
        channel: Number of the channel.
        incarnation: Distinguishes channels of one number, which count anew.
        number: Number of the publish or commit.
    """
    return _LAYOUT.pack(NUMBER_PREFIX, uuid_bytes(uuid), channel, incarnation, number)


def has_numbers(ids: Sequence[bytes]) -> bool:
    """Whether numbers of sessions are among duplicate ids."""
    return any(map(bytes.startswith, ids, repeat(NUMBER_PREFIX))) and any(map(is_number, ids))


def is_number(duplicate_id: bytes) -> bool:
    """Whether a duplicate id is the number of a session."""
    return len(duplicate_id) == NUMBER_ID_BYTES and duplicate_id.startswith(NUMBER_PREFIX)


class SessionNumbers:
    """The highest number of each channel."""

    def __init__(self) -> None:
        self._highest: dict[bytes, dict[bytes, bytes]] = {}
        """The last eight bytes of the highest id of each channel and incarnation, by the beginning of the ids of the
        session. These bytes have the same order as the numbers."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionNumbers) and self._highest == other._highest

    __hash__ = None  # type: ignore[assignment]  # it changes

    def note(self, duplicate_ids: Iterable[bytes], is_session: Callable[[str], bool]) -> None:
        """Duplicate ids are in the log.

        Args:
            duplicate_ids: Numbers and other ids.
            is_session: Whether a session of this UUID is in the log; numbers of others do not count.
        """
        for each in filter(is_number, duplicate_ids):
            if is_session(uuid_text(_LAYOUT.unpack(each)[1])):
                session, channel, number = each[_SESSION], each[_CHANNEL], each[_LAST]
                highest = self._highest.setdefault(session, {})
                highest[channel] = max(number, highest.get(channel, number))

    def highest(self, uuid: str, channel: int, incarnation: int) -> int:
        """The highest number of a channel; 0: it has none."""
        sought = number_id(uuid, channel, incarnation, 0)
        found = self._highest.get(sought[_SESSION], {}).get(sought[_CHANNEL])
        return 0 if found is None else int(_NUMBER.unpack(found)[0])

    def follow(self, record: SettingRecord) -> None:
        """Forget the numbers of a session that ends, and of a channel that ends or is another one from now on."""
        uuid, _, channel = record.match.partition("/")
        if not channel and record.values is not None:
            return
        try:
            session = number_id(uuid, 0, 0, 0)[_SESSION]
        except ValueError:
            # the restoration of the sessions reports it
            return
        if not channel:
            self._highest.pop(session, None)
            return
        kept = None if record.values is None else record.values.get("incarnation")
        highest = self._highest.get(session, {})
        for each in list(highest):
            number, incarnation = _CHANNEL_LAYOUT.unpack(each)
            if channel == str(number) and incarnation != kept:
                del highest[each]
        if not highest:
            self._highest.pop(session, None)

    def ids(self) -> Iterator[bytes]:
        """All as duplicate ids."""
        for session, highest in self._highest.items():
            for channel, number in highest.items():
                yield session + channel + number
