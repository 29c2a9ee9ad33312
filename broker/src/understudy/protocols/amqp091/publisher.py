"""The publishing side of a channel: routing, confirms, returns, transactions.

A publish is confirmed when the broker has it safe (ADR 0003): one basic.ack confirms all publishes that became safe
together. A message that no queue gets is returned if its publisher asked for that (mandatory), before it is confirmed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from understudy.errors import AddressFull, BrokerError, NotAuthorized
from understudy.limits import AMQP091_KEPT_NUMBERS_MAX, AMQP091_RETURN_BYTES, AMQP091_RETURNS_BYTES_MAX
from understudy.protocols.amqp091 import names
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.messages import Publish, further_keys, ranked, to_message
from understudy.protocols.amqp091.output import ChannelOutput
from understudy.protocols.amqp091.resumption.records import ChannelRecord
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
#: Kinds of destinations of JMS that are queues.
_QUEUES_OF_JMS: Final = frozenset({"queue", "temp-queue"})
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
        self._unnumbered = 0
        """Number of publishes of a channel without confirms."""
        self.record: ChannelRecord | None = None
        """Record of the channel, with numbers of confirmed publishes; None: it has none."""
        self.returned: deque[int] = deque(maxlen=AMQP091_KEPT_NUMBERS_MAX)
        """Newest numbers of publishes that were returned."""
        self.rejected: deque[int] = deque(maxlen=AMQP091_KEPT_NUMBERS_MAX)
        """Newest numbers of publishes that were refused."""
        self.commits = 0
        """Number of commits that were requested."""
        self.rolled_back = False
        """Whether the open transaction was rolled back without the client, which still has to learn of it."""

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
        else:
            self._unnumbered += 1
        publish = _without_bcc(self._with_reply_address(self._with_plain_key(publish)))
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
                    self.rejected.append(number)
                    self.answer(number, error)
                return
            if routed:
                return
        if not routed and method.mandatory:
            self._return(publish)
            if number:
                self.returned.append(number)
                self.answer(number)
        elif number:
            if self.record is not None:
                self.record.store_number(number)
            self.answer(number)

    def answer(self, number: int, error: BrokerError | None = None) -> None:
        """Confirm a publish, or refuse it, when everything is safe that its channel has sent before and the log has its
        number.

        Args:
            number: Number of the publish.
            error: Reason of the refusal; None: it is confirmed.
        """
        if self.record is not None:
            # numbers that were returned or rejected are in the record
            self.record.write()
        sequence = self._office.store.context.appended if self.record is not None else 0
        self._office.acceptance.answer(self._session.state.order, partial(self._done, number), sequence, error)

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
        message = to_message(publish, address, session.state.wall_ms())
        done = partial(self._done, number) if number else None
        number_id = self.record.number_id(number) if number and self.record is not None else None
        published = Published(message, exchange, keys, headers, ranked(publish.properties), number_id)
        queues = session.exchanges.publish(published, address, done)
        if not queues:
            return False
        full = self._office.routing.publishing.when_room(queues, self._link, self._link.unblock)
        if full is not None:
            self._link.block(full)
        return True

    def _with_plain_key(self, publish: Publish) -> Publish:
        """The publish with the name of its queue as routing key, if it answers a request of CORE: the ``reply_to`` of
        such a request is a destination of JMS, which has its kind before the name.
        """
        key = publish.routing_key
        kind, separator, name = key.partition("://")
        host, directory = self._link.peer.host, self._office.directory
        if publish.exchange or not separator or kind not in _QUEUES_OF_JMS or not name.startswith(host):
            return publish
        own, wanted = ((each in directory.queues or each in directory.addresses) for each in (host + key, name))
        return publish._replace(routing_key=name.removeprefix(host)) if wanted and not own else publish

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
        return self._next if self.confirms else self._unnumbered + 1

    def go_on_from(self, number: int) -> None:
        """Give the next publish this number: those before it were taken together."""
        if self.confirms:
            self._next = number
        else:
            self._unnumbered = number - 1

    def answer_run(self, numbers: Sequence[int]) -> None:
        """Publishes with these numbers, which follow each other, are safe."""
        number = numbers[-1]
        if self.closed:
            return
        if number != self._next - 1 or number != self._confirmed + 1:
            self._are_safe(number)
            return
        # one that its publisher waits for
        self._safe = self._confirmed = number
        self._output.send_frames(ack_frame(self._output.number, number, multiple=False))

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

    # --- without a connection --------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """Name of the mode in the status of a channel."""
        return "confirm" if self.confirms else "tx" if self.transacted else "none"

    @property
    def accepted(self) -> int:
        """Number of publishes that are decided; without confirms the number of those that came."""
        return max(self._confirmed, self._safe) if self.confirms else self._unnumbered

    @property
    def received(self) -> int:
        """Number of publishes that came."""
        return self._next - 1 if self.confirms else self._unnumbered

    @property
    def last_number(self) -> int:
        """The number that the log has of the channel: that of the last publish that is decided, or of the last commit;
        0: there is none.
        """
        return self.accepted if self.confirms else self.commits

    def select(self, *, confirms: bool) -> None:
        """Begin a mode, in which publishes are counted anew."""
        self.confirms, self.transacted = confirms, not confirms
        self._unnumbered = 0

    def restore(self, accepted: int) -> None:
        """Continue after a number of publishes, or of commits, that an earlier active node has taken."""
        if self.confirms:
            self._safe, self._next = accepted, accepted + 1
        elif self.transacted:
            self.commits = accepted
            self.rolled_back = True

    def assume(self, publishes: int) -> None:
        """Take the client's number of publishes of a channel without confirms: an earlier active node has taken what it
        took.
        """
        self._unnumbered = publishes

    def count_commit(self) -> None:
        """Count a commit, and record its number in its transaction."""
        transaction = self._session.state.transaction
        self.commits += 1
        if self.record is not None and transaction is not None:
            self.record.store_number(self.commits, transaction.log_id())

    def move(self, link: ConnectionLink) -> None:
        """Use another connection."""
        self._link = link

    def resume(self) -> None:
        """Number the next publish after those that are accepted."""
        self._confirmed = self._safe = self.accepted if self.confirms else 0
        self._next = self._confirmed + 1

    # --- confirms --------------------------------------------------------------------------------

    def _done(self, number: int, error: BrokerError | None) -> None:
        """A publish is safe, or was not taken. Called in the order of the publishes."""
        if self.closed:
            return
        if error is not None:
            self.flush()
            self._confirmed = number
            self._output.send(BasicNack(number))
        else:
            self._are_safe(number)

    def _are_safe(self, number: int) -> None:
        """All publishes up to a number are safe."""
        self._safe = number
        if number == self._next - 1:
            self.flush()
        elif not self._flushing:
            # further publishes may become safe with it
            self._flushing = True
            self._office.timers.call_later(0, self._flush_later)

    def _flush_later(self) -> None:
        self._flushing = False
        self.flush()

    def flush(self) -> None:
        """Confirm the publishes that are safe."""
        if self._safe > self._confirmed and not self.closed:
            multiple = self._safe > self._confirmed + 1
            self._output.send_frames(ack_frame(self._output.number, self._safe, multiple=multiple))
            self._confirmed = self._safe


def _without_bcc(publish: Publish) -> Publish:
    """The publish as others may see it, in a delivery or in basic.return; ``properties`` keeps the header BCC."""
    if "BCC" not in (publish.properties.headers or {}):
        return publish
    return publish._replace(encoded=with_fields(publish.encoded, headers={"BCC": None}))
