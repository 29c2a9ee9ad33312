"""The body of a large message as a store has it, read piece by piece for a client that sends it again.

The format of an export file is in ``export_file``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from understudy.message import LargeBody
from understudy.ports import Disk
from understudy.store.messages.large_messages import LargeReader
from understudy.tools.export import PIECE_BYTES


def inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The body as it was before its sender compressed it: our client compresses by its own settings."""
    inflater = zlib.decompressobj()
    for piece in pieces:
        while piece:
            yield inflater.decompress(piece, PIECE_BYTES)
            piece = inflater.unconsumed_tail
    yield inflater.flush()


class StoredBody:
    """Body of a message in its file, which is read from its beginning at each iteration."""

    def __init__(self, disk: Disk, path: str, large: LargeBody, *, compressed: bool) -> None:
        """
        Args:
            disk: Where it lies; only read.
            large: The expected size and checksum.
            compressed: Whether it is a zlib stream, and goes out inflated.
        """
        self._disk = disk
        self._path = path
        self._large = large
        self._compressed = compressed

    def check(self) -> None:
        """Read the whole body once and check it.

        Raises:
            LargeMessageFailed: it is missing, or not the body that was stored.
            DiskFailed: it cannot be read.
        """
        for _ in self._pieces():
            pass

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._pieces()
        return inflated(pieces) if self._compressed else pieces

    def _pieces(self) -> Iterator[bytes]:
        reader = LargeReader(self._disk, self._path, self._large)
        try:
            while reader.left_bytes:
                yield reader.read(PIECE_BYTES)
        finally:
            reader.pause()
