"""The large message that a session is receiving: announced, piece by piece, and then sent like any other.

Artemis-core s. 6.2. Requests of the client after the last piece must wait until the body is safe, for its
order and because an answer to it comes later; the caller holds it back. Only further large messages may come
meanwhile, up to ``LARGE_MESSAGES_STORING_MAX``: their files are made safe together, and each is sent when all before
it have been. Not here: where the pieces go (``session.upload``), or packets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from understudy.dataclass import dataclass
from understudy.errors import AddressFull, BrokerError, IllegalState, LargeMessageFailed, LimitExceeded, forget_frames
from understudy.limits import LARGE_HEADER_BYTES_MAX, LARGE_MESSAGE_IDLE_MS, LARGE_MESSAGES_STORING_MAX
from understudy.message import LargeMessage, Message
from understudy.routing.post_office import Done, Undecided
from understudy.session.send_requests import SendRequests
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
from understudy.session.upload import Upload
from understudy.session.upload_slots import UploadSlot


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
        """A large message is announced by a header that cannot be read, for instance because it exceeds a limit. Its
        pieces are dropped, and its sender gets the error as the answer to the last one.
        """
        self._discard_unfinished()
        upload = self._upload = Upload(self._store, Message(b""))
        self._touched_ms = self._clock.monotonic_ms()
        self._give_up(upload, error)

    def give_up(self, error: BrokerError) -> None:
        """A piece cannot be taken. Raises IllegalState when nothing was announced."""
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
            done: As for ``SendRequests.send``.
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
        """The first one may be sent now."""
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
