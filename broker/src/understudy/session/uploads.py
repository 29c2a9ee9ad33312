"""Large messages that a session receives (artemis-core s. 6.2): announced, piece by piece, and then sent like others.

An ``Upload`` is one of them: its pieces go to a file of the store, and only when the file is safe the message is sent.
An error on the way is kept and reported with the last piece, which alone has an answer; further pieces are dropped
until then. ``Uploads`` are those of a session. Requests of the client after the last piece wait until the body is safe,
for their order and because the answer comes later; the caller holds them back. Only further large messages may come
meanwhile, up to ``LARGE_MESSAGES_STORING_MAX``: their files are made safe together, and each is sent when all before it
have been. Not here: files (``store.messages.large_messages``), routing, packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import ClassVar

from understudy.dataclass import dataclass
from understudy.errors import (
    AddressFull,
    BrokerError,
    DiskFull,
    IllegalState,
    LargeMessageFailed,
    LimitExceeded,
    StoreError,
    forget_frames,
)
from understudy.limits import (
    LARGE_HEADER_BYTES_MAX,
    LARGE_MESSAGE_BYTES_MAX,
    LARGE_MESSAGE_IDLE_MS,
    LARGE_MESSAGES_STORING_MAX,
)
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import LargeBody, LargeMessage, Message
from understudy.routing.post_office import Done, Undecided
from understudy.session.registry import UploadSlot
from understudy.session.send_requests import SendRequests
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
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
        """Called when the last piece was received.

        Args:
            original_bytes: Bytes of the body before compression as its sender counts them; negative
                if unknown.
            arrived: Gets the outcome, at once or later, unless it is discarded before.
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
            # results of the disk that come after the end of the upload
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


@dataclass(slots=True, eq=False)
class _Whole:
    """A large message whose last piece has come."""

    upload: Upload
    slot: UploadSlot | None
    done: Done | None
    """Answers its sender."""
    outcome: tuple[LargeMessage | None, BrokerError | None] | None = None
    """The message whose body is safe, or why there is none; None: its file is being made safe."""

    def release(self) -> None:
        """Note that the message is not unfinished any more."""
        if self.slot is not None:
            self.slot.release()


