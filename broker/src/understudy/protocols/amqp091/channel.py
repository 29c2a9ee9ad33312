"""One channel of an AMQP 0-9-1 connection: its methods as calls of a session, and the session's calls as methods.

A request that fails closes the channel, or the connection, with the reply code of its error, after the answers to
earlier requests; later requests are ignored. Answers to requests that create or delete something are sent when that is
durable.

Requests of a channel are carried out in their order, as in RabbitMQ. Most are carried out when they are read. The
others depend on what becomes visible with the answers to earlier requests (messages in their queues), or deliveries
that they cause must follow their answers: these wait for the earlier answers (``in_order``), and while one waits no
later frame of the channel is carried out (``HeldInput``). Confirms (basic.ack, basic.nack) and basic.return are no
answers: they come when the publish is decided.

Not here: the requests of single methods (``requests``), frames (``connection``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Any, ClassVar, Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DiskFull, RemoteProtocolError, StoreError, forget_frames
from understudy.limits import AMQP091_CONTENT_TIMEOUT_MS, AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.message import LargeMessage
from understudy.protocols.amqp091.content import Content
from understudy.protocols.amqp091.deliveries import ChannelDeliveries
from understudy.protocols.amqp091.link import ConnectionLink
from understudy.protocols.amqp091.messages import Publish
from understudy.protocols.amqp091.output import ChannelOutput
from understudy.protocols.amqp091.publisher import ChannelPublisher
from understudy.protocols.amqp091.refusals import refusal
from understudy.protocols.amqp091.runs.methods import PUBLISH
from understudy.protocols.amqp091.runs.publishes import PublishRuns
from understudy.protocols.amqp091.runs.settlements import SettlementRuns
from understudy.protocols.amqp091.runs.ways import Run
from understudy.session.session import ServerSession
from understudy.store.messages.reference import Part
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.frames import FrameDecoder, FrameType
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.amqp091.methods import BasicCancel, BasicPublish, ChannelClose, ChannelCloseOk, ChannelOpenOk

log = logging.getLogger(__name__)

#: Most requests of a channel whose answers are remembered.
_REPEATS_MAX: Final = 8


class State(Enum):
    """States of a channel."""

    OPEN = auto()
    FAILED = auto()
    """A request has failed; its error waits for the answers to earlier requests, and later requests are ignored."""
    DETACHED = auto()
    """The connection is gone, and the session keeps the channel (ADR 0195)."""
    RESUMING = auto()
    """The client has another connection, and channel.open-ok waits for what the channel sent before."""
    CLOSING = auto()
    """channel.close was sent; everything but close and close-ok is ignored."""
    CLOSED = auto()


class Event(Enum):
    """Events of a channel."""

    FAIL = auto()
    """A request has failed."""
    REFUSE = auto()
    """The answers to requests before the one that has failed were sent."""
    CLOSE = auto()
    """The client closes the channel, or confirms its end."""
    LOSE = auto()
    """The connection or the session ends, and the channel with it."""
    DETACH = auto()
    """The connection ends, and the session keeps the channel."""
    RESUME = auto()
    """The client goes on at another connection."""
    READY = auto()
    """Everything that the channel sent before is decided."""


@dataclass(slots=True)
class Declares:
    """Queues that the client of a channel has declared, and answers that wait."""

    last_name: str = ""
    """Queue that was declared last, which requests without a name mean."""
    known_id: int = 0
    """Id of the queue of the last declare whose answer has waited for the disk; 0: there is none."""
    waiting: int = 0
    """Answers to requests of the channel that are not sent yet."""
    payload: bytes = b""
    """Payload of the method that is carried out."""
    repeats: dict[bytes, Callable[[], bool]] = field(default_factory=dict)
    """Functions that answer requests with these payloads once more. They return False if the request has to be carried
    out."""

    def remember(self, repeat: Callable[[], bool]) -> None:
        """Answer the request that is carried out with ``repeat`` when it comes again."""
        if len(self.repeats) >= _REPEATS_MAX:
            self.repeats.clear()
        self.repeats[self.payload] = repeat

    def knows(self, queue_id: int) -> bool:
        """Whether an answer to the client named the queue, and no answer waits that another one could overtake."""
        return self.known_id == queue_id and not self.waiting


class Amqp091Channel(Machine[State, Event]):
    """One channel. Implements ``SessionCallback`` and ``ReplyReceiver``."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.OPEN

    delivery_overhead_bytes = 64
    """About the bytes of three frames without the names and the contents."""

    def __init__(
        self,
        link: ConnectionLink,
        number: int,
        make_session: Callable[[Amqp091Channel], ServerSession],
        handlers: Mapping[type[Method], Callable[[Amqp091Channel, Any], None]],
    ) -> None:
        """Open a channel.

        Args:
            link: Connection to which the channel belongs.
            number: Number of the channel.
            make_session: Makes the session that calls this channel.
            handlers: Functions that carry methods out, by their class.
        """
        super().__init__()
        self.link = link
        self.number = number
        self._handlers = handlers
        self.session = make_session(self)
        self.output = ChannelOutput(link, number)
        self.content = Content()
        self.publisher = ChannelPublisher(link, self.session, self.output)
        self._runs = PublishRuns(link, self.session, self.publisher)
        self.deliveries = ChannelDeliveries(link, self.session, self.output)
        self.declares = Declares()
        self._settlements = SettlementRuns(self.deliveries, self.publisher)
        self.lost = False
        """Whether deliveries went back to their queues since the client has last read the status of the channel."""
        self.reply_tag: str | None = None
        """Tag of the consumer of direct replies; None: there is none."""
        self.session.consumers.start()

    @property
    def open(self) -> bool:
        """Whether requests are carried out."""
        return self._state is State.OPEN

    @property
    def goes_on(self) -> bool:
        """Whether a session may keep the channel when its connection ends."""
        return self.deliveries.keeps and self._state in (State.OPEN, State.RESUMING)

    # --- frames ----------------------------------------------------------------------------------

    def receive(self, kind: int, payload: bytes, now_ms: int) -> None:
        """Carry out a frame of this channel.

        Args:
            kind: Type of the frame.
            payload: Payload of the frame.
            now_ms: Monotonic time.

        Raises:
            Amqp091Error: after channel.close a method that cannot be read.
        """
        if self._state is State.RESUMING:
            text = f"channel {self.number} is not open before channel.open-ok"
            self.link.refuse(Amqp091Error(ReplyCode.CHANNEL_ERROR, text), None)
            return
        if self._state is not State.OPEN:
            self._receive_closing(kind, payload)
            return
        method: Method | None = None
        try:
            if kind == FrameType.METHOD:
                self._settlements.single()
                if self.content.open:
                    raise Amqp091Error(ReplyCode.UNEXPECTED_FRAME, "a method between the frames of a content")
                declares = self.declares
                repeat = declares.repeats.get(payload) if declares.repeats else None
                if repeat is not None and repeat():
                    return
                declares.payload = payload
                method = decode_method(payload)
                self._carry_out(method, now_ms)
            elif self._receive_content(kind, payload, now_ms):
                self._publish()
        except BrokerError as error:
            forget_frames(error)
            self._fail(error, method)

    def receive_run(self, decoder: FrameDecoder, count_max: int) -> Run | None:
        """Take publishes or settlements that come next together; None: they are taken by their frames.

        Args:
            decoder: The input of the connection; next comes a frame of this channel.
            count_max: Most publishes or settlements.
        """
        if self._state is not State.OPEN or self.content.open:
            return None
        try:
            frame = decoder.method_frame(PUBLISH)
            if frame is not None:
                return self._runs.receive(decoder, frame, count_max)
            return self._settlements.receive(decoder, count_max)
        except BrokerError as error:
            forget_frames(error)
            self._fail(error, None)
            return None

    def _receive_content(self, kind: int, payload: bytes, now_ms: int) -> bool:
        """Whether a header or body completes the content. Raises Amqp091Error."""
        content, peer = self.content, self.link.peer
        before = content.held_bytes
        complete = content.receive_header(payload) if kind == FrameType.HEADER else content.receive_body(payload)
        content.since_ms = now_ms
        peer.content_bytes += content.held_bytes - before
        if peer.content_bytes > AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX:
            raise Amqp091Error(
                ReplyCode.RESOURCE_ERROR,
                f"messages that have not come whole have {peer.content_bytes} bytes, limit "
                f"{AMQP091_CONTENTS_OF_CONNECTION_BYTES_MAX} on one connection",
            )
        return complete

    def _receive_closing(self, kind: int, payload: bytes) -> None:
        """A frame that comes after a request has failed; contents under way are discarded."""
        if kind != FrameType.METHOD:
            return
        method = decode_method(payload)
        if isinstance(method, ChannelClose):
            # both sides close: the end is confirmed, and the confirmation of the client still comes
            self.session.state.in_order(self._confirm_close)
        elif isinstance(method, ChannelCloseOk) and self._state is State.CLOSING:
            self.fire(Event.CLOSE)

    def _confirm_close(self) -> None:
        if self._state is State.CLOSING:
            self.output.send(ChannelCloseOk())

    def _carry_out(self, method: Method, now_ms: int) -> None:
        if isinstance(method, BasicPublish):
            self.content.begin(method, now_ms)
            return
        handler = self._handlers.get(type(method))
        if handler is None:
            raise Amqp091Error(ReplyCode.COMMAND_INVALID, f"{method.name} is no request of a client on a channel")
        handler(self, method)

    def _publish(self) -> None:
        self.link.peer.content_bytes -= self.content.held_bytes
        method, publish = self.content.take()
        self._runs.single()
        try:
            self.publisher.publish(method, publish)
        except BrokerError as error:
            forget_frames(error)
            transaction = self.session.state.sending_transaction
            if transaction is not None:
                transaction.fail(error)
            self._fail(error, method)

    # --- answers ---------------------------------------------------------------------------------

    def answer(self, method: Method, *, wanted: bool = True, wrote: bool = True) -> None:
        """Answer a request that is carried out, after the answers to earlier ones.

        Args:
            method: The answer.
            wanted: Whether the client waits for it.
            wrote: Whether the answer also waits until everything that was written is durable.
        """
        if not wanted:
            return
        self.declares.waiting += 1
        if wrote:
            self.session.state.when_durable(self._send_open, method)
        else:
            self.session.state.in_order(self._send_open, method)

    def in_order(self, request: Method, call: Callable[[], None], *, durable: bool = False) -> None:
        """Carry out a request after the answers to earlier ones, and until then no later one.

        Args:
            request: Method of the client, which an error of the call names.
            call: Carries the request out.
            durable: Whether the call also waits until everything that was written is durable.
        """

        def attempt() -> None:
            self.link.held.go_on(self)
            if not self.answers:
                return
            try:
                call()
            except BrokerError as error:
                forget_frames(error)
                self.refuse(error, request)

        self.link.held.hold(self)
        if durable:
            self.session.state.when_durable(attempt)
        else:
            self.session.state.in_order(attempt)

    @property
    def answers(self) -> bool:
        """Whether earlier requests are still answered."""
        return self._state in (State.OPEN, State.FAILED)

    def _send_open(self, method: Method) -> None:
        self.declares.waiting -= 1
        if self.answers:
            self.output.send(method)

    def _fail(self, error: BrokerError, method: Method | None) -> None:
        """A request has failed: earlier ones are answered before the channel is closed."""
        if _leaves_unknown(error):
            self.refuse(error, method)
        elif self._state is State.OPEN:
            self.fire(Event.FAIL)
            self.session.state.in_order(self.refuse, error, method)

    def refuse(self, error: BrokerError, method: Method | None) -> None:
        """Close the channel, or the connection, because a request has failed whose turn to be answered it is."""
        if _leaves_unknown(error):
            # an answer would tell the client that the request failed for certain
            self.session.state.office.store.fail(error)
            self.link.abort()
            return
        if not self.session.state.office.permission.is_given():
            # another node may have taken over, and may have the queue that is missing here (ADR 0156)
            self.link.abort()
            return
        self.publisher.flush()
        refused = refusal(error, self.link.services.shared.error_texts.remote(error))
        if refused.closes_connection or self.output.in_large:
            self.link.refuse(refused, method)
        elif self.answers:
            log.info(
                "channel closed: request failed",
                extra={
                    "peer": self.link.scope.remote_address,
                    "channel": self.number,
                    "code": int(refused.reply_code),
                    "error": str(error),
                },
            )
            self.fire(Event.REFUSE, refused, method)

    def _send_close(self, error: Amqp091Error, method: Method | None) -> None:
        self._forget_record()
        self._end_session()
        ids = (method.class_id, method.method_id) if method is not None else (0, 0)
        text = f"{error.reply_code.text} - {error}"
        self.output.send(ChannelClose(error.reply_code, shortened(text), *ids))

    def _forget_record(self) -> None:
        """Record the end of the channel. When its connection or session ends, the session records that."""
        if self.publisher.record is not None:
            self.publisher.record.end()

    def _free(self) -> None:
        self._forget_record()
        self._end_session()
        self.link.channel_ended(self.number)

    def _drop_content(self) -> None:
        self.link.peer.content_bytes -= self.content.held_bytes
        self.content = Content()

    # --- the session of the client ---------------------------------------------------------------

    def save(self) -> None:
        """Record the channel for the next active node, if it has a record.

        Raises:
            Amqp091Error: RESOURCE_ERROR: the disk is full.
        """
        if self.publisher.record is not None:
            self.publisher.record.write()

    def resume_deliveries(self) -> None:
        """Go on with deliveries: the socket takes data again."""
        if self._state is State.OPEN:
            self.deliveries.send_again()

    def _drop_input(self) -> None:
        """Forget a content that has not come whole, and the consumer of direct replies."""
        self._drop_content()
        if self.publisher.reply_token is not None:
            self.link.services.replies.pop(self.publisher.reply_token, None)
            self.publisher.reply_token = self.reply_tag = None

    def _move(self, link: ConnectionLink) -> None:
        self.link = link
        self.session.state.move(link.scope)

    def _move_output(self) -> None:
        for part in (self.output, self.publisher, self.deliveries, self._runs):
            part.move(self.link)

    def _detach(self, link: ConnectionLink) -> None:
        self._drop_input()
        self.deliveries.detach()
        self._move(link)
        self._move_output()
        link.services.shared.connections.session_ended()

    def _resume(self, link: ConnectionLink, seen_tag: int, answer: Callable[[], bytes]) -> None:
        """Go on at a connection: answer when everything before is decided, then send deliveries again. Confirms of
        earlier publishes are in the answer, and none is sent before it.
        """
        self._move(link)
        link.services.shared.connections.session_opened()

        def ready() -> None:
            if self._state is State.RESUMING and self.link is link:
                self.fire(Event.READY, seen_tag, answer)

        self.session.state.when_durable(ready)

    def _ready(self, seen_tag: int, answer: Callable[[], bytes]) -> None:
        self._move_output()
        self.publisher.resume()
        self.deliveries.resume(seen_tag)
        try:
            self.output.send(ChannelOpenOk(answer()))
        except Amqp091Error as error:
            self.link.refuse(error, None)
            return
        self.lost = False
        self.deliveries.send_again()

    def lose_deliveries(self, generation: int) -> None:
        """Return all deliveries and roll the open transaction back: the client cannot go on with them."""
        transaction = self.session.state.transaction
        if transaction is not None:
            self.publisher.rolled_back = True
            self.publisher.drop_returns()
            self.session.undo()
        self.lost = True
        self.deliveries.lose(generation)

    def _end_session(self) -> None:
        """Return all deliveries to their queues. They count as delivered, because the client may have seen them."""
        self.publisher.closed = True
        self.session.state.office.store.context.resting.finish()
        self._drop_input()
        if not self.session.state.closed:
            self.session.close(failed=True)
            self.session.release_parts()
            self.link.services.shared.connections.session_ended()

    def _end_detached(self) -> None:
        # a channel without a connection does not count as open
        self.link.services.shared.connections.session_opened()
        self._end_session()

    def check(self, now_ms: int) -> None:
        """Check for a content that does not come, and for an acknowledgement. Raises RemoteProtocolError."""
        if self.content.open and now_ms - self.content.since_ms > AMQP091_CONTENT_TIMEOUT_MS:
            raise RemoteProtocolError("the content of a publish did not come within its time")
        if self._state is State.OPEN:
            try:
                self.deliveries.check(now_ms)
            except Amqp091Error as error:
                self._fail(error, None)

    # --- SessionCallback, ReplyReceiver ----------------------------------------------------------

    def deliver(self, consumer_id: int, part: Part) -> int:
        return self.deliveries.deliver(consumer_id, part)

    def deliver_large(self, consumer_id: int, message: LargeMessage, delivery_count: int) -> int:
        return self.deliveries.deliver_large(consumer_id, message, delivery_count)

    def deliver_piece(self, consumer_id: int, piece: bytes, continues: bool) -> int:
        return self.output.send_piece(piece, last=not continues)

    def deliver_reply(self, publish: Publish) -> bool:
        if self._state is not State.OPEN or self.reply_tag is None:
            return False
        self.deliveries.deliver_reply(publish, self.reply_tag)
        return True

    def disconnect_consumer(self, consumer_id: int) -> None:
        tag = self.deliveries.disconnected(consumer_id)
        if self.output.in_large:
            # the client has a part of a message that has no end
            self.link.kill("the body of a message cannot be read")
        elif tag is not None and self.link.peer.capabilities.get("consumer_cancel_notify") is True:
            self._send_open(BasicCancel(tag, no_wait=True))

    def forced_delivery(self, consumer_id: int, sequence: int) -> None:
        """Do nothing: no client of this protocol asks for it."""

    def producer_credits(self, address: str, credit_bytes: int) -> None:
        """Do nothing: clients of this protocol have no credits."""

    def producer_credits_refused(self, address: str, credit_bytes: int) -> None:
        """Do nothing: clients of this protocol have no credits."""

    def kill_connection(self, reason: str) -> None:
        self.link.kill(reason)

    def internal_error(self, bug: Exception) -> None:
        self.link.internal_error(bug)

    def operation_failed(self, error: BrokerError) -> None:
        """A settlement failed."""
        log.info(
            "request failed",
            extra={"peer": self.link.scope.remote_address, "channel": self.number, "error": str(error)},
        )

    def writable(self) -> bool:
        return self.link.writable()

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.OPEN, Event.FAIL): To(State.FAILED, _drop_content),
            (State.OPEN, Event.REFUSE): To(State.CLOSING, _send_close),
            (State.FAILED, Event.REFUSE): To(State.CLOSING, _send_close),
            (State.FAILED, Event.CLOSE): To(State.CLOSED, _free),
            (State.FAILED, Event.LOSE): To(State.CLOSED, _end_session),
            (State.OPEN, Event.CLOSE): To(State.CLOSED, _free),
            (State.OPEN, Event.LOSE): To(State.CLOSED, _end_session),
            (State.CLOSING, Event.CLOSE): To(State.CLOSED, _free),
            (State.CLOSING, Event.LOSE): To(State.CLOSED, _end_session),
            (State.CLOSED, Event.LOSE): IGNORED,
            (State.OPEN, Event.DETACH): To(State.DETACHED, _detach),
            (State.RESUMING, Event.DETACH): To(State.DETACHED, _detach),
            (State.DETACHED, Event.RESUME): To(State.RESUMING, _resume),
            (State.RESUMING, Event.READY): To(State.OPEN, _ready),
            (State.DETACHED, Event.LOSE): To(State.CLOSED, _end_detached),
            (State.RESUMING, Event.LOSE): To(State.CLOSED, _end_session),
        },
        otherwise=dict.fromkeys(Event, ILLEGAL),
    )


def _leaves_unknown(error: BrokerError) -> bool:
    """Whether it is unknown what became of the request that has failed with this error."""
    return isinstance(error, StoreError) and not isinstance(error, DiskFull)


def shortened(text: str) -> str:
    """A text that fits into a short string."""
    raw = text.encode("utf-8", "replace")
    return raw[:255].decode("utf-8", "ignore")
