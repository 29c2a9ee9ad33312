"""Frames beyond the limits, which no encoder of the product writes."""

from __future__ import annotations

from unittest import mock

from understudy.wire import buffer
from understudy.wire.core import layout, packets
from understudy.wire.core.codec import encode

_UNLIMITED = 1 << 30


def oversized(packet: packets.Packet, channel_id: int = 10, version: int = 136) -> bytes:
    """The frame of a packet, whatever the length of its texts."""
    texts = mock.patch.object(buffer.Writer.simple_string, "__defaults__", (_UNLIMITED,))
    strings = mock.patch.object(buffer, "STRING_UNITS_MAX", _UNLIMITED)
    with texts, strings, mock.patch.object(layout, "NAME_UNITS_MAX", _UNLIMITED):
        return encode(packet, channel_id, version)
