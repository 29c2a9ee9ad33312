"""Records of sessions and their channels in the log, from which the next active node has them (ADR 0195)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from understudy.errors import DiskFull, StoreError, StoreFormatHeld
from understudy.protocols.amqp091.resumption.kept_consumer import KeptConsumer
from understudy.store.messages.message_store import MessageStore
from understudy.store.session_numbers import NO_ADDRESS, number_id
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode

log = logging.getLogger(__name__)


class ChannelValues(NamedTuple):
    """The values of a channel that the log has."""

    incarnation: int
    mode: str
    prefetch: int
    prefetch_of_channel: int
    consumers: tuple[KeptConsumer, ...]
    returned: tuple[int, ...]
    rejected: tuple[int, ...]

    def values(self) -> dict[str, object]:
        """Values of the record."""
        return {**self._asdict(), "consumers": [each.values() for each in self.consumers]}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> ChannelValues:
        """The channel of a record. Raises ValueError, TypeError, KeyError: it is none."""
        numbers = {
            name: int(values[name]) for name in ("incarnation", "prefetch", "prefetch_of_channel")
        }  # fmt: skip
        return cls(
            mode=str(values["mode"]),
            consumers=tuple(map(KeptConsumer.read, values["consumers"])),
            returned=tuple(map(int, values["returned"])),
            rejected=tuple(map(int, values["rejected"])),
            **numbers,
        )


class SessionRecords:
    """The records of one session."""

    def __init__(self, store: MessageStore, uuid: str, channels: Mapping[int, ChannelValues] | None = None) -> None:
        """Args:
        store: Gets the records.
        uuid: UUID of the session.
        channels: Channels that the log has.
        """
        self._store = store
        self._uuid = uuid
        self._values: Mapping[str, object] | None = None
        """Values of the record of the session; None: it has none."""
        self.channels = dict(channels or {})
        """Channels that the log has, by number."""

    def save(self, values: Mapping[str, object]) -> bool:
        """Record the session. Returns whether the log has it: an earlier version of a passive node may forbid that.

        Raises:
            Amqp091Error: RESOURCE_ERROR: the disk is full.
        """
        if values == self._values:
            return True
        try:
            self._put(self._uuid, values)
        except StoreFormatHeld as error:
            log.warning("a session is kept at this node only", extra={"error": str(error), "hint": error.hint})
            return False
        self._values = values
        return True

    def save_channel(self, number: int, values: ChannelValues | None) -> None:
        """Record a channel, or its end. Raises Amqp091Error: RESOURCE_ERROR: the disk is full."""
        if values is None and number not in self.channels:
            return
        if values is None:
            self._put(f"{self._uuid}/{number}", None)
            del self.channels[number]
        elif self.channels.get(number) != values:
            self._put(f"{self._uuid}/{number}", values.values())
            self.channels[number] = values

    def _put(self, match: str, values: Mapping[str, object] | None) -> None:
        try:
            self._store.store_setting(SettingRecord(SettingKind.CLIENT_SESSION, match, values))
        except DiskFull as error:
            raise Amqp091Error(ReplyCode.RESOURCE_ERROR, "the disk of the broker is full") from error

    def end(self) -> None:
        """Remove all records."""
        try:
            for number in list(self.channels):
                self.save_channel(number, None)
            self._put(self._uuid, None)
        except (Amqp091Error, StoreError) as error:
            # the next active node ends the session by its timeout
            log.warning("the end of a session is not recorded", extra={"error": str(error)})

    def adopt(self, channels: Mapping[int, tuple[ChannelValues, int]]) -> None:
        """Record the channels of a session that another node gives.

        Args:
            channels: Values and the last number of each channel, by its number.

        Raises:
            Amqp091Error: RESOURCE_ERROR: the disk is full.
        """
        for number, (values, last) in channels.items():
            self.save_channel(number, values)
            self.store_number(number, last)

    # --- numbers -----------------------------------------------------------------------------------

    def number_id(self, channel: int, number: int) -> bytes:
        """The duplicate id of a publish of a channel that the log has."""
        return number_id(self._uuid, channel, self.channels[channel].incarnation, number)

    def store_number(self, channel: int, number: int, tx_id: int = 0) -> None:
        """Record a number without a message.

        Args:
            channel: Number of the channel.
            number: Number of the publish, or of a commit; 0: there is none.
            tx_id: Transaction with which it counts; 0: now.
        """
        if number:
            self._store.store_duplicate_ids(NO_ADDRESS, (self.number_id(channel, number),), tx_id)

    def accepted(self, channel: int) -> int:
        """The highest number of a channel in the log."""
        values = self.channels[channel]
        return max((self.last_number(channel), *values.returned, *values.rejected))

    def last_number(self, channel: int) -> int:
        """The highest number of a channel in the log that belongs to a message, or was recorded without one."""
        incarnation = self.channels[channel].incarnation
        return self._store.state.session_numbers.highest(self._uuid, channel, incarnation)


class ChannelRecord:
    """The record of one channel."""

    def __init__(self, records: SessionRecords, channel: int, incarnation: int) -> None:
        """Args:
        records: Records of its session.
        channel: Number of the channel.
        incarnation: Distinguishes it from earlier channels of the number.
        """
        self._records = records
        self._channel = channel
        self.incarnation = incarnation
        self.awaited: dict[str, KeptConsumer] = {}
        """Consumers that are made when the record is durable, by tag."""
        self.values: Callable[[], ChannelValues]
        """Present values of the channel; set when it joins its session."""

    def write(self) -> None:
        """Record the channel, if it has changed. Raises Amqp091Error: RESOURCE_ERROR: the disk is full."""
        self._records.save_channel(self._channel, self.values())

    def end(self) -> None:
        """Record the end of the channel."""
        try:
            self._records.save_channel(self._channel, None)
        except (Amqp091Error, StoreError) as error:
            # the session ends with its records later
            log.warning("the end of a channel is not recorded", extra={"error": str(error)})

    def number_id(self, number: int) -> bytes:
        """The duplicate id of a publish."""
        return self._records.number_id(self._channel, number)

    def store_number(self, number: int, tx_id: int = 0) -> None:
        """Record a number without a message (``SessionRecords.store_number``)."""
        self._records.store_number(self._channel, number, tx_id)


def restored_sessions(store: MessageStore) -> Iterator[tuple[str, Mapping[str, Any], SessionRecords]]:
    """UUID, values and records of each session in a log."""
    channels: dict[str, dict[int, ChannelValues]] = {}
    sessions: dict[str, Mapping[str, Any]] = {}
    for kind, match in list(store.state.settings):
        if kind is SettingKind.CLIENT_SESSION:
            values = store.state.settings[kind, match].values or {}
            uuid, _, number = match.partition("/")
            if number:
                channels.setdefault(uuid, {})[int(number)] = ChannelValues.read(values)
            else:
                sessions[uuid] = values
    for uuid, values in sessions.items():
        yield uuid, values, SessionRecords(store, uuid, channels.get(uuid))
