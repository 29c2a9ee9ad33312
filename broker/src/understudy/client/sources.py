"""Bodies to send: accepted types, and the sources of the bytes of large ones.

Used by both shells. Not here: pieces, compression and credits (``core.large_sends``, ``core.sends``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, cast

from understudy.client.core.session.large_sends import BodySource, FileSource, IterableSource, Readable
from understudy.message import Message
from understudy.properties import PropertyValue

Body = (
    Message
    | bytes
    | bytearray
    | memoryview
    | str
    | Mapping[str, PropertyValue]
    | list[Any]
    | os.PathLike[str]
    | Readable
    | Iterable[bytes]
    | None
)
"""A whole message; bytes, text, a map or the values of a stream message to make one of; or where the bytes of a large
one come from: the path of a file, an open binary file, or an iterable of bytes that is no list."""


def plain_body(body: Body) -> Body:
    """The body with a buffer as bytes; a later change of the buffer does not reach a message under way."""
    return bytes(body) if isinstance(body, (bytearray, memoryview)) else body


def is_stream(body: object) -> bool:
    """Whether a body is read while it is sent."""
    if body is None or isinstance(body, (Message, bytes, str, Mapping, list)):
        return False
    return isinstance(body, (os.PathLike, Iterable)) or hasattr(body, "read")


def open_source(body: object) -> tuple[BodySource, BinaryIO | None]:
    """Reader of the bytes of a stream, and the file to be closed afterwards if it was opened here.

    Raises:
        OSError: the file cannot be opened.
    """
    if isinstance(body, os.PathLike):
        file = open(body, "rb")  # noqa: SIM115  # closed when the send has ended
        return FileSource(file), file
    if hasattr(body, "read"):
        return FileSource(cast(Readable, body)), None
    return IterableSource(cast("Iterable[bytes]", body)), None
