"""A large message that is being received: its header came, its body comes in pieces (artemis-core s. 6.2).

The pieces go to a file of the store; only when that is safe the message is sent like any other. An
error found on the way is kept and told with the last piece, which alone wants an answer; until then
further pieces are dropped.

Not here: files (``store.messages.large_messages``), routing, what else the session does meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from understudy.errors import AddressFull, BrokerError, DiskFull, LargeMessageFailed, LimitExceeded, StoreError
from understudy.limits import LARGE_MESSAGE_BYTES_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import LargeBody, LargeMessage, Message
from understudy.store.messages.large_messages import LargeFile
from understudy.store.messages.message_store import MessageStore


class State(Enum):
    """Life of an upload."""

    RECEIVING = auto()
    """Pieces go to the file."""
    REFUSED = auto()
    """An error is known; pieces are dropped."""
    STORING = auto()
    """The last piece came; the file is being made safe."""
    STORED = auto()
    DISCARDED = auto()


class Event(Enum):
    """Events of an upload."""

    PIECE = auto()
    LAST = auto()
    """The last piece came."""
    SAFE = auto()
    """The file is safe."""
    FAIL = auto()
    DISCARD = auto()
    """Another large message begins, or the session ends."""


Arrived = Callable[[LargeMessage | None, BrokerError | None], None]
"""Callback with the message when its body is safe, or with the error."""


class Upload(Machine[State, Event]):
    """One large message that a client is sending, as a declared machine."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.RECEIVING

    def __init__(self, store: MessageStore, header: Message) -> None:
        """Nothing is written yet.

        Args:
            header: The message, whatever its body.
        """
        super().__init__()
        self._store = store
        self._error: BrokerError | None = None
        self._file: LargeFile | None = None
        self._arrived: Arrived | None = None
        self._original_bytes = -1
        self.header = header
        """May be replaced before the last piece comes."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the body so far."""
        return self._file.size_bytes if self._file is not None else 0

    @property
    def backlog_bytes(self) -> int:
        """Bytes of the body that are not in its file yet."""
        return self._file.backlog_bytes if self._file is not None else 0

    @property
    def storing(self) -> bool:
        """Whether everything came and its file is being made safe."""
        return self._state is State.STORING

    @property
    def receiving(self) -> bool:
        """Whether pieces are taken."""
        return self._state is State.RECEIVING

    def fail(self, error: BrokerError) -> None:
        """Note that the upload cannot become a message; the first error is the one that is reported."""
        self.fire(Event.FAIL, error)

    def take(self, piece: bytes) -> None:
        """The next piece of the body."""
        self.fire(Event.PIECE, piece)

    def finish(self, original_bytes: int, arrived: Arrived) -> None:
        """The last piece was received.

        Args:
            original_bytes: Bytes of the body before compression as its sender counts them; negative
                if unknown.
            arrived: Told the outcome, at once or later, unless it is discarded before.
        """
        self._arrived = arrived
        self._original_bytes = original_bytes
        if self._state is State.RECEIVING and self._file is None:
            self._write(b"")
        self.fire(Event.LAST)

    def discard(self) -> None:
        """Drop an upload that is not wanted any more."""
        self.fire(Event.DISCARD)

    # --- actions --------------------------------------------------------------------------------

    def _write(self, piece: bytes) -> None:
        store = self._store
        if store.full:
            self.fail(AddressFull("no space for large messages", hint="max-disk-usage or min-disk-free"))
            return
        if self.size_bytes + len(piece) > LARGE_MESSAGE_BYTES_MAX:
            self.fail(LimitExceeded(f"large message of more than {LARGE_MESSAGE_BYTES_MAX} bytes"))
            return
        if self._file is None:
            try:
                self._file = store.large.create(store.next_id(), durable=self.header.durable, failed=self.fail)
            except LimitExceeded as error:
                self.fail(error)
                return
        self._file.append(piece)

    def _finish(self) -> None:
        assert self._file is not None
        self._file.finish(self._stored)

    def _stored(self, large: LargeBody | None, error: BrokerError | None) -> None:
        if error is not None or large is None:
            self.fail(error or BrokerError("large message"))
        else:
            self.fire(Event.SAFE, large)

    def _done(self, large: LargeBody) -> None:
        original_bytes = self._original_bytes if self._original_bytes >= 0 else large.size_bytes
        # the file refers back to this, to report errors
        self._file = None
        self._answer(LargeMessage.of(self.header, large, original_bytes), None)

    def _answer(self, message: LargeMessage | None, error: BrokerError | None) -> None:
        arrived, self._arrived = self._arrived, None
        assert arrived is not None
        arrived(message, error)

    def _refuse(self, error: BrokerError) -> None:
        self._error = _meaning(error)
        self._remove()

    def _tell(self) -> None:
        self._answer(None, self._error)

    def _failed_late(self, error: BrokerError) -> None:
        self._error = _meaning(error)
        self._remove()
        self._tell()

    def _remove(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.discard()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.RECEIVING, Event.PIECE): To(State.RECEIVING, _write),
            (State.RECEIVING, Event.LAST): To(State.STORING, _finish),
            (State.RECEIVING, Event.FAIL): To(State.REFUSED, _refuse),
            (State.RECEIVING, Event.DISCARD): To(State.DISCARDED, _remove),
            (State.REFUSED, Event.PIECE): IGNORED,
            (State.REFUSED, Event.LAST): To(State.DISCARDED, _tell),
            (State.REFUSED, Event.FAIL): IGNORED,
            (State.REFUSED, Event.DISCARD): To(State.DISCARDED),
            (State.STORING, Event.SAFE): To(State.STORED, _done),
            (State.STORING, Event.FAIL): To(State.DISCARDED, _failed_late),
            (State.STORING, Event.DISCARD): To(State.DISCARDED, _remove),
            # news of the disk that come too late
            (State.DISCARDED, Event.SAFE): IGNORED,
            (State.DISCARDED, Event.FAIL): IGNORED,
            (State.DISCARDED, Event.DISCARD): IGNORED,
            (State.STORED, Event.DISCARD): IGNORED,
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )


def _meaning(error: BrokerError) -> BrokerError:
    """The error for a producer: a full disk is a full address, and a failed write of this one file
    means for certain that the message was not taken.
    """
    if isinstance(error, DiskFull):
        meaning: BrokerError = AddressFull("no space for the large message", hint=error.hint)
    elif isinstance(error, StoreError):
        meaning = LargeMessageFailed("the body of the large message could not be stored")
    else:
        return error
    meaning.__cause__ = error
    return meaning
