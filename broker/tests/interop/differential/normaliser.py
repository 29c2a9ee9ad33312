"""Packets as plain values that two brokers must agree on; values that differ by nature are left out or named.

Left out: message and correlation ids (whether there is one is kept), texts of errors, the part of the names that makes
each run's queues its own, values of times (whether there is one is kept). Everything else is kept, wire types of
properties included.
"""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Any

from understudy.message import FORCED_DELIVERY, ORIGINAL_ADDRESS, Message
from understudy.wire.core import packets

#: Their values differ by nature; that they are there, and their type, does not.
_VALUES_DIFFER = ("_AMQ_ORIG_MESSAGE_ID", "_AMQ_ACTUAL_EXPIRY", "_AMQ_SCHED_DELIVERY", "_AMQ_INGRESS_TIMESTAMP")

#: Fields that packets of Artemis do not have, and that its clients do not read (ADR 0058).
_OURS_ALONE = {packets.CreateSessionResponse: ("epoch", "takes_settlements")}

#: Attributes of queues whose message counts do (exclusions.COUNT_OF_LAST_VALUES, COUNT_OF_LOANS, WHEN_IT_IS_PURGED).
_COUNTS_DIFFER = ("last_value", "non_destructive", "purge_on_no_consumers")

#: Bytes of a body that are shown.
_TEXT_MAX = 20

#: The ``group-first-key`` of the programs' queues.
GROUP_FIRST_KEY = "first"

Value = Any


class Normaliser:
    """Conversion of the packets of one run into values that can be compared with those of another broker."""

    def __init__(self, mark: str) -> None:
        """Args:
        mark: What every name of the run carries.
        """
        self._mark = mark

    def text(self, value: str | None) -> str | None:
        """Without the mark."""
        return None if value is None else value.replace(self._mark, "")

    def message(self, message: Message) -> dict[str, Value]:
        """All of it that is the program's or the broker's doing."""
        properties = {}
        for key in sorted(message.properties):
            value = "(any)" if key in _VALUES_DIFFER else message.properties[key]
            if key == ORIGINAL_ADDRESS:
                value = str(value).partition("::")[0]  # exclusions.ORIGINAL_ADDRESS_OF_A_QUEUE
            if isinstance(value, str):
                value = self.text(value)
            properties[key] = (message.properties.tag(key), repr(value))
        body = message.body.decode("utf-8", "replace")
        if len(body) > _TEXT_MAX:
            body = f"{body[:_TEXT_MAX]} ... {len(body)} bytes, crc {zlib.crc32(message.body)}"
        return {
            "body": body,
            "address": self.text(message.address),
            "type": message.type,
            "durable": message.durable,
            "priority": message.priority,
            "expires": message.expiration != 0,
            "timestamp": message.timestamp,
            "user id": message.user_id is not None,
            "id": message.message_id > 0,
            "properties": properties,
        }

    def add(self, news: list[Value], packet: packets.Packet, message: Message | None) -> None:
        """Append a packet that came without a request; consecutive pieces of a large message are one entry.

        Args:
            message: The delivered message if the packet is a delivery, otherwise None.
        """
        if isinstance(packet, packets.ReceiveLargeMessage):
            assert message is not None
            said = {
                "consumer": packet.consumer_id,
                "delivery count": packet.delivery_count,
                "bytes": packet.large_message_size,
            }
            seen = self.message(message)
            seen["properties"].pop(GROUP_FIRST_KEY, None)  # exclusions.FIRST_OF_LARGE
            news.append(("ReceiveLargeMessage", said, seen))
        elif isinstance(packet, packets.ReceiveContinuation):
            if not (news and news[-1][0] == "pieces"):
                news.append(("pieces", {"sizes": (), "crc": 0, "end": False}))
            pieces = news[-1][1]
            pieces["sizes"] += (len(packet.body),)
            pieces["crc"] = zlib.crc32(packet.body, pieces["crc"])
            pieces["end"] = not packet.continues
            if pieces["end"]:
                news[-1] = ("pieces to the end", pieces)
        else:
            news.append(self.packet(packet))

    def packet(self, packet: packets.Packet | None) -> Value:
        """An answer or something that came by itself."""
        if packet is None:
            return "no answer"
        name = type(packet).__name__
        if isinstance(packet, packets.ReceiveMessage):
            if FORCED_DELIVERY in packet.message.properties:
                return (name, "marker")
            return (
                name,
                {"consumer": packet.consumer_id, "delivery count": packet.delivery_count},
                self.message(packet.message),
            )
        if isinstance(packet, packets.ExceptionResponse):
            return (name, {"code": int(packet.error_code), "correlated": packet.correlation_id is not None})
        if isinstance(packet, packets.XaResponse):
            return (name, {"error": packet.error, "code": int(packet.response_code)})
        if isinstance(packet, packets.XaInDoubtResponse):
            mine = self._mark.encode()
            return (name, sorted(str(xid.branch_qualifier) for xid in packet.xids if mine in xid.global_transaction_id))
        said = {entry.name: getattr(packet, entry.name) for entry in fields(packet)}  # type: ignore[arg-type]
        for ours in _OURS_ALONE.get(type(packet), ()):
            del said[ours]
        if said.get("durable") is False:  # exclusions.SHARED_NOT_DURABLE
            said.pop("temporary")
            said.pop("auto_delete", None)
        if any(said.get(key) for key in _COUNTS_DIFFER):
            said.pop("message_count", None)
        for key, value in said.items():
            if isinstance(value, str):
                said[key] = self.text(value)
            elif isinstance(value, tuple):
                said[key] = sorted(str(self.text(item)) for item in value)
        return (name, said)
