"""Damage to messages on the simulated storage, its entries in the quarantine, and clients that read damaged messages.

Only records that must be found damaged later are chosen: their message waits in a queue, and a later batch
is synced, so that no crash makes them part of a torn tail (docs/build/journal-format.md s. 2.3).
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import StoreError
from understudy.message import Message
from understudy.store.log.reading.follower import Follower
from understudy.store.log.reading.replay import read_frame
from understudy.store.log.records import HEADER_BYTES, decode_message
from understudy.store.log.segment import seed_of, segment_name
from understudy.store.messages.reference import MessageReference, unpack_location
from understudy.store.quarantine import QuarantineEntry, read_entries
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.workload import (
    NUMBER_PROPERTY,
    PRODUCER_PROPERTY,
    START_OVER_S,
    TRYING_AGAIN_HELPS,
    ClientPlan,
    close_connection,
)
from understudy.testing.sim.disk import SimVolume

_MANAGEMENT_ADDRESS: Final = "activemq.management"
#: Time in seconds between two checks of a queue.
_LOOK_S: Final = 0.7


@dataclass(frozen=True, slots=True)
class DamagedMessage:
    """A message whose body was damaged in the log."""

    message_id: int
    producer: str
    number: int
    path: str
    offset: int
    """Offset of the byte in the file."""


def damage_waiting(volume: SimVolume, directory: str, stream: random.Random, count: int) -> list[DamagedMessage]:
    """Flip a bit in the bodies of waiting messages.

    Args:
        volume: The storage.
        stream: Chooses messages and bits.
        count: Most messages to damage.

    Returns:
        The damaged messages; empty if the log cannot be read now, or no suitable message waits.
    """
    synced = volume.synced_copy()
    follower = Follower(synced.disk("auditor"), directory, quarantine=True)
    with suppress(StoreError):
        # a node may be about to begin its epoch
        while follower.poll(1 << 30):
            pass
    last = follower.last_read()
    epochs = {number: use.epoch for number, use in follower.state.segments.items()}
    waiting = {
        reference.message_id: reference
        for backlog in follower.state.references.values()
        for reference in backlog.references()
    }
    follower.close()
    if last is None:
        return []
    present = set(volume.paths())
    contents: dict[str, bytes] = {}
    found: list[tuple[DamagedMessage, int]] = []
    for reference in waiting.values():
        assert reference.location is not None, "a follower knows where its messages are"
        number, offset, _ = unpack_location(reference.location)
        path = f"{directory}/{segment_name(number, epochs[number])}"
        if (number, offset) >= (last.number, last.batch) or path not in present:
            continue
        if path not in contents:
            contents[path] = synced.content(path)
        chosen = _body_of(contents[path], path, seed_of(number, epochs[number]), reference)
        if chosen is not None:
            found.append(chosen)
    damaged: list[DamagedMessage] = []
    for message, length in stream.sample(found, min(count, len(found))):
        at = message.offset + stream.randrange(length)
        volume.flip_bit(message.path, at, stream.randrange(8))
        damaged.append(DamagedMessage(message.message_id, message.producer, message.number, message.path, at))
    return damaged


def _body_of(content: bytes, path: str, seed: int, reference: MessageReference) -> tuple[DamagedMessage, int] | None:
    """Offset of the body of a message in its segment, and its length; None if it has none or is damaged
    already."""
    assert reference.location is not None
    _, offset, length = unpack_location(reference.location)
    raw = content[offset : offset + length]
    if read_frame(raw, 0, offset, seed) is None:
        return None
    encoded = decode_message(raw[HEADER_BYTES:]).encoded
    message = Message.decode(encoded)
    producer, number = message.properties.get(PRODUCER_PROPERTY), message.properties.get(NUMBER_PROPERTY)
    if not (isinstance(producer, str) and isinstance(number, int) and message.body):
        return None
    at = offset + raw.index(encoded) + encoded.index(message.body)
    return DamagedMessage(reference.message_id, producer, number, path, at), len(message.body)


def quarantined(volume: SimVolume, directory: str) -> list[QuarantineEntry]:
    """The quarantine of a store, read as an outsider would."""
    return [kept.entry for kept in read_entries(volume.disk("auditor"), directory)]


def judge_quarantine(
    entries: list[QuarantineEntry], damaged: dict[int, tuple[str, int]]
) -> tuple[set[tuple[str, int]], list[Violation]]:
    """Which messages the quarantine explains, and its faults: it may contain exactly the damaged messages.

    Args:
        entries: The quarantine at the end of a run.
        damaged: Message id to producer and number, of damaged messages.
    """
    explained = {damaged[entry.message_id] for entry in entries if entry.message_id in damaged}
    violations = [
        Violation("quarantine", f"{entry.entry_id} was not damaged: {entry.reason}")
        for entry in entries
        if entry.message_id not in damaged
    ]
    violations += [
        Violation("quarantine", f"{entry.entry_id} is held, but its damage is final: {entry.reason}")
        for entry in entries
        if entry.held
    ]
    return explained, violations


async def browse(plan: ClientPlan, queue: str) -> int:
    """Look at every message of a queue once; how many there were."""
    connection = await plan.connect()
    try:
        session = await connection.session()
        return len([received async for received in await session.browser(queue)])
    finally:
        await close_connection(connection)


async def count_by_management(plan: ClientPlan, queue: str) -> None:
    """Have the broker count the messages of a queue with a selector, for which it reads all of them."""
    connection = await plan.connect()
    try:
        session = await connection.session()
        producer = await session.producer(_MANAGEMENT_ADDRESS, auto_create=False)
        properties = {"_AMQ_ResourceName": f"queue.{queue}", "_AMQ_OperationName": "countMessages"}
        await producer.send(json.dumps([f"{NUMBER_PROPERTY} >= 0"]), properties=properties)
        await session.close()
    finally:
        await close_connection(connection)


async def browse_damage(plan: ClientPlan, queue: str) -> None:
    """Browse a queue and have its messages counted, in turn, until the process ends."""
    while True:
        for look in (browse, count_by_management):
            with suppress(*TRYING_AGAIN_HELPS):
                await look(plan, queue)
            await asyncio.sleep(START_OVER_S + _LOOK_S)
