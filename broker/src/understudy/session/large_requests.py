"""The large message that a session is receiving: announced, piece by piece, and then sent like any other.

Facts 6.2. What the client asks for behind the last piece must wait until the body is safe, for its
order and because an answer to it comes later; the caller holds it back. Not here: where the pieces
go (``session.upload``), or packets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from understudy.errors import AddressFull, BrokerError, IllegalState
from understudy.message import LargeMessage, Message
from understudy.routing.post_office import Done
from understudy.session.transaction import Transaction
from understudy.session.upload import Upload
from understudy.store.message_store import MessageStore

if TYPE_CHECKING:
    from understudy.session.session import ServerSession


class LargeRequests:
    """The large-message side of one session."""

    __slots__ = ("_session", "_store", "_upload")

    def __init__(self, session: ServerSession, store: MessageStore) -> None:
        self._session = session
        self._store = store
        self._upload: Upload | None = None

    @property
    def backlog_bytes(self) -> int:
        """Bytes of an unfinished large message that are not in its file yet."""
        return self._upload.backlog_bytes if self._upload is not None else 0

    def begin(self, header: Message) -> None:
        """A large message is announced; an unfinished one is discarded (facts 6.2).

        Args:
            header: The message, whatever its body.
        """
        self.discard()
        header = header.without_reserved()
        upload = self._upload = Upload(self._store, header)
        try:
            header = upload.header = self._session.sends.prepared(header)
            if header.address is None:
                header = upload.header = self._session.sends.addressed(header)
            self._session.sends.permit(header.address or "").used_bytes += len(header.encoded)
        except BrokerError as error:
            upload.fail(error)

    def take(self, piece: bytes) -> None:
        """A piece that is not the last. Raises IllegalState when nothing was announced."""
        self._open().take(piece)

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

    def _open(self) -> Upload:
        if self._upload is None:
            raise IllegalState(f"{self._session!r}: a piece of a large message that was not announced")
        return self._upload

    def _send(self, message: LargeMessage, done: Done | None, transaction: Transaction | None) -> None:
        try:
            self._session.sends.route(message, message.large.size_bytes, done, transaction)
        except BrokerError as error:
            self._session.failed(error, done, transaction)
