"""Bytes of files that one node of a pair asks of the other one: ``AskBytes`` and ``AnswerBytes`` of the copy.

Either side may ask, while the store is copied and while the replica is in sync. ``Asker`` is the side that asks: it
numbers the questions and hands the answers over. ``answer_of`` reads the bytes for the other side, past the cache of
its machine, so that both look at their disks; it blocks.

The bytes are not checked here: the side that asks knows the checksum (``store.repair``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import RemoteProtocolError, StoreError
from understudy.store.repair import Answer, Ask
from understudy.store.replication.copy_messages import AnswerBytes, AskBytes, CopyMessage
from understudy.store.replication.divergence import saved_directories
from understudy.store.replication.old_replicas import saved_numbers
from understudy.store.replication.store_files import StoreDirectories, belongs


class Asker:
    """Questions to the other node that it has not answered yet. Implements ``store.repairs.OtherCopy``."""

    def __init__(self, send: Callable[[CopyMessage], None]) -> None:
        """Begin without open questions; ``send`` sends a question to the other node."""
        self._send = send
        self._number = 0
        self._open: dict[int, Callable[[Answer | None], None]] = {}

    def ask(self, wanted: Ask, answered: Callable[[Answer | None], None]) -> None:
        self._number += 1
        self._open[self._number] = answered
        self._send(AskBytes(self._number, wanted.directory, wanted.name, wanted.offset, wanted.length))

    def receive(self, message: AnswerBytes) -> None:
        """Take an answer of the other node and pass it to the caller of its question.

        Raises:
            RemoteProtocolError: nothing was asked under its number.
        """
        answered = self._open.pop(message.number, None)
        if answered is None:
            raise RemoteProtocolError(f"answer {message.number} without a question")
        answered(answer_in(message))

    def lost(self) -> None:
        """Answer every open question with None: the connection to the other node is lost."""
        questions, self._open = self._open, {}
        for answered in questions.values():
            answered(None)


def answer_in(message: AnswerBytes) -> Answer | None:
    """The content of an answer; None: the other node has no such file, or cannot read it."""
    return Answer(message.size_bytes, message.data) if message.found else None


def answer_of(directories: StoreDirectories, message: AskBytes) -> AnswerBytes:
    """Read the bytes that the other node asks for. Those of a file that the store does not have come from the newest
    earlier data that was moved away: it may have the only right bytes.

    Raises:
        RemoteProtocolError: the name is not that of a file of a store.
    """
    if not belongs(message.directory, message.name):
        raise RemoteProtocolError(f"{message.name!r} is no file of a store")
    disk = directories.disk
    numbers = reversed(saved_numbers(disk, directories.path(message.directory)))
    for place in (directories, *(saved_directories(directories, number) for number in numbers)):
        try:
            file = disk.open(place.path(message.directory, message.name), read_only=True)
        except FileNotFoundError:
            continue
        except StoreError:
            break
        try:
            file.forget_cached(message.offset, message.length)
            return AnswerBytes(message.number, True, file.size(), file.read(message.offset, message.length))
        except StoreError:
            break
        finally:
            file.close()
    return AnswerBytes(message.number, False, 0, b"")
