"""A client of AMQP 0-9-1 for simulated applications: one connection with one channel.

It is made of the codecs of ``wire.amqp091`` and does what stock clients do: heartbeats, confirms by number, deliveries
with a prefetch. Every loss ends it with an error of ``workload.TRYING_AGAIN_HELPS``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeVar, cast

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConnectionFailed
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import (
    PROTOCOL_HEADER,
    FrameDecoder,
    FrameType,
    content_frames,
    encode_frame,
    method_frame,
)
from understudy.wire.amqp091.layout import Method, decode_method
from understudy.wire.amqp091.properties import BasicProperties, decode_header, decode_properties, encode_properties
from understudy.wire.amqp091.tables import decode_table

M = TypeVar("M", bound=Method)

_CHANNEL: Final = 1
_FRAME_BYTES: Final = 4096
#: Longest time that a connect and its handshake take. Virtual seconds.
_HANDSHAKE_S: Final = 5.0
#: Half intervals of a heartbeat without a byte after which the peer is given up.
_SILENT_MAX: Final = 4
#: Values in the status of a channel.
_STATUS_VALUES_MAX: Final = 1_000_000


@dataclass(slots=True)
class AmqpDelivery:
    """A message that came, with what a ledger needs of it."""

    queue: str
    tag: int
    """Delivery tag."""
    properties: Mapping[str, object]
    body: bytes
    delivery_count: int
    message_id: int = field(default=0, init=False)
    """Id of the message in the store, which clients of this protocol do not learn."""


@dataclass(slots=True)
class AmqpSession:
    """The session that a client asks for, and the answer of the broker (ADR 0195)."""

    properties: Mapping[str, object] = field(default_factory=dict)
    """Client properties that ask for it; none: there is no session."""
    channel: str = ""
    """Out-of-band string of channel.open."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """Status of channel.open-ok."""
    refused_with: int = 0
    """Reply code of the close that has ended the connection; 0: there was none."""


class AmqpClient(asyncio.Protocol):
    """One connection with an open channel, after ``connect``."""

    def __init__(self, queue: str, heartbeat_s: int, session: AmqpSession) -> None:
        """Args:
        queue: Queue of the deliveries.
        heartbeat_s: Interval of heartbeats in seconds.
        session: The session that is asked for.
        """
        self._session = session
        self._queue = queue
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(1 << 20)
        self._awaited: deque[tuple[type[Method], asyncio.Future[Method]]] = deque()
        self._content: list[Any] = []
        self._unconfirmed: dict[int, asyncio.Future[bool]] = {}
        self._next_number = 1
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._deliveries: deque[AmqpDelivery] = deque()
        self._arrived = asyncio.Event()
        self.returned = 0
        """Publishes that came back because no queue got them."""
        self.error: BrokerError | None = None
        """Why the connection is of no use any more; None: it works."""

    @classmethod
    async def connect(
        cls, host: str, port: int, queue: str, heartbeat_s: int, session: AmqpSession | None = None
    ) -> AmqpClient:
        """A connection to a node, in a session or in none. Raises ConnectionFailed."""
        client = cls(queue, heartbeat_s, session or AmqpSession())
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                await client._loop.create_connection(lambda: client, host, port)
                await client._open()
        except (OSError, TimeoutError) as error:
            client.fail(ConnectionFailed(f"no connection to {host}:{port}: {error!r}"))
            raise ConnectionFailed(f"no connection to {host}:{port}: {error!r}") from error
        return client

    async def _open(self) -> None:
        start = self._expect(m.ConnectionStart)
        self._write(PROTOCOL_HEADER)
        await start
        tune = await self._request(
            m.ConnectionStartOk(self._session.properties, "PLAIN", b"\0guest\0guest", "en_US"), m.ConnectionTune, 0
        )
        self._send(m.ConnectionTuneOk(tune.channel_max, _FRAME_BYTES, self._heartbeat_s), 0)
        await self._request(m.ConnectionOpen("/"), m.ConnectionOpenOk, 0)
        self._beat()
        opened = await self.ask(m.ChannelOpen(self._session.channel), m.ChannelOpenOk)
        if opened.reserved_1:
            self._session.status = decode_table(
                opened.reserved_1, 0, len(opened.reserved_1), values_max=_STATUS_VALUES_MAX
            )[0]

    @property
    def closed_with(self) -> int:
        """Reply code with which the broker has closed the channel or the connection; 0: it has not."""
        return self._session.refused_with

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of channel.open-ok."""
        return self._session.status

    # --- the application ---------------------------------------------------------------------------

    async def ask(self, method: Method, kind: type[M]) -> M:
        """Send a request on the channel. Returns its answer. Raises ConnectionFailed."""
        return await self._request(method, kind, _CHANNEL)

    def send(self, method: Method) -> None:
        """Send a method that has no answer. Raises ConnectionFailed."""
        self._send(method, _CHANNEL)

    def publish(self, routing_key: str, properties: Mapping[str, object], body: bytes) -> asyncio.Future[bool]:
        """Publish a durable message. The future is for a channel with confirms: whether the broker has it."""
        encoded = encode_properties(BasicProperties(headers=dict(properties), delivery_mode=2))
        method = m.BasicPublish(0, "", routing_key, mandatory=True)
        confirmed: asyncio.Future[bool] = self._loop.create_future()
        self._write(content_frames(method, encoded, body, _CHANNEL, _FRAME_BYTES))
        self._unconfirmed[self._next_number] = confirmed
        self._next_number += 1
        return confirmed

    def number_from(self, number: int) -> None:
        """Give the next publish this number, on a channel that was resumed."""
        self._next_number = number

    async def confirmation(self) -> None:
        """Wait for the confirm of a publish that has none yet. Raises ConnectionFailed."""
        if self._unconfirmed:
            await asyncio.wait(self._unconfirmed.values(), return_when=asyncio.FIRST_COMPLETED)
        else:
            # one confirm of all was received, and the callbacks of their futures come in the next turn
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    async def receive(self, timeout_s: float) -> AmqpDelivery | None:
        """The next delivery; None: none came in time. Raises ConnectionFailed."""
        if not self._deliveries:
            self._arrived.clear()
            timer = self._loop.call_later(timeout_s, self._arrived.set)
            await self._arrived.wait()
            timer.cancel()
        if self._deliveries:
            return self._deliveries.popleft()
        if self.error is not None:
            raise self.error
        return None

    async def get(self) -> AmqpDelivery | None:
        """The next message of the queue, asked for; None: it is empty. Raises ConnectionFailed."""
        empty = self._expect(m.BasicGetEmpty)
        self._send(m.BasicGet(0, self._queue), _CHANNEL)
        while not empty.done():
            found = await self.receive(0.05)
            if found is not None:
                self._awaited.pop()
                return found
        empty.result()
        return None

    async def close(self) -> None:
        """End the channel and the connection in order. Raises ConnectionFailed."""
        await self.ask(m.ChannelClose(200, ""), m.ChannelCloseOk)
        await self._request(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
        self.fail(ConnectionFailed("the connection was closed"))

    def fail(self, error: BrokerError) -> None:
        """End the connection at once, because of an error."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting: list[asyncio.Future[Any]] = [each for _, each in self._awaited]
        waiting += self._unconfirmed.values()
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                # it may have no reader
                future.exception()
        self._arrived.set()

    # --- requests ----------------------------------------------------------------------------------

    def _expect(self, kind: type[M]) -> asyncio.Future[M]:
        future: asyncio.Future[Method] = self._loop.create_future()
        self._awaited.append((kind, future))
        return cast("asyncio.Future[M]", future)

    async def _request(self, method: Method, kind: type[M], channel: int) -> M:
        answer = self._expect(kind)
        self._send(method, channel)
        return await answer

    def _send(self, method: Method, channel: int) -> None:
        self._write(method_frame(method, channel))

    def _write(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        assert self._transport is not None
        self._transport.write(data)

    def _beat(self) -> None:
        """Send a heartbeat, and give a silent broker up."""
        self._silent += 1
        if self._silent > _SILENT_MAX:
            self.fail(ConnectionFailed("the broker is silent"))
        else:
            self._write(encode_frame(FrameType.HEARTBEAT, 0, b""))
            self._timer = self._loop.call_later(self._heartbeat_s / 2, self._beat)

    # --- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.fail(ConnectionFailed(f"the connection was lost: {exc!r}"))

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._silent = 0
        self._decoder.receive(data)
        while self.error is None and (frame := self._decoder.next()) is not None:
            if frame.type == FrameType.METHOD:
                method = decode_method(frame.payload)
                if method.has_content:
                    self._content = [method]
                else:
                    self._receive(method)
            elif frame.type == FrameType.HEADER:
                size_bytes, encoded = decode_header(frame.payload)
                self._content += [size_bytes, decode_properties(encoded), b""]
            elif frame.type == FrameType.BODY:
                self._content[3] += frame.payload
            if len(self._content) == 4 and len(self._content[3]) == self._content[1]:
                method, _, properties, body = self._content
                self._content = []
                self._receive_content(method, properties, body)

    def _receive_content(self, method: Method, properties: BasicProperties, body: bytes) -> None:
        if isinstance(method, m.BasicReturn):
            self.returned += 1
        elif isinstance(method, m.BasicDeliver | m.BasicGetOk):
            headers, count = properties.headers or {}, 2 if method.redelivered else 1
            self._deliveries.append(AmqpDelivery(self._queue, method.delivery_tag, headers, body, count))
            self._arrived.set()

    def _receive(self, method: Method) -> None:
        if isinstance(method, m.BasicAck | m.BasicNack):
            self._confirm(method.delivery_tag, multiple=method.multiple, taken=isinstance(method, m.BasicAck))
        elif isinstance(method, m.ConnectionClose | m.ChannelClose):
            self._session.refused_with = method.reply_code
            self.fail(ConnectionFailed(f"the broker closed with {method.reply_code}: {method.reply_text}"))
        elif isinstance(method, m.BasicCancel):
            self.fail(ConnectionFailed("the broker ended the consumer"))
        else:
            for entry in self._awaited:
                if isinstance(method, entry[0]):
                    self._awaited.remove(entry)
                    entry[1].set_result(method)
                    if isinstance(method, m.BasicGetEmpty):
                        self._arrived.set()
                    return

    def _confirm(self, number: int, *, multiple: bool, taken: bool) -> None:
        numbers = [each for each in self._unconfirmed if each <= number] if multiple else [number]
        for each in numbers:
            self._unconfirmed.pop(each).set_result(taken)
