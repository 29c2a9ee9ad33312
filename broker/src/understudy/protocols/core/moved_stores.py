"""Records of the stores of other nodes whose messages have moved to this one (ADR 0126).

The node that was active with such a store asks every member for it when it returns, with its registration as a replica.
A record stays in the log of this node: an older one than the data of that node says nothing to it, so none has to be
removed in time. If this node is scaled down itself, its records move with its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.errors import LimitExceeded
from understudy.limits import MOVED_STORES_MAX
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import ReplicaProblem

_KIND: Final = SettingKind.MOVED_STORE


def keep(store: MessageStore, packet: packets.StoreMoved) -> int:
    """Record that the messages of a store are here; the sequence.

    Args:
        packet: Packet from the node that has moved them.

    Raises:
        LimitExceeded: the records of too many nodes are kept.
        StoreError: it cannot be recorded.
    """
    record = SettingRecord(
        _KIND,
        packet.node_id,
        {
            "sequence": packet.sequence,
            "copied_at": packet.copied_at,
            "place": packet.place,
            "epoch": packet.epoch,
            "log_sequence": packet.log_sequence,
            "common": packet.common,
            "last_batch": packet.last_batch.hex(),
        },
    )
    present = store.state.settings.get(record.key)
    if present is not None and _packet(present).sequence > packet.sequence:
        # an earlier scale-down, whose record has come with the messages of a third node
        return store.last_sequence
    known = [each for each in store.state.settings.values() if each.scope is _KIND]
    if len(known) >= MOVED_STORES_MAX and present is None:
        raise LimitExceeded(f"records of {len(known)} nodes that were scaled down to this one are kept")
    return store.store_setting(record)


def kept(store: MessageStore) -> Sequence[packets.StoreMoved]:
    """All records of other nodes, for the node that this one is scaled down to."""
    settings = store.state.settings.values()
    return [_packet(each) for each in settings if each.scope is _KIND and each.match != store.node_id]


def answer_for(store: MessageStore, node_id: str) -> packets.ReplicaAnswer | None:
    """The answer to a node that looks for the active node of its store; None: nothing is known of it."""
    record = store.state.settings.get((_KIND, node_id))
    if record is None:
        return None
    moved = _packet(record)
    return packets.ReplicaAnswer(
        ReplicaProblem.MOVED,
        f"all messages of node {node_id} have moved here",
        moved_sequence=moved.sequence,
        moved_copied_at=moved.copied_at,
        moved_place=moved.place,
        moved_epoch=moved.epoch,
        moved_log_sequence=moved.log_sequence,
        moved_common=moved.common,
        moved_last_batch=moved.last_batch,
    )


def _packet(record: SettingRecord) -> packets.StoreMoved:
    values = record.values or {}

    def number(name: str) -> int:
        value = values.get(name)
        return value if isinstance(value, int) else -1

    last_batch = bytes.fromhex(str(values.get("last_batch", "")))
    return packets.StoreMoved(
        record.match,
        number("sequence"),
        number("copied_at"),
        str(values.get("place", "")),
        number("epoch"),
        number("log_sequence"),
        number("common"),
        last_batch,
    )
