"""The body of a large message that is sent: the source of its bytes, and its pieces.

A body may be bytes, an open file, or anything that gives bytes when iterated. Pieces are exactly
as large as the connection's minLargeMessageSize, the last one shorter, perhaps empty
(artemis-core s. 6.2). A body that can be read again is sent again after a failover.

Not here: opening files (the shells), credits and order (``sends``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Protocol, cast

from understudy.client.core.url.options import ClientOptions
from understudy.errors import IllegalState, LocalProtocolError
from understudy.message import LARGE_COMPRESSED, LARGE_SIZE, Message
from understudy.properties import BOOLEAN, LONG
from understudy.wire.core.packets import header_of_message, message_of_header


class Readable(Protocol):
    """An open binary file, or what behaves like one."""

    def read(self, length: int, /) -> bytes:
        """At most ``length`` bytes; empty at the end."""
        ...


class Seekable(Readable, Protocol):
    """A file whose ``seekable()`` is true."""

    def tell(self) -> int:
        """The present position, in bytes from the beginning."""
        ...

    def seek(self, position: int, /) -> object:
        """Continue reading at a position that ``tell`` returned."""
        ...


class BodySource(Protocol):
    """The bytes of a body."""

    def read(self, length: int) -> bytes:
        """At most that many of the next bytes; empty at the end."""
        ...

    def rewind(self) -> bool:
        """Begin again; False if that cannot be done."""
        ...


class BytesSource:
    """A body in memory. Implements ``BodySource``."""

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self._offset = 0

    def read(self, length: int) -> bytes:
        piece = bytes(self._view[self._offset : self._offset + length])
        self._offset += len(piece)
        return piece

    def rewind(self) -> bool:
        self._offset = 0
        return True


class FileSource:
    """An open binary file, from its present position to its end. A seekable file can be read again.

    Implements ``BodySource``.
    """

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._start = 0
        self._seekable: Seekable | None = None
        seekable = getattr(file, "seekable", None)
        if seekable is not None and seekable():
            self._seekable = cast(Seekable, file)
            self._start = self._seekable.tell()

    def read(self, length: int) -> bytes:
        data = self._file.read(length)
        if not isinstance(data, bytes):
            raise LocalProtocolError(f"a body that reads as {type(data).__name__}, not as bytes")
        return data

    def rewind(self) -> bool:
        if self._seekable is None:
            return False
        self._seekable.seek(self._start)
        return True


class IterableSource:
    """Pieces of bytes from an iterable. An iterator can be read once; any other iterable is iterated again.

    Implements ``BodySource``.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self._iterator: Iterator[bytes] = iter(pieces)
        self._once = self._iterator is pieces
        self._rest = b""

    def read(self, length: int) -> bytes:
        while not self._rest:
            piece = next(self._iterator, None)
            if piece is None:
                return b""
            if not isinstance(piece, (bytes, bytearray, memoryview)):
                raise LocalProtocolError(f"a body made of {type(piece).__name__}, not of bytes")
            self._rest = bytes(piece)
        data, self._rest = self._rest[:length], self._rest[length:]
        return data

    def rewind(self) -> bool:
        if self._once:
            return False
        self._iterator = iter(self._pieces)
        self._rest = b""
        return True


class LargeBodySend:
    """The pieces of one body, one after the other, from the beginning as often as needed."""

    def __init__(self, source: BodySource, piece_bytes: int, *, compress: bool = False, level: int = -1) -> None:
        """
        Args:
            source: At its beginning.
            piece_bytes: Size of every piece but the last.
            compress: Send it as a zlib stream (compressLargeMessage).
            level: 0 to 9, -1 for zlib's own choice.
        """
        self._source = source
        self._piece_bytes = piece_bytes
        self._compress = compress
        self._level = level
        self._left = False
        """Whether a piece was dropped, so that the beginning of the body is not in memory any more."""
        self._reset()

    def _reset(self) -> None:
        self._deflater = zlib.compressobj(self._level) if self._compress else None
        self._ready = bytearray()
        self._ended = False
        self._waiting: tuple[bytes, bool] | None = None
        self.original_bytes = 0
        """Bytes of the body read so far, before compression."""

    def restart(self) -> bool:
        """Return to the beginning of the body; False if its source cannot be read again."""
        if not self._left:
            return True
        if not self._source.rewind():
            return False
        self._left = False
        self._reset()
        return True

    def peek(self) -> tuple[bytes, bool]:
        """The next piece and whether more follow; ``drop`` advances to the piece after it.

        Raises:
            whatever reading the source does.
        """
        if self._waiting is None:
            self._waiting = self._next()
        return self._waiting

    def drop(self) -> None:
        """Called when the piece was sent."""
        self._waiting = None
        self._left = True

    def _next(self) -> tuple[bytes, bool]:
        ready, wanted = self._ready, self._piece_bytes
        while len(ready) < wanted and not self._ended:
            data = self._source.read(wanted - len(ready) if self._deflater is None else wanted)
            self.original_bytes += len(data)
            if self._deflater is None:
                ready += data
            elif data:
                ready += self._deflater.compress(data)
            else:
                ready += self._deflater.flush()
            self._ended = not data
        piece = bytes(ready[:wanted])
        del ready[:wanted]
        return piece, len(piece) == wanted


def small_if_compressed(header: Message, body: LargeBodySend) -> Message | None:
    """The ordinary message that a compressed body becomes when it fits into one piece (artemis-core s. 6.2).

    Raises:
        whatever reading the source does.
    """
    piece, continues = body.peek()
    if continues:
        return None
    properties = header.properties.copy()
    properties.set_typed(LARGE_COMPRESSED, BOOLEAN, True)
    properties.set_typed(LARGE_SIZE, LONG, body.original_bytes)
    return message_of_header(header_of_message(header.replace(properties=properties)), piece)


def compressed_header(header: Message) -> Message:
    """The header of a message whose body is sent compressed."""
    properties = header.properties.copy()
    properties.set_typed(LARGE_COMPRESSED, BOOLEAN, True)
    return header.replace(properties=properties)


def without_body(message: Message) -> Message:
    """The header of a message that is sent as a large one."""
    return message_of_header(header_of_message(message))


def large_send(header: Message, source: BodySource, options: ClientOptions) -> tuple[Message, LargeBodySend | None]:
    """A message whose body comes from ``source``: its header and its pieces, or an ordinary message
    if compression makes it small.

    Raises:
        IllegalState: its properties alone are larger than a piece may be.
    """
    piece_bytes = options.min_large_message_size
    if len(header.encoded) >= piece_bytes:
        raise IllegalState(
            f"properties and address of {len(header.encoded)} bytes in a large message",
            hint=f"they must be smaller than minLargeMessageSize, {piece_bytes}",
        )
    compress = options.compress_large_message
    body = LargeBodySend(source, piece_bytes, compress=compress, level=options.compression_level)
    if not compress:
        return header, body
    small = small_if_compressed(header, body)
    return (small, None) if small is not None else (compressed_header(header), body)


def split_if_large(message: Message, options: ClientOptions) -> tuple[Message, LargeBodySend | None]:
    """A whole message, as a large one if its body is larger than minLargeMessageSize (artemis-core s. 6.2)."""
    if message.header_offset <= options.min_large_message_size:
        return message, None
    return large_send(without_body(message), BytesSource(message.body), options)
