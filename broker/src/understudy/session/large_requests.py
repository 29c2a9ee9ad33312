"""The large message that a session is receiving: announced, piece by piece, and then sent like any other.

Artemis-core s. 6.2. What the client asks for behind the last piece must wait until the body is safe, for its
order and because an answer to it comes later; the caller holds it back. Not here: where the pieces
go (``session.upload``), or packets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from understudy.errors import AddressFull, BrokerError, IllegalState, LargeMessageFailed, LimitExceeded, forget_frames
from understudy.limits import LARGE_HEADER_BYTES_MAX, LARGE_MESSAGE_IDLE_MS
from understudy.message import LargeMessage, Message
from understudy.ports import Clock
from understudy.routing.post_office import Done
from understudy.session.transaction import Transaction
from understudy.session.upload import Upload
from understudy.session.upload_slots import UploadSlot, UploadSlots
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.session.session import ServerSession


class LargeRequests:
    """The large-message side of one session."""

    __slots__ = ("_clock", "_session", "_slot", "_slots", "_store", "_touched_ms", "_upload")

    def __init__(self, session: ServerSession, store: MessageStore, slots: UploadSlots, clock: Clock) -> None:
        """Args:
        session: Whose large messages these are.
        store: Takes the bodies.
        slots: How many may be unfinished.
        clock: Of the node.
        """
        self._slots = slots
        self._slot: UploadSlot | None = None
        self._clock = clock
        self._touched_ms = 0
        """Monotonic time at which the latest piece came."""
        self._session = session
        self._store = store
        self._upload: Upload | None = None

    @property
    def backlog_bytes(self) -> int:
        """Bytes of an unfinished large message that are not in its file yet."""
        return self._upload.backlog_bytes if self._upload is not None else 0

    def begin(self, header: Message) -> None:
        """A large message is announced; an unfinished one is discarded (artemis-core s. 6.2).

        Args:
            header: The message, whatever its body.
        """
        self.discard()
        header = header.without_reserved()
        upload = self._upload = Upload(self._store, header)
        self._touched_ms = self._clock.monotonic_ms()
        try:
            if len(header.encoded) > LARGE_HEADER_BYTES_MAX:
                raise LimitExceeded(f"a large message with a header of {len(header.encoded)} bytes")
            session = self._session
            self._slot = self._slots.take(
                session.connection.connection_id, session.security.user, self._store.large.unfinished_max
            )
            header = upload.header = self._session.sends.prepared(header)
            if header.address is None:
                header = upload.header = self._session.sends.addressed(header)
            self._session.sends.permit(header.address or "").used_bytes += len(header.encoded)
        except BrokerError as error:
            self._give_up(upload, error)

    def _give_up(self, upload: Upload, error: BrokerError) -> None:
        """Nothing of it is kept; its sender is told with the last piece."""
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
            done: As for ``ServerSession.send``.
            over: Called when the next request may be carried out, if that is later.

        Returns:
            Whether it is later.

        Raises:
            IllegalState: nothing was announced.
        """
        upload = self._open()
        upload.take(piece)

        def arrived(message: LargeMessage | None, error: BrokerError | None) -> None:
            self._upload = None
            self._release()
            # not that of before: an XA branch may have been undone for its age meanwhile
            transaction = self._session.sending_transaction
            if message is not None:
                self._send(message, done, transaction)
            elif isinstance(error, AddressFull) and self._session.sends.drop_when_full(upload.header.address, done):
                pass
            else:
                self._session.failed(error or IllegalState("no large message"), done, transaction)
            if waiting:
                over()

        waiting = False
        upload.finish(original_bytes, arrived)
        waiting = upload.storing
        return waiting

    def discard(self) -> None:
        """An unfinished large message will not be finished."""
        if self._upload is not None:
            self._upload.discard()
            self._upload = None
        self._release()

    def _open(self) -> Upload:
        if self._upload is None:
            raise IllegalState(f"{self._session!r}: a piece of a large message that was not announced")
        return self._upload

    def _send(self, message: LargeMessage, done: Done | None, transaction: Transaction | None) -> None:
        try:
            self._session.sends.route(message, message.large.size_bytes, done, transaction)
        except BrokerError as error:
            self._session.failed(error, done, transaction)
