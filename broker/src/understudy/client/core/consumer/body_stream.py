"""The body of a large message, read while its pieces arrive.

Memory is bounded by credits: the broker sends a piece only for credits, and these go back at once
while little is held here, and later only as the application reads. Without credits
(``consumerWindowSize=-1``) nothing bounds it. A compressed body is inflated as it is read.

Not here: waiting (the shells), which message it belongs to (``consumer``).
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Final

from understudy.errors import BrokerError, IllegalState, RemoteProtocolError

#: Bytes held ahead of the application before credits wait for it.
READ_AHEAD_BYTES: Final = 1024 * 1024
#: Most bytes inflated at a time.
_INFLATE_BYTES: Final = 256 * 1024


class BodyStream:
    """Body of one incoming large message, of which it holds at most as many bytes as credits allow."""

    __slots__ = (
        "_buffered_bytes",
        "_discarded",
        "_give_back",
        "_inflater",
        "_pieces",
        "complete",
        "failure",
        "message_id",
        "on_change",
        "size_bytes",
    )  # fmt: skip

    def __init__(
        self, size_bytes: int, *, compressed: bool, give_back: Callable[[int, bool], None], message_id: int = 0
    ) -> None:
        """
        Args:
            size_bytes: Size of the body as it travels, in bytes.
            compressed: Whether that is a zlib stream.
            give_back: Gets the credits of a piece that are free again, and whether it was the last.
        """
        self.size_bytes = size_bytes
        self.message_id = message_id
        self.complete = False
        """Whether everything has arrived."""
        self.failure: BrokerError | None = None
        self.on_change: Callable[[], None] | None = None
        """Called when the result of ``take`` may have changed."""
        self._give_back = give_back
        self._inflater = zlib.decompressobj() if compressed else None
        self._pieces: deque[tuple[bytes, int, bool]] = deque()
        self._buffered_bytes = 0
        self._discarded = False

    @property
    def buffered_bytes(self) -> int:
        """Bytes that arrived and were not taken."""
        return self._buffered_bytes

    def arrived(self, piece: bytes, cost_bytes: int, continues: bool) -> None:
        """Take the next piece of the body."""
        self.complete = not continues
        if self._discarded:
            self._give_back(cost_bytes, not continues)
            return
        self._buffered_bytes += len(piece)
        if self._buffered_bytes <= READ_AHEAD_BYTES or not continues:
            self._give_back(cost_bytes, not continues)
            cost_bytes = 0
        self._pieces.append((piece, cost_bytes, not continues))
        self._changed()

    def take(self, limit: int) -> bytes | None:
        """At most that many of the next bytes, empty at the end; None: nothing has come yet.

        Raises:
            BrokerError: the rest will never come, ``failure``.
            IllegalState: it was discarded.
            RemoteProtocolError: it says that it is compressed and is not.
        """
        if self._discarded:
            raise IllegalState("the body was discarded: its consumer went on to the next message")
        if self._inflater is not None:
            return self._inflate(self._inflater, min(limit, _INFLATE_BYTES))
        return self._raw(limit)

    def _raw(self, limit: int) -> bytes | None:
        pieces = self._pieces
        while pieces:
            piece, cost_bytes, last = pieces.popleft()
            data = piece[:limit]
            self._buffered_bytes -= len(data)
            if len(data) < len(piece):
                pieces.appendleft((piece[limit:], cost_bytes, last))
                return data
            if cost_bytes:
                self._give_back(cost_bytes, last)
            if data:
                return data
        if self.failure is not None:
            raise self.failure
        return b"" if self.complete else None

    def _inflate(self, inflater: zlib._Decompress, limit: int) -> bytes | None:
        while True:
            data = inflater.unconsumed_tail or (b"" if inflater.eof else self._raw(limit))
            if data is None:
                return None
            try:
                inflated = inflater.decompress(data, limit)
            except zlib.error as error:
                raise RemoteProtocolError(f"compressed large message: {error}") from error
            if inflated or inflater.eof:
                return inflated
            if not data:
                raise RemoteProtocolError("compressed large message: it ends too early")

    def discard(self) -> None:
        """Drop the body: the part that has arrived and the part that still arrives."""
        if self._discarded:
            return
        self._discarded = True
        for _, cost_bytes, last in self._pieces:
            if cost_bytes:
                self._give_back(cost_bytes, last)
        self._pieces.clear()
        self._buffered_bytes = 0
        self._changed()

    def fail(self, error: BrokerError) -> None:
        """End the stream with an error: the rest of the body does not come, and a closed session gets no credits
        back."""
        if self.complete or self.failure is not None:
            return
        self.failure = error
        self._give_back = _nothing
        self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def _nothing(cost_bytes: int, last: bool) -> None:
    """Credits of a session that is gone."""
