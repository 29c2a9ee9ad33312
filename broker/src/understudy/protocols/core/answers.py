"""Answers to the requests of a session channel (artemis-core s. 3.3): correlation, errors, durability.

Base of ``protocols.core.session.CoreSession``. Not here: what requests do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from understudy.errors import BrokerError, DiskFull, StoreError, XaError
from understudy.kernel.core import confirms
from understudy.protocols.core.channel import SessionChannel
from understudy.session.session import ServerSession
from understudy.wire.core import packets
from understudy.wire.core.codec import encode_null_response
from understudy.wire.core.codes import code_of

NO_CORRELATION: Final = -1


class SessionAnswers:
    """The answering side of one session channel."""

    def __init__(self, session: ServerSession, channel: SessionChannel) -> None:
        self.session = session
        """Deleted by ``CoreSession.end``."""
        self.channel = channel
        self._channel_id = channel.channel_id
        self.version = channel.connection.decoder.version
        """Version of the channel; determines the form of some answers."""
        self._send = self.channel.send
        self._counts = channel.counts
        self.queue_names: dict[int, str] = {}
        """Name of the queue as the client gave it, by consumer id."""

    def _fail(self, correlation_id: int | None, error: BrokerError) -> None:
        if not self.gives_up(error):
            response = packets.ExceptionResponse(code_of(error), self.text_of(error), correlation_id)
            self.channel.send_packet(response)

    def text_of(self, error: BrokerError) -> str:
        """Text of an error for the client."""
        return self.channel.connection.services.shared.error_texts.remote(error)

    def gives_up(self, error: BrokerError) -> bool:
        """Whether the connection ends without an answer, which would tell the client that the request failed for
        certain: the store has failed and the node ends, so it is unknown what became of the request; or another node
        of the pair may have taken over, which knows better. A transaction manager gets the codes of XA instead.
        """
        if isinstance(error, StoreError) and not isinstance(error, DiskFull):
            # a message that cannot be read is set aside and no StoreError: this one is of the store itself
            connection = self.channel.connection
            connection.services.shared.sessions.post_office.store.fail(error)
            connection.connection.abort()
            return True
        return not isinstance(error, XaError) and not may_deny(self.channel)

    def reply(self, packet: packets.Packet) -> None:
        """Answer a request at once, that is after the answers to earlier requests of the session. The client of Artemis
        keeps only the last response of a channel: one that came right after the awaited one would take its place
        (``ChannelImpl.handlePacket``).
        """
        self.session.state.in_order(self.channel.send_packet, packet)

    def done(self, error: BrokerError | None) -> None:
        """Answer a request that carries no correlation id."""
        if error is None:
            self._send(encode_null_response(self._channel_id, NO_CORRELATION, self.version))
        else:
            self._fail(None, error)

    def _done_with(self, correlation_id: int, error: BrokerError | None) -> None:
        """Answer a request that carries a correlation id."""
        if error is None:
            self._send(encode_null_response(self._channel_id, correlation_id, self.version))
        else:
            self._fail(correlation_id, error)

    def done_when_durable(self, wanted: bool) -> None:
        """Answer a request that arranged something, if an answer is wanted."""
        if wanted:
            self.session.state.when_durable(self.done, None)

    def answer_commit(self, correlation_id: int, _: Sequence[int]) -> None:
        """Answer a commit, of which the only message is durable."""
        self._done_with(correlation_id, None)

    def answer_run(self, correlation_ids: Sequence[int], error: BrokerError | None = None) -> None:
        """Confirm the messages with these correlation ids, which are durable, or say why they were not taken."""
        if error is not None:
            for correlation_id in correlation_ids:
                self._fail(correlation_id, error)
        elif self._counts:
            for correlation_id in correlation_ids:
                self._send(encode_null_response(self._channel_id, correlation_id, self.version))
        else:
            self._send(confirms(self._channel_id, correlation_ids))


def may_deny(channel: SessionChannel) -> bool:
    """Whether this node is provably the active one, and may refuse a request or say that there is no such queue. If
    not, the connection ends, and the client asks the active node (ADR 0156).
    """
    connection = channel.connection
    given = connection.services.shared.sessions.post_office.permission.is_given()
    if not given:
        connection.connection.abort()
    return given
