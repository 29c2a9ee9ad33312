"""The end of one delivery: acknowledged, given back, or refused, as the mode of its session allows.

Artemis-core s. 6.1 and 6.4; outcomes without an acknowledgement: ADR 0143. Not here: acknowledgements that are
collected for many messages (``consumers``), and commit and rollback (``transactions``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from understudy.client.core.connection.calls import Call, Interrupted, Waiter, settle
from understudy.client.core.consumer.consumers import Consumers
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import Channel
from understudy.client.core.session.outcomes import Outcome
from understudy.client.core.session.transactions import Transactions
from understudy.errors import IllegalState
from understudy.wire.core.packets import Commit, IndividualAcknowledge, NullResponse, Packet


class Settlements:
    """Ends single deliveries of one session."""

    def __init__(self, channel: Channel, consumers: Consumers, transactions: Transactions) -> None:
        self._channel = channel
        self._consumers = consumers
        self._transactions = transactions
        self._mode = channel.options.consumer_mode

    def acknowledge(self, received: ReceivedMessage, waiter: Waiter[bool]) -> None:
        """Acknowledge as the session's mode says; the waiter gets whether the broker confirmed it.

        False: the message came before a failover, its consumer was closed, or the connection was lost under way, so the
        broker delivers it again (unless it received the acknowledgement).
        """
        consumer = received.consumer
        if received.given_back:
            raise IllegalState(f"message {received.message_id} was given back before")
        if self._mode is AcknowledgeMode.PRE_ACKNOWLEDGE:
            settle(waiter)(True, None)
        elif not self._consumers.delivered(received) or self._channel.closed is not None:
            self._channel.complaint(
                f"message {received.message_id} came before a failover, or was given back: not acknowledged"
            )
            settle(waiter)(False, None)
        elif self._mode is AcknowledgeMode.CLIENT:
            # a transaction of its own at the server (artemis-core s. 6.1)
            self._confirmed_call(received, self._consumers.acknowledge_all, waiter)
        elif self._mode is AcknowledgeMode.INDIVIDUAL:
            # also in a transaction at the server, so that a rollback can count deliveries
            received.settled = True
            self._confirmed_call(received, partial(self._acknowledge_one, received), waiter)
        else:
            if self._consumers.acknowledge_at_once:
                consumer.acknowledge_taken()
            settle(waiter)(True, None)

    def settle(self, received: ReceivedMessage, outcome: Outcome, waiter: Waiter[bool]) -> None:
        """End a delivery without an acknowledgement; the waiter gets whether the broker confirmed it. In a transaction
        it takes effect with the commit.

        False: the message came before a failover, its consumer was closed, or the connection was lost under way, so the
        broker delivers it again.

        A broker of another kind can only give back all messages in work of the session (JMS recover).

        Raises:
            IllegalState: the delivery has ended already; or the broker of another kind cannot do it.
        """
        if received.settled:
            raise IllegalState(f"message {received.message_id} was acknowledged or given back before")
        if self._mode is AcknowledgeMode.PRE_ACKNOWLEDGE:
            raise IllegalState(
                f"message {received.message_id} cannot be given back: in the mode 'pre' the broker has forgotten it"
            )
        if not self._consumers.delivered(received) or self._channel.closed is not None:
            self._channel.complaint(f"message {received.message_id} came before a failover, or was given back already")
            settle(waiter)(False, None)
            return
        work = received.consumer.work
        if not work.in_work(received.message_id):
            raise IllegalState(
                f"message {received.message_id} cannot be given back: it counts as acknowledged",
                hint="in the mode 'auto' that is so when the next message is asked for, in a transaction after"
                " transactionBatchSize bytes: roll it back",
            )
        if not self._channel.takes_settlements:
            if outcome.needs_understudy or self._mode is AcknowledgeMode.TRANSACTED:
                raise IllegalState(
                    "over AMQP 0-9-1, and at a broker that is not Understudy, only all messages in work together can be"
                    " given back, and they are counted",
                    hint="use reject() outside of a transaction, or rollback()",
                )
            received.settled = received.given_back = True
            self._transactions.return_unfinished(lambda: settle(waiter)(True, None), of=received.consumer)
            return
        received.settled = received.given_back = True
        work.settled(received.message_id)
        if self._mode in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL):
            packet = outcome.packet(received.consumer.consumer_id, received.message_id, requires_response=False)
            self._confirmed_call(received, lambda: self._channel.transmit_packet(packet), waiter)
        else:
            self._settling_call(received, outcome, waiter)

    def check_processing(self, received: ReceivedMessage, *, plain: bool) -> None:
        """Check that a block may work on the message.

        Args:
            received: The message.
            plain: Whether the block asks for nothing that only Understudy does.

        Raises:
            IllegalState: the mode of the session has no single deliveries, or the broker cannot do it.
        """
        if self._mode is AcknowledgeMode.TRANSACTED:
            raise IllegalState(
                f"message {received.message_id} is part of a transaction", hint="use session.transaction()"
            )
        if self._mode is AcknowledgeMode.PRE_ACKNOWLEDGE:
            raise IllegalState(f"message {received.message_id}: in the mode 'pre' the broker has forgotten it")
        if not plain and not self._channel.takes_settlements:
            raise IllegalState(
                "over AMQP 0-9-1, and at a broker that is not Understudy, one message has no delay and no dead letter"
            )

    def _settling_call(self, received: ReceivedMessage, outcome: Outcome, waiter: Waiter[bool]) -> None:
        packet = outcome.packet(received.consumer.consumer_id, received.message_id, requires_response=True)

        def done(answer: Any, error: BaseException | None) -> None:
            if received.generation != self._channel.generation:
                # given back with others, or lost with its session, before the request had its turn
                answer = error = None
            settle(waiter, lambda found: found is not None)(answer, error)

        self._channel.calls.add(Call("settle", lambda _: packet, (NullResponse,), done, Interrupted.FORGET, bound=True))

    def _confirmed_call(self, received: ReceivedMessage, acknowledge: Callable[[], None], waiter: Waiter[bool]) -> None:
        acknowledged = False

        def build(correlation_id: int) -> Packet:
            # between the call and its turn the message may be given back (``transactions``), or its consumer closed
            nonlocal acknowledged
            acknowledged = self._consumers.delivered(received)
            if acknowledged:
                acknowledge()
            return Commit(correlation_id)

        def confirmed(packet: NullResponse | None) -> bool:
            return packet is not None and acknowledged and received.generation == self._channel.generation

        answered = settle(waiter, confirmed)
        call = Call("acknowledge", build, (NullResponse,), answered, Interrupted.FORGET, bound=True)
        self._channel.calls.add(call)

    def _acknowledge_one(self, received: ReceivedMessage) -> None:
        """Send the acknowledgement of one message (INDIVIDUAL)."""
        consumer = received.consumer
        if consumer.work.in_work(received.message_id):
            consumer.work.settled(received.message_id)
            self._channel.transmit_packet(IndividualAcknowledge(consumer.consumer_id, received.message_id, False))
