"""A consumer: deliveries of one queue to one client, and messages that are not settled yet.

Delivery count: raised when a message is handed out, so 1 at the first time (artemis-core s. 6.4). A browser
looks at messages without taking them: it holds nothing and changes no count.

A large message goes out in pieces as credits and the socket allow; until its last piece nothing
else goes to this consumer (artemis-core s. 6.3). One whose file is damaged is set aside, among the scheduled
messages of its queue: it is not tried again before an operator releases it or the next activation, so
it blocks no other message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from understudy.errors import BrokerError, IllegalState, LargeMessageFailed, StoreError
from understudy.message import LargeMessage
from understudy.routing.filter import Filter
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.delivery import LOOKS_MAX, READ_BACK_MAX, deliver
from understudy.routing.queues.flow_control import FlowControl
from understudy.routing.queues.queue import Queue
from understudy.session.large_delivery import LargeDelivery
from understudy.session.state import SessionState
from understudy.store.messages.reference import MessageReference, Part, References, RunSlice

#: Messages delivered later than that after the first one of a part do not join it.
_SAME_TIME_MS: Final = 1_000
#: The last parts that a consumer keeps with the buffers of their runs, if they are few messages of each.
_WHOLE_RUNS_MAX: Final = 8


class Outstanding:
    """The outstanding deliveries of one consumer, by message id."""

    __slots__ = ("_parts", "_scattered", "_times", "count")

    def __init__(self, *, scattered: bool = False) -> None:
        """``scattered``: whether the deliveries are few messages of many runs, whose buffers are not kept for them."""
        self._scattered = scattered
        self._parts: deque[Part] = deque()
        self._times: deque[int] = deque()
        """Wall time of each part."""
        self.count = 0
        """Number of outstanding messages."""

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        """Message ids in the order of delivery."""
        for part in self._parts:
            yield from part.ids

    def __contains__(self, message_id: object) -> bool:
        return any(message_id in part.ids for part in self._parts)

    def values(self) -> Iterator[MessageReference]:
        """Every delivery as a reference; those of a slice are made for the caller."""
        for part in self._parts:
            yield from part

    def add(self, part: Part, now_ms: int = 0) -> None:
        """Called when messages were delivered together, at this wall time."""
        parts = self._parts
        if not parts or now_ms - self._times[-1] > _SAME_TIME_MS or not parts[-1].join(part):
            parts.append(part.kept())
            self._times.append(now_ms)
            if self._scattered:
                self._leave_runs()
        self.count += len(part)

    def _leave_runs(self) -> None:
        """The last deliveries keep the buffers of their runs, because most are acknowledged soon."""
        parts = self._parts
        if len(parts) > _WHOLE_RUNS_MAX:
            old = parts[-_WHOLE_RUNS_MAX - 1]
            if isinstance(old, RunSlice):
                parts[-_WHOLE_RUNS_MAX - 1] = old.alone()

    @property
    def oldest_ms(self) -> int | None:
        """Wall time of the oldest delivery; None if there is none."""
        return self._times[0] if self._times else None

    def delivered_ms(self, message_id: int) -> int | None:
        """Wall time at which a message was delivered, up to a second too early; None if it is not outstanding."""
        for part, time_ms in zip(self._parts, self._times, strict=True):
            if part.find(message_id) >= 0:
                return time_ms
        return None

    def take_through(self, message_id: int) -> list[Part]:
        """Take everything up to this delivery, in order; nothing if it is not outstanding."""
        parts = self._parts
        before = 0
        for part in parts:
            last = part.take_through(message_id)
            if last is not None:
                break
            before += 1
        else:
            return []
        taken: list[Part] = [parts.popleft() for _ in range(before)] if before else []
        taken.append(last)
        if last is part:
            parts.popleft()
            before += 1
        for _ in range(before):
            self._times.popleft()
        self.count -= sum(map(len, taken))
        return taken

    def take_through_each(self, message_ids: Sequence[int]) -> tuple[int, list[Part]]:
        """Take everything up to each of these deliveries in turn.

        Returns:
            The number of them that were outstanding in their turn, which ends at the first one that was not, and the
            deliveries, in order.
        """
        parts = iter(self._parts)
        part = next(parts, None)
        count, last = 0, -1
        while part is not None and count < len(message_ids):
            number = part.find(message_ids[count])
            if number > last:
                last = number
                count += 1
            else:
                part, last = next(parts, None), -1
        return count, self.take_through(message_ids[count - 1]) if count else []

    def take_one(self, message_id: int) -> Part:
        """Take this delivery; empty if it is not outstanding."""
        parts = self._parts
        for index, part in enumerate(parts):
            number = part.find(message_id)
            if number < 0:
                continue
            self.count -= 1
            rest = [each for each in (part.part(0, number), part.part(number + 1, len(part))) if each]
            del parts[index]
            time_ms = self._times[index]
            del self._times[index]
            for each in reversed(rest):
                parts.insert(index, each)
                self._times.insert(index, time_ms)
                if self._scattered:
                    self._leave_runs()
            return part.part(number, number + 1)
        return References()

    def clear(self) -> list[MessageReference]:
        """Take every outstanding delivery, in order."""
        taken = list(self.values())
        self._parts.clear()
        self._times.clear()
        self.count = 0
        return taken


class ServerConsumer(Consumer):
    """A consumer of a session."""

    __slots__ = (
        "_callback", "_count_first", "_disconnected", "_forced", "_large", "_pre_acknowledge", "_send", "consumer_id",
        "created_ms", "delivering", "messages_acknowledged", "messages_delivered", "queue", "retired", "session",
    )  # fmt: skip

    def __init__(
        self,
        consumer_id: int,
        session: SessionState,
        queue: Queue,
        filter: Filter | None,  # noqa: A002  # the standard name
        priority: int,
        disconnected: Callable[[ServerConsumer], None],
        flow: FlowControl,
    ) -> None:
        """``disconnected``: called when the queue is deleted; closes the consumer."""
        super().__init__(filter, priority, flow)
        self.queue = queue
        self.retired = False
        """Whether the consumer gets nothing more and has left its queue; its deliveries are still to be settled."""
        pre_acknowledge = (session.options.pre_acknowledge or flow.settles) and not self.browse_only
        self.consumer_id = consumer_id
        self.session = session
        self.created_ms = session.wall_ms()
        self._callback = callback = session.callback
        self._disconnected = disconnected
        self._send = callback.deliver
        self.overhead_bytes = callback.delivery_overhead_bytes
        self._pre_acknowledge = pre_acknowledge
        self._count_first = queue.store.settings.count_before_delivery and not (queue.internal or pre_acknowledge)
        """Whether each delivery is counted in the log before it is sent."""
        if self._count_first:
            # messages are delivered one at a time: deliveries of a run are not counted in the log
            self.overhead_bytes = 0
        self.delivering = Outstanding(scattered=filter is not None)
        self.messages_delivered = 0
        self.messages_acknowledged = 0
        """Number of messages that the consumer has settled, committed or not; compared with slow-consumer-threshold."""
        self._large: LargeDelivery | None = None
        """The large message that is being delivered."""
        self._forced: Callable[[], None] | None = None
        """Called when everything that can be delivered has been sent."""

    @property
    def browse_only(self) -> bool:
        """Return False: the consumer removes the messages that it acknowledges."""
        return False

    def writable(self) -> bool:
        return self._large is None and self._callback.writable()

    def deliver(self, part: Part) -> None:
        if self.queue.kind is not None:
            self._end_copies(part)
        large = part.large
        if large is not None:
            self._deliver_large(part, large)
            return
        part.count_delivery()
        try:
            if self._count_first:
                self._store_counts(part)
            charged = self._send(self.consumer_id, part)
        except StoreError:
            # the dispatcher puts the messages back
            part.count_delivery(-1)
            raise
        except Exception as bug:
            self.delivering.add(part, self.queue.office.now_ms)
            self.abandon(bug)
            return
        flow = self.flow
        flow.credits -= charged if flow.counts_bytes else len(part)
        self.allowance_bytes -= charged
        self._delivered(part)

    def _delivered(self, part: Part) -> None:
        """Note sent messages, which are outstanding unless they need no acknowledgement."""
        count = len(part)
        self.messages_delivered += count
        if not self._pre_acknowledge:
            self.delivering.add(part, self.queue.office.now_ms)
            return
        try:
            # The dispatcher counts them as handed out afterwards; the sum is right.
            self.queue.acknowledge(part)
        except BaseException:
            # The log has no space for the delivery counts: the dispatcher puts the messages back.
            part.count_delivery(-1)
            raise
        self.messages_acknowledged += count

    def _store_counts(self, part: Part) -> None:
        """Record the counts in the batch of this turn, which is handed to the disk before the deliveries to sockets."""
        for reference in part:
            if reference.durable:
                self.queue.store.store_delivery_count(
                    self.queue.queue_id, reference.message_id, reference.delivery_count
                )

    def _end_copies(self, part: Part) -> None:
        """End the copies of these messages that this consumer still has; called when the queue is not non-destructive
        any more."""
        for message_id in part.ids:
            copy = self.delivering.take_one(message_id)
            if copy and self.queue.kind is not None:
                self.queue.kind.settled(copy)

    def _deliver_large(self, part: Part, message: LargeMessage) -> None:
        reference = part[0]
        try:
            if not self._begin_large(reference, message, reference.delivery_count + 1):
                return
        except StoreError:
            raise
        except Exception as bug:
            self.delivering.add(part, self.queue.office.now_ms)
            self.abandon(bug)
            return
        part.count_delivery()
        if self._count_first:
            self._store_counts(part)
        self._delivered(part)
        self._send_pieces()

    def _begin_large(self, reference: MessageReference, message: LargeMessage, delivery_count: int) -> bool:
        """Announce a large message, unless its file is damaged."""
        session = self.session
        try:
            self._large = LargeDelivery(
                session.large_messages, reference, message, session.options.min_large_message_size
            )
        except (LargeMessageFailed, StoreError) as error:
            self._quarantine(reference, error)
            return False
        # until its end ``ready`` asks ``writable`` each time, and that says no
        self.allowance_bytes = 0
        self._charge(self._callback.deliver_large(self.consumer_id, message, delivery_count), 1)
        return True

    def _charge(self, frame_bytes: int, messages: int) -> None:
        self.flow.credits -= frame_bytes if self.flow.counts_bytes else messages
        self.allowance_bytes -= frame_bytes

    def _quarantine(self, reference: MessageReference, error: BrokerError) -> None:
        self.session.quarantine(self.queue, reference, error)

    def _send_pieces(self) -> None:
        """Send the pieces that the credit and the socket allow; credit in messages covers all pieces of a message."""
        large, flow = self._large, self.flow
        while large is not None and (flow.credits > 0 or not flow.counts_bytes) and self._callback.writable():
            try:
                piece, continues = large.next_piece()
            except (LargeMessageFailed, StoreError) as error:
                self._break_off(large.reference, error)
                return
            try:
                self._charge(self._callback.deliver_piece(self.consumer_id, piece, continues), 0)
            except StoreError:
                raise
            except Exception as bug:
                self.abandon(bug)
                return
            if not continues:
                self._end_large()
                large = None
        if large is not None:
            large.pause()

    def _end_large(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            large.close()
        self.allowance_bytes = 0

    def give_up_large(self) -> None:
        """Send no further piece of the large message that is being delivered; it stays outstanding."""
        self._end_large()

    def _break_off(self, reference: MessageReference, error: BrokerError) -> None:
        """Close the consumer: its client has a part of a message that has no end, and only closing says so."""
        if self.delivering.take_one(reference.message_id):
            self._quarantine(reference, error)
        else:
            self.session.complain(self.queue, reference, error)
        self.disconnect()

    def disconnect(self) -> None:
        self._disconnected(self)
        self._callback.disconnect_consumer(self.consumer_id)

    def abandon(self, bug: Exception) -> None:
        """An internal error occurred in a delivery to it, which costs its client the connection: its messages go
        back to the queue with that, and until then it takes nothing more.
        """
        self.started = False
        self.allowance_bytes = 0
        self._callback.internal_error(bug)

    def kill_connection(self, reason: str) -> None:
        """End the connection of its client, with everything on it."""
        self._callback.kill_connection(reason)

    def receive_credits(self, amount: int) -> None:
        """The client grants credit, in the unit and by the rules of its flow control."""
        self.flow.grant(amount)
        self.prompt()

    def prompt(self) -> None:
        """Deliver in this turn: a change may permit this consumer to take messages."""
        if not self._finish_first() and self.flow.credits > 0 and self.started:
            self.queue.prompt()

    def _finish_first(self) -> bool:
        """Go on with the large message in delivery, and give the marker that waits for its end; whether
        that is all for now.
        """
        if self._large is not None:
            self._send_pieces()
            if self._large is not None:
                return True
        if self._forced is not None and self.started:
            call, self._forced = self._forced, None
            self.after_deliveries(call)
            return True
        return False

    def force_delivery(self, sequence: int) -> None:
        """Send everything that can be delivered, then the marker (artemis-core s. 6.3)."""
        self.after_deliveries(partial(self._callback.forced_delivery, self.consumer_id, sequence))

    def drain(self, drained: Callable[[int], None]) -> None:
        """Send everything that the credit allows, then take back the rest of it (AMQP 1.0 s. 2.6.7)."""
        self.after_deliveries(lambda: drained(self.flow.drain()))

    def after_deliveries(self, call: Callable[[], None]) -> None:
        """Call when everything that can be delivered has been sent. While the socket does not keep up that waits: the
        client would take the call's effect for an empty queue.
        """
        if self.started and not deliver(self.queue) and self.ready:
            # the answer would state that the queue has no message; it waits until the whole queue was searched
            self._forced = call
            self.queue.resume_scan(self)
        else:
            self._call(call)

    def resume(self, *, done: bool) -> None:
        if self._forced is None:
            return
        if self.ready and not done:
            self.queue.resume_scan(self)
            return
        call, self._forced = self._forced, None
        self._call(call)

    def _call(self, call: Callable[[], None]) -> None:
        if self._large is not None or (self.started and self.flow.credits > 0 and not self._callback.writable()):
            # a large message must not be interrupted, and a full socket does not mean an empty queue
            self._forced = call
        else:
            call()

    def take_through(self, message_id: int) -> list[Part]:
        """Everything delivered up to a message, which is no longer outstanding, in parts.

        Raises:
            IllegalState: it is not outstanding here.
        """
        before = self.delivering.count
        taken = self.delivering.take_through(message_id)
        if not taken:
            raise IllegalState(f"consumer {self.consumer_id} of {self.queue.name!r}: no delivery {message_id}")
        self.messages_acknowledged += before - self.delivering.count
        return taken

    def take_through_each(self, message_ids: Sequence[int]) -> tuple[int, list[Part]]:
        """Everything delivered up to each of these messages in turn; see ``Outstanding``."""
        before = self.delivering.count
        count, taken = self.delivering.take_through_each(message_ids)
        self.messages_acknowledged += before - self.delivering.count
        return count, taken

    def take_one(self, message_id: int) -> Part:
        """One outstanding delivery; raises IllegalState."""
        taken = self.delivering.take_one(message_id)
        if not taken:
            raise IllegalState(f"consumer {self.consumer_id} of {self.queue.name!r}: no delivery {message_id}")
        self.messages_acknowledged += 1
        return taken

    def cancel(self, *, failed: bool, keep_first: bool = False) -> list[MessageReference]:
        """Give up everything outstanding, with the delivery counts of artemis-core s. 6.4.

        Args:
            failed: The connection failed, so it is not known what the client saw: counts stay.
            keep_first: The first one was consumed: its count stays (JMS recover).
        """
        self._end_large()
        taken = self.delivering.clear()
        if not failed:
            for reference in taken[1:] if keep_first else taken:
                reference.delivery_count -= 1
        return taken


class BrowserConsumer(ServerConsumer):
    """A consumer that only looks."""

    __slots__ = ("_from", "_going_on")

    def __init__(
        self,
        consumer_id: int,
        session: SessionState,
        queue: Queue,
        filter: Filter | None,  # noqa: A002
        priority: int,
        disconnected: Callable[[ServerConsumer], None],
        flow: FlowControl,
    ) -> None:
        super().__init__(consumer_id, session, queue, filter, priority, disconnected, flow)
        self._from = (9, -1)
        self._going_on = False
        """Whether the consumer has asked for the next turn."""
        # Browsers do not wait for SESS_START (artemis-core s. 6.3).
        self.started = True

    @property
    def browse_only(self) -> bool:
        """Return True: a browser removes no message."""
        return True

    def _quarantine(self, reference: MessageReference, error: BrokerError) -> None:
        # a browser removes nothing: the damaged message stays in the queue until a consumer reads it
        self.session.complain(self.queue, reference, error)

    def prompt(self) -> None:
        if not self._finish_first():
            self._browse()

    def after_deliveries(self, call: Callable[[], None]) -> None:
        if self._browse():
            self._call(call)
        else:
            self._forced = call

    def resume(self, *, done: bool) -> None:
        self._going_on = False
        if self.started:
            self.prompt()

    def _browse(self) -> bool:
        """Browse messages within credits and the limit of one turn; False: it continues in the next turn."""
        queue = self.queue
        now_ms = self.session.wall_ms()
        read_back_left, looks_left = READ_BACK_MAX, LOOKS_MAX
        for following, reference in queue.browse(self._from):
            if not self.ready:
                return True
            read_back_left -= reference.message is None
            looks_left -= 1
            if read_back_left < 0 or looks_left < 0 or (self.filter is not None and queue.out_of_steps()):
                if not self._going_on:
                    self._going_on = True
                    queue.resume_scan(self)
                return False
            self._from = following
            if reference.expiration and reference.expiration <= now_ms:
                continue
            message = queue.read_waiting(reference)
            if message is None or (self.filter is not None and not self.filter.matches(message)):
                continue
            if isinstance(message, LargeMessage):
                if self._begin_large(reference, message, reference.delivery_count):
                    self._send_pieces()
            else:
                self._charge(self._send(self.consumer_id, References((reference,), message)), 1)
        return True
