"""Contents of messages: Python values for the bodies of all kinds of JMS messages (artemis-core s. 5.2).

=========  ==================================================================================================
kind       content
=========  ==================================================================================================
TEXT       ``str``; None for a text message without text
BYTES      ``bytes``
MAP        ``dict`` of names to values
STREAM     ``list`` of values
OBJECT     ``bytes``: Java serialization, which is never read here
DEFAULT    None without a body; else ``bytes``
=========  ==================================================================================================

Values of maps and streams are bool, int, float, str, bytes or None. Not here: messages (``bodies``, ``received``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy.client.core.consumer.bodies import decode_map, decode_text
from understudy.client.core.consumer.stream_bodies import decode_stream
from understudy.message import MessageType
from understudy.properties import PropertyValue

Content = str | bytes | dict[str, PropertyValue] | list[PropertyValue] | None
"""The content of a message of any kind."""

_KINDS: Final[Mapping[int, str]] = {
    MessageType.TEXT: "a text message",
    MessageType.BYTES: "a bytes message",
    MessageType.MAP: "a map message",
    MessageType.STREAM: "a stream message",
    MessageType.OBJECT: "an object message",
    MessageType.DEFAULT: "a message without a kind",
}


def kind_text(kind: int) -> str:
    """The kind in words, for errors."""
    return _KINDS.get(kind, f"a message of kind {kind}")


def decode_content(kind: int, body: bytes) -> Content:
    """The content of a body.

    Raises:
        RemoteProtocolError: the body is not of this kind.
    """
    if kind == MessageType.TEXT:
        return decode_text(body)
    if kind == MessageType.MAP:
        return dict(decode_map(body))
    if kind == MessageType.STREAM:
        return decode_stream(body)
    return None if kind == MessageType.DEFAULT and not body else body