class Uploads:
    """The large-message side of one session."""

    __slots__ = (
        "_clock",
        "_finishing",
        "_sends",
        "_slot",
        "_slots",
        "_state",
        "_store",
        "_touched_ms",
        "_upload",
        "_whole",
        "undecided",
    )

    def __init__(self, state: SessionState, sends: SendRequests) -> None:
        """``sends``: sends large messages when they are complete."""
        self._sends = sends
        self._slots = state.services.registry.uploads
        self._slot: UploadSlot | None = None
        self._clock = state.services.clock
        self._touched_ms = 0
        """Monotonic time at which the latest piece came."""
        self._state = state
        self._store = state.services.post_office.store
        self._upload: Upload | None = None
        """The one of which pieces come."""
        self._whole: deque[_Whole] = deque()
        """Large messages that have come whole, in their order, and are not sent yet."""
        self.undecided: Undecided | None = None
        """The decision about its group that the first of them waits for."""
        self._finishing = False
        """``finish`` is being called, so that its result says whether the message waits."""

    @property
    def backlog_bytes(self) -> int:
        """Bytes of unfinished large messages that are not in their files yet."""
        backlog_bytes = self._upload.backlog_bytes if self._upload is not None else 0
        return backlog_bytes + sum(each.upload.backlog_bytes for each in self._whole)

    @property
    def open(self) -> bool:
        """Whether pieces of an announced message are taken."""
        return self._upload is not None

    @property
    def may_begin(self) -> bool:
        """Whether a further message may be announced while files of earlier ones are made safe."""
        return len(self._whole) < LARGE_MESSAGES_STORING_MAX

    def begin(self, header: Message) -> None:
        """A large message is announced; an unfinished one is discarded (artemis-core s. 6.2).

        Args:
            header: The message, whatever its body.
        """
        self._discard_unfinished()
        upload = self._upload = Upload(self._store, header)
        self._touched_ms = self._clock.monotonic_ms()
        try:
            if len(header.encoded) > LARGE_HEADER_BYTES_MAX:
                raise LimitExceeded(f"a large message with a header of {len(header.encoded)} bytes")
            state = self._state
            self._slot = self._slots.take(
                state.connection.connection_id, state.security.user, self._store.large.unfinished_max
            )
            header = upload.header = self._sends.prepared(header)
            if header.address is None:
                header = upload.header = self._sends.addressed(header)
            self._sends.permit(header.address or "").used_bytes += len(header.encoded)
        except BrokerError as error:
            self._give_up(upload, error)

    def refuse(self, error: BrokerError) -> None:
        """Called when a large message is announced by a header that cannot be read, for instance because it exceeds a
        limit. Its pieces are dropped, and its sender gets the error as the answer to the last one.
        """
        self._discard_unfinished()
        upload = self._upload = Upload(self._store, Message(b""))
        self._touched_ms = self._clock.monotonic_ms()
        self._give_up(upload, error)

    def give_up(self, error: BrokerError) -> None:
        """Called when a piece cannot be taken. Raises IllegalState when nothing was announced."""
        self._give_up(self._open(), error)

    def _give_up(self, upload: Upload, error: BrokerError) -> None:
        """Discard it; its sender gets the error as the answer to the last piece."""
        forget_frames(error)
        upload.fail(error)
        upload.header = Message(b"")
        self._release()

    def _release(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()

    def take(self, piece: bytes) -> None:
        """A piece that is not the last. Raises IllegalState when nothing was announced."""
        self._touched_ms = self._clock.monotonic_ms()
        self._open().take(piece)

    def check_idle(self) -> None:
        """Give up a large message of which no piece has come for ``LARGE_MESSAGE_IDLE_MS``."""
        upload = self._upload
        idle_ms = self._clock.monotonic_ms() - self._touched_ms
        if upload is not None and upload.receiving and idle_ms > LARGE_MESSAGE_IDLE_MS:
            self._give_up(upload, LargeMessageFailed(f"no piece of the large message came for {idle_ms} ms"))

    def finish(self, piece: bytes, original_bytes: int, done: Done | None, over: Callable[[], None]) -> bool:
        """The last piece.

        Args:
            piece: May be empty.
            original_bytes: What the client says of the body's size before compression.
            done: The same as for ``SendRequests.send``.
            over: Called when requests other than further large messages may be carried out, if that is later.

        Returns:
            Whether it is later.

        Raises:
            IllegalState: nothing was announced.
        """
        upload = self._open()
        upload.take(piece)
        whole = _Whole(upload, self._slot, done)
        self._upload = self._slot = None
        self._whole.append(whole)

        def arrived(message: LargeMessage | None, error: BrokerError | None) -> None:
            whole.outcome = message, error
            if self.undecided is None:
                self._send_whole(over)
            if not self._whole and not self._finishing:
                over()

        self._finishing = True
        try:
            upload.finish(original_bytes, arrived)
        finally:
            self._finishing = False
        return bool(self._whole)

    def _send_whole(self, over: Callable[[], None]) -> None:
        """Send the first ones, as long as their outcome is known and no decision about a group is missing."""
        while self._whole and self._whole[0].outcome is not None:
            whole = self._whole.popleft()
            assert whole.outcome is not None
            message, error = whole.outcome
            # not that of before: an XA branch may have been undone for its age meanwhile
            transaction = self._state.sending_transaction
            self.undecided = None if message is None else self._send(message, whole.done, transaction)
            if self.undecided is not None:
                self._whole.appendleft(whole)
                self.undecided.when_decided(partial(self._decided, over))
                return
            whole.release()
            if message is None and not (
                isinstance(error, AddressFull) and self._sends.drop_when_full(whole.upload.header.address, whole.done)
            ):
                self._state.failed(error or IllegalState("no large message"), whole.done, transaction)

    def _decided(self, over: Callable[[], None]) -> None:
        """Send the first complete message, which may be sent now."""
        self.undecided = None
        if self._whole:
            self._send_whole(over)
            if not self._whole:
                over()

    def discard(self) -> None:
        """Unfinished large messages will not be finished, and those whose files are not safe yet will not be sent."""
        self._discard_unfinished()
        whole, self._whole = self._whole, deque()
        for each in whole:
            each.upload.discard()
            each.release()

    def _discard_unfinished(self) -> None:
        if self._upload is not None:
            self._upload.discard()
            self._upload = None
        self._release()

    def _open(self) -> Upload:
        if self._upload is None:
            raise IllegalState(f"{self._state!r}: a piece of a large message that was not announced")
        return self._upload

    def _send(self, message: LargeMessage, done: Done | None, transaction: Transaction | None) -> Undecided | None:
        try:
            return self._sends.route(message, message.large.size_bytes, done, transaction)
        except BrokerError as error:
            self._state.failed(error, done, transaction)
            return None
