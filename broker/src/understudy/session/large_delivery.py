"""Delivery of a large message to one consumer, read from its file piece by piece (artemis-core s. 6.3).

While it lasts it needs its file like a reference does, so an acknowledgement in the middle, or one
by another consumer while it is browsed, does not take the file away.

Not here: when a piece may go (``session.consumer``), its encoding.
"""

from __future__ import annotations

from understudy.limits import LARGE_PIECE_BYTES_MAX, LARGE_PIECE_BYTES_MIN
from understudy.message import LargeMessage
from understudy.store.messages.large_messages import LargeMessages, LargeReader
from understudy.store.messages.reference import MessageReference


class LargeDelivery:
    """Delivery of one large message from its first packet to its last."""

    __slots__ = ("_file_id", "_folder", "_piece_bytes", "_reader", "reference")

    def __init__(
        self, folder: LargeMessages, reference: MessageReference, message: LargeMessage, piece_bytes: int
    ) -> None:
        """
        Args:
            folder: Where the bodies are.
            reference: The message that is being delivered.
            piece_bytes: Most bytes of a piece, as the session asked for.

        Raises:
            LargeMessageFailed: the file is missing or has another size.
            DiskFailed: it cannot be read.
        """
        large = message.large
        self.reference = reference
        self._folder = folder
        self._file_id = large.file_id
        self._piece_bytes = min(max(piece_bytes, LARGE_PIECE_BYTES_MIN), LARGE_PIECE_BYTES_MAX)
        self._reader: LargeReader = folder.open(large)
        folder.hold(large.file_id)

    @property
    def path(self) -> str:
        """Path of the file with the body."""
        return self._reader.path

    def next_piece(self) -> tuple[bytes, bool]:
        """The next piece, and whether more follow.

        Raises:
            LargeMessageFailed: the file differs from the stored body; the last piece is never given then.
            DiskFailed: it cannot be read.
        """
        piece = self._reader.read(self._piece_bytes)
        return piece, self._reader.left_bytes > 0

    def pause(self) -> None:
        """Wait for credits or the socket."""
        self._reader.pause()

    def close(self) -> None:
        """End the delivery, whether the message was sent whole or not."""
        self._reader.pause()
        self._folder.release(self._file_id)
