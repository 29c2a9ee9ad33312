"""The publishing side of a channel: routing, confirms, returns, transactions.

A publish is confirmed when the broker has it safe (ADR 0003): one basic.ack confirms all publishes that became safe
together. A message that no queue gets is returned if its publisher asked for that (mandatory), before it is confirmed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from understudy.errors import AddressFull, BrokerError, NotAuthorized
from understudy.limits import AMQP091_RETURN_BYTES, AMQP091_RETURNS_BYTES_MAX
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.messages import Publish, further_keys, to_message
from understudy.protocols.amqp091.output import ChannelOutput
from understudy.routing.exchanges.errors import PublishRejected
from understudy.routing.exchanges.publishing import Published
from understudy.session.session import ServerSession
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import ack_frame
from understudy.wire.amqp091.methods import BasicNack, BasicPublish, BasicReturn
from understudy.wire.amqp091.properties import with_fields
from understudy.wire.amqp091.tables import encode_short

log = logging.getLogger(__name__)

REPLY_PREFIX: Final = f"{names.REPLIES}."
NO_ROUTE: Final = "NO_ROUTE"


class ChannelPublisher:
    """Publishes of one channel."""

    def __init__(self, link: ConnectionLink, session: ServerSession, output: ChannelOutput) -> None:
        self._link = link
        self._session = session
        self._output = output
        self._office = session.state.office
        self.confirms = False
        """Whether publishes are confirmed (confirm.select)."""
        self.transacted = False
        """Whether publishes become visible with a commit (tx.select)."""
        self.reply_token: str | None = None
        """Secret of the reply address that the channel consumes from; None: it has none."""
        self.closed = False
        self._next = 1
        """Number of the next publish."""
        self._confirmed = 0
        """Number of the last publish that was answered."""
        self._safe = 0
        """Number of the last publish that is safe and is not answered yet; 0: none."""
        self._flushing = False
        self._returns: list[tuple[BasicReturn, Publish]] = []
        """Returns that wait for the commit of their transaction."""
        self._returns_bytes = 0
        """Bytes of these returns."""

    def publish(self, method: BasicPublish, publish: Publish) -> None:
        """Take a publish with its content.

        Raises:
            Amqp091Error: NOT_IMPLEMENTED: immediate. ACCESS_REFUSED: an internal exchange. PRECONDITION_FAILED: a
                property that cannot be used.
            ExchangeNotFound, NotAuthorized, TransactionTooLarge: it is not taken, and the channel ends.
        """
        if method.immediate:
            # the words of RabbitMQ, which the suite of py-amqp compares
            raise Amqp091Error(ReplyCode.NOT_IMPLEMENTED, "immediate=true")
        number = 0
        if self.confirms:
            number, self._next = self._next, self._next + 1
        publish = _without_bcc(self._with_reply_address(publish))
        token = publish.routing_key.removeprefix(REPLY_PREFIX)
        if not publish.exchange and len(token) < len(publish.routing_key):
            receiver = self._link.services.replies.get(token)
            routed = receiver is not None and receiver.deliver_reply(publish)
        else:
            try:
                routed = self._route(publish, number)
            except (AddressFull, PublishRejected) as error:
                transaction = self._session.state.sending_transaction
                if transaction is not None:
                    # nothing of the transaction counts without this message: its commit reports the error
                    transaction.fail(error)
                elif not number:
                    extra = {"peer": self._link.scope.remote_address, "exchange": publish.exchange}
                    log.info("publish dropped", extra=extra | {"error": str(error)})
                else:
                    self._office.acceptance.answer(self._session.state.order, partial(self._done, number), error=error)
                return
            if routed:
                return
        if not routed and method.mandatory:
            self._return(publish)
        if number:
            self._office.acceptance.answer(self._session.state.order, partial(self._done, number))

    def _route(self, publish: Publish, number: int) -> bool:
        """Whether a queue gets the message; then it is confirmed by its number when it is safe."""
        peer, session = self._link.peer, self._session
        names.check_exchange(publish.exchange)
        exchange = session.exchanges.exchange(peer.host + publish.exchange)
        if exchange.configuration.internal:
            raise NotAuthorized(f"exchange {publish.exchange!r} is internal")
        if exchange.read_only:
            raise NotAuthorized(f"only the broker sends to exchange {publish.exchange!r}")
        if publish.properties.user_id not in (None, peer.user):
            raise names.refused(f"user-id {publish.properties.user_id!r} is not the name of the login")
        headers = publish.properties.headers or {}
        keys = (publish.routing_key, *further_keys(headers))
        # through the default exchange the message has the address of its queue
        address = peer.host + (publish.exchange or publish.routing_key)
        if not publish.exchange:
            queue = self._office.directory.queues.get(address)
            if queue is not None:
                address = queue.address.name
        message = to_message(publish, address, self._office.now_ms)
        done = partial(self._done, number) if number else None
        queues = session.exchanges.publish(Published(message, exchange, keys, headers), address, done)
        if not queues:
            return False
        full = self._office.routing.publishing.when_room(queues, self._link, self._link.unblock)
        if full is not None:
            self._link.block(full)
        return True

    def _with_reply_address(self, publish: Publish) -> Publish:
        """The publish with the secret reply address of the channel, if it asks for direct replies."""
        if publish.properties.reply_to != names.REPLIES:
            return publish
        if self.reply_token is None:
            raise names.refused("direct reply-to without a consumer for it")
        encoded = with_fields(publish.encoded, fields={"reply_to": encode_short(REPLY_PREFIX + self.reply_token)})
        return publish._replace(encoded=encoded)

    def _return(self, publish: Publish) -> None:
        method = BasicReturn(ReplyCode.NO_ROUTE, NO_ROUTE, publish.exchange, publish.routing_key)
        if self.transacted:
            self._returns_bytes += len(publish.encoded) + len(publish.body) + AMQP091_RETURN_BYTES
            if self._returns_bytes > AMQP091_RETURNS_BYTES_MAX:
                raise names.refused(
                    f"the transaction returns {len(self._returns) + 1} messages without a queue, more than "
                    f"{AMQP091_RETURNS_BYTES_MAX} bytes: commit earlier"
                )
            self._returns.append((method, publish))
        else:
            self._output.send_content(method, publish.encoded, publish.body)

    @property
    def next_number(self) -> int:
        """Number of the next publish."""
        return self._next

    def go_on_from(self, number: int) -> None:
        """Give the next publish this number: those before it were taken together."""
        if self.confirms:
            self._next = number

    def answer_run(self, numbers: Sequence[int]) -> None:
        """Publishes with these numbers, which follow each other, are safe."""
        self._done(numbers[-1], None)

    @property
    def unconfirmed_count(self) -> int:
        """Number of publishes that wait for their confirm."""
        return self._next - 1 - self._confirmed

    def send_returns(self) -> None:
        """Send the returns of a transaction, which is committed."""
        returns, self._returns, self._returns_bytes = self._returns, [], 0
        for method, publish in returns:
            self._output.send_content(method, publish.encoded, publish.body)

    def drop_returns(self) -> None:
        """Forget the returns of a transaction, which was rolled back."""
        self._returns, self._returns_bytes = [], 0

    # --- confirms --------------------------------------------------------------------------------

    def _done(self, number: int, error: BrokerError | None) -> None:
        """A publish is safe, or was not taken. Called in the order of the publishes."""
        if self.closed:
            return
        if error is not None:
            self._flush()
            self._confirmed = number
            self._output.send(BasicNack(number))
            return
        self._safe = number
        if number == self._next - 1:
            self._flush()
        elif not self._flushing:
            # further publishes may become safe with it
            self._flushing = True
            self._office.timers.call_later(0, self._flush_later)

    def _flush_later(self) -> None:
        self._flushing = False
        self._flush()

    def _flush(self) -> None:
        if self._safe > self._confirmed and not self.closed:
            multiple = self._safe > self._confirmed + 1
            self._output.send_frames(ack_frame(self._output.number, self._safe, multiple=multiple))
            self._confirmed = self._safe


def _without_bcc(publish: Publish) -> Publish:
    """The publish as others may see it, in a delivery or in basic.return; ``properties`` keeps the header BCC."""
    if "BCC" not in (publish.properties.headers or {}):
        return publish
    return publish._replace(encoded=with_fields(publish.encoded, headers={"BCC": None}))
