"""Reads a file of ``understudy data export`` for ``import``: the whole file is checked before anything is sent.

Only queues and counts are kept in memory, neither messages nor bodies, so the size of the file does not matter.

Not here: the format of a line (``tools.export``), sending (``sending``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from understudy.cli.data.stored_body import inflated
from understudy.cli.messages.sending import Outgoing
from understudy.errors import ConfigError
from understudy.message import LargeBody
from understudy.tools.export import (
    LINE_BYTES_MAX,
    BodyCheck,
    ExportedDivert,
    ExportedMessage,
    ExportedPiece,
    ExportedQueue,
    ExportedTransaction,
    ExportEnd,
    ExportHeader,
    Line,
    parse_line,
)

#: Pieces say nothing that depends on it.
_NO_HEADER: Final = ExportHeader("", 0, 0, "")


class ExportFile:
    """A file of ``export``, read line by line as often as needed."""

    def __init__(self, path: Path) -> None:
        """Raises:
        ConfigError: it is not an export, or it is truncated; every line is checked.
        """
        self.path = path
        self.queues: dict[str, ExportedQueue] = {}
        self.header: ExportHeader | None = None
        self.diverts: tuple[ExportedDivert, ...] = ()
        self._digest = blake2b(digest_size=16)
        self._counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        """Number of messages per queue; the key says whether they belong to prepared transactions."""
        self._transactions: set[int] = set()
        end: ExportEnd | None = None
        body: BodyCheck | None = None
        for number, _, line in self._lines(self._digest.update):
            if end is not None:
                raise ConfigError(f"line {number}: lines after the end", file=str(path))
            if isinstance(line, ExportedPiece) != (body is not None):
                raise ConfigError(
                    f"line {number}: the body of a large message is not complete, or not one's", file=str(path)
                )
            if isinstance(line, ExportedPiece):
                assert body is not None, "just looked at"
                body = None if self._checked(body, line, number) else body
            elif isinstance(line, ExportedTransaction):
                self._transactions.add(line.transaction_id)
            elif isinstance(line, ExportHeader):
                self.header = line
            elif isinstance(line, ExportedQueue):
                self.queues[line.name] = line
            elif isinstance(line, ExportedMessage):
                self._add(line, number)
                if line.large is not None and line.large.size_bytes:
                    body = BodyCheck(line.large)
            else:
                end = line
                self.diverts = line.diverts
        if end is None or end.messages != self.messages(prepared=True):
            raise ConfigError("the file is cut short: its last line is missing", file=str(path), hint="export again")

    def _add(self, message: ExportedMessage, number: int) -> None:
        if message.queue not in self.queues:
            raise ConfigError(
                f"line {number}: no line before this message describes queue {message.queue!r}",
                file=str(self.path),
            )
        prepared = message.transaction_id != 0
        if prepared != bool(self._transactions) or (prepared and message.transaction_id not in self._transactions):
            raise ConfigError(f"line {number}: a message that is not of the transaction before it", file=str(self.path))
        self._counts[prepared][message.queue] += 1

    def _checked(self, body: BodyCheck, piece: ExportedPiece, number: int) -> bool:
        try:
            return body.add(piece)
        except ValueError as error:
            raise ConfigError(f"line {number}: {error}", file=str(self.path)) from error

    def messages(self, *, prepared: bool) -> int:
        """Messages, with or without those of prepared transactions."""
        return self._counts[False].total() + (self._counts[True].total() if prepared else 0)

    def addresses(self, *, prepared: bool) -> dict[str, int]:
        """Messages for each address."""
        counts: Counter[str] = Counter()
        for kind in (False, True) if prepared else (False,):
            for name, count in self._counts[kind].items():
                counts[self.queues[name].address] += count
        return counts

    @property
    def fingerprint(self) -> str:
        """Digest of the file's contents, independent of its name."""
        return self._digest.hexdigest()

    def _lines(self, note: Callable[[bytes], object] = lambda raw: None) -> Iterator[tuple[int, int, Line]]:
        """Number of the line, offset after it, and its contents."""
        header: ExportHeader | None = None
        number = offset = 0
        with self.path.open("rb") as file:
            while raw := file.readline(LINE_BYTES_MAX):
                number += 1
                offset += len(raw)
                note(raw)
                try:
                    line = parse_line(raw.decode("utf-8"), header)
                except ValueError as error:
                    raise ConfigError(f"line {number}: {error}", file=str(self.path)) from error
                header = line if isinstance(line, ExportHeader) else header
                yield number, offset, line

    def outgoing(self, *, prepared: bool) -> Iterator[Outgoing]:
        """The messages, ready to be sent; those of prepared transactions are the last ones."""
        for _, offset, line in self._lines():
            if isinstance(line, ExportedTransaction) and not prepared:
                return
            if isinstance(line, ExportedMessage):
                queue = self.queues[line.queue]
                # sent to the queue directly, because other queues of the address have copies of their own
                message = line.to_send(f"{queue.address}::{queue.name}", back=True)
                body = None if line.large is None else _ExportedBody(self.path, offset, line.large, line.compressed)
                yield Outgoing(message, body)


class _ExportedBody:
    """The body of a large message in an export file, read piece by piece, as often as iterated."""

    def __init__(self, path: Path, offset: int, large: LargeBody, compressed: bool) -> None:
        self._path = path
        self._offset = offset
        self._large = large
        self._compressed = compressed

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._pieces()
        return inflated(pieces) if self._compressed else pieces

    def _pieces(self) -> Iterator[bytes]:
        left_bytes = self._large.size_bytes
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while left_bytes:
                line = parse_line(file.readline(LINE_BYTES_MAX).decode("utf-8"), _NO_HEADER)
                if not isinstance(line, ExportedPiece):
                    raise ConfigError("it has changed while it was imported", file=str(self._path))
                left_bytes -= len(line.data)
                yield line.data
