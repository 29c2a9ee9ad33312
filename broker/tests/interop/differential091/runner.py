"""Carries a program out at one broker, and notes everything that the broker sent, step by step.

After each step the runner waits until the broker is at rest: it asks each queue for its numbers and each channel for
an answer, until two rounds in a row bring the same numbers and nothing else. So what a broker does at another moment
of the same step is no difference. Left out are texts of errors, the time in ``x-death``, and names that the broker
chose. The consumers of a step are looked at one by one, as brokers may serve several queues in any order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

from interop.differential091.link import Link, Received
from interop.differential091.steps import Ask, Burst, CloseConnection, Place, Program, Publish, Settle, Step, name_of
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.layout import Method
from understudy.wire.amqp091.properties import decode_properties, with_fields

#: Queues and exchanges that programs declare.
QUEUES = ("q0", "q1", "q2", "q3")
EXCHANGES = ("x0", "x1", "x2", "x3")
_CONTROL = 9
_ROUNDS_MAX = 50
#: A connection may be closed for an earlier request while a channel is opened.
_OPENED_MAX = 3
_LEFT_OUT = frozenset({"reply_text", "delivery_tag", "reserved_1"})
Observation = tuple[str, Any]


@dataclass
class _Channel:
    """State of an open channel."""

    outstanding: list[tuple[int, str, int]] = field(default_factory=list)
    """Step, consumer tag and delivery tag of deliveries to be settled."""
    settled: list[tuple[int, str, int]] = field(default_factory=list)
    """Such deliveries that the open transaction settles."""
    unacknowledged: dict[str, bool] = field(default_factory=dict)
    """Whether the consumer of that tag acknowledges nothing."""
    transacted: bool = False
    published: int = 0
    confirmed: int = 0
    without_ack: bool = False
    """Whether the last basic.get asked for no acknowledgement."""


class Runner:
    """One broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._links: dict[int, Link] = {}
        self._channels: dict[Place, _Channel] = {}
        self._step = 0
        self._news: dict[str, list[Any]] = {}

    def run(self, program: Program) -> list[Observation]:
        """Everything that the broker sent, by step. The queues and exchanges of programs are deleted afterwards."""
        seen: list[Observation] = []
        try:
            for self._step, step in enumerate(program):
                self._news = defaultdict(list)
                self._perform(step)
                numbers = self._rest()
                news = {key: self._news[key] for key in sorted(self._news)}
                if isinstance(step, Burst):
                    # a queue of RabbitMQ answers a declare before publishes that wait there are taken
                    for answer in chain.from_iterable(news.values()):
                        if isinstance(answer, dict) and answer["method"] == m.QueueDeclareOk.name:
                            del answer["message_count"]
                seen.append((f"{self._step}: {name_of(step)}({step!r})", {"news": news, "queues": numbers}))
        finally:
            self._end()
        return seen

    def _end(self) -> None:
        for link in self._links.values():
            link.close()
        link = Link(self._port)
        link.send(_CONTROL, m.ChannelOpen())
        for queue in QUEUES:
            link.send(_CONTROL, m.QueueDelete(0, queue))
        for exchange in EXCHANGES:
            link.send(_CONTROL, m.ExchangeDelete(0, exchange))
        for _ in range(1 + len(QUEUES) + len(EXCHANGES)):
            answer = link.receive().method
            assert not isinstance(answer, m.ChannelClose | m.ConnectionClose), answer
        link.close()

    def _perform(self, step: Step) -> None:
        place = step.place
        if isinstance(step, CloseConnection):
            self._lost(place.connection).close()
            return
        channel = self._channel(place)
        link = self._links[place.connection]
        if isinstance(step, Settle):
            self._settle(link, channel, step)
        elif isinstance(step, Burst):
            for each in step.steps:
                if isinstance(each, Ask):
                    self._note_request(channel, each)
            link.send_all(
                place.channel,
                [
                    (e.method, e.properties, e.body) if isinstance(e, Publish) else (e.method, b"", b"")
                    for e in step.steps
                ],
            )
        elif isinstance(step, Publish):
            channel.published += 1
            link.send(place.channel, step.method, step.properties, step.body)
        else:
            self._note_request(channel, step)
            link.send(place.channel, step.method)
            if isinstance(step.method, m.ChannelClose):
                self._await(place, m.ChannelCloseOk)
                self._channels.pop(place, None)

    def _note_request(self, channel: _Channel, step: Ask) -> None:
        method = step.method
        if isinstance(method, m.BasicConsume):
            channel.unacknowledged.setdefault(method.consumer_tag, method.no_ack)
        elif isinstance(method, m.BasicGet):
            channel.without_ack = method.no_ack
        elif isinstance(method, m.ConfirmSelect):
            channel.published = channel.confirmed = 0
        elif isinstance(method, m.TxSelect):
            channel.transacted = True
        elif isinstance(method, m.TxCommit):
            channel.settled = []
        elif isinstance(method, m.TxRollback):
            channel.outstanding = sorted(channel.outstanding + channel.settled)
            channel.settled = []
        elif isinstance(method, m.BasicRecover):
            channel.outstanding = []

    def _settle(self, link: Link, channel: _Channel, step: Settle) -> None:
        if not channel.outstanding:
            return
        chosen = channel.outstanding[step.choice % len(channel.outstanding)]
        done, tag = [chosen], chosen[2]
        if step.multiple:
            done = [each for each in channel.outstanding if each[0] <= chosen[0]]
            tag = max(each[2] for each in done)
        channel.outstanding = [each for each in channel.outstanding if each not in done]
        if channel.transacted:
            channel.settled += done
        method: Method
        if step.verb == "ack":
            method = m.BasicAck(tag, step.multiple)
        elif step.verb == "nack":
            method = m.BasicNack(tag, step.multiple, step.requeue)
        else:
            method = m.BasicReject(tag, step.requeue)
        link.send(step.place.channel, method)

    def _channel(self, place: Place) -> _Channel:
        for _ in range(_OPENED_MAX):
            if place in self._channels:
                return self._channels[place]
            if place.connection not in self._links:
                self._links[place.connection] = Link(self._port)
            self._channels[place] = _Channel()
            self._links[place.connection].send(place.channel, m.ChannelOpen())
            self._await(place, m.ChannelOpenOk)
        raise ConnectionError(f"the broker at port {self._port} has closed channel {place} {_OPENED_MAX} times")

    def _lost(self, connection: int) -> Link:
        """Forget a connection, which is returned."""
        self._channels = {place: each for place, each in self._channels.items() if place.connection != connection}
        return self._links.pop(connection, None) or Link(self._port)

    def _await(self, place: Place, kind: type[Method]) -> Method | None:
        """The answer of that kind on a channel; None: the channel or its connection was closed. Others are noted."""
        while place in self._channels:
            received = self._links[place.connection].receive()
            if received.channel == place.channel and isinstance(received.method, kind):
                return received.method
            self._note(place.connection, received)
        return None

    def _note(self, connection: int, received: Received) -> None:
        method = received.method
        place = Place(connection, received.channel)
        if isinstance(method, m.ConnectionClose):
            link = self._lost(connection)
            link.send(0, m.ConnectionCloseOk())
            link.drop()
        elif isinstance(method, m.ChannelClose):
            if self._channels.pop(place, None) is None:
                # RabbitMQ 3.10 may close a channel once more for a later request of a burst, and awaits no answer
                return
            self._links[connection].send(received.channel, m.ChannelCloseOk())
        if place.channel == _CONTROL:
            return
        key = f"{connection}.{received.channel}"
        channel = self._channels.get(place)
        if channel is not None:
            if isinstance(method, m.BasicAck | m.BasicNack):
                first = channel.confirmed + 1 if method.multiple else method.delivery_tag
                name = f"{key} {'acks' if isinstance(method, m.BasicAck) else 'nacks'}"
                self._news[name] += range(first, method.delivery_tag + 1)
                channel.confirmed = max(channel.confirmed, method.delivery_tag)
                return
            if isinstance(method, m.BasicDeliver):
                key = f"{key} {method.consumer_tag}"
                if not channel.unacknowledged.get(method.consumer_tag):
                    channel.outstanding.append((self._step, method.consumer_tag, method.delivery_tag))
                    channel.outstanding.sort()
            elif isinstance(method, m.BasicCancel):
                # a notice that comes before or after the answer to the request that has caused it
                key = f"{key} {method.consumer_tag} cancelled"
            elif isinstance(method, m.BasicGetOk) and not channel.without_ack:
                channel.outstanding.append((self._step, "", method.delivery_tag))
                channel.outstanding.sort()
        self._news[key].append(_observed(received))

    def _rest(self) -> dict[str, Any]:
        """Wait until the broker is at rest. Returns the numbers of messages and consumers of each queue."""
        before: tuple[Any, int] | None = None
        for _ in range(_ROUNDS_MAX):
            self._flush()
            numbers = {queue: self._numbers(queue) for queue in QUEUES}
            now = numbers, sum(map(len, self._news.values()))
            if now == before:
                return numbers
            before = now
        raise TimeoutError(f"the broker at port {self._port} was not at rest after {_ROUNDS_MAX} rounds")

    def _flush(self) -> None:
        """Ask every channel for an answer, and note the methods that come before it."""
        waiting = set(self._channels)
        for place in waiting:
            self._links[place.connection].send(place.channel, m.ChannelFlow(True))
        while waiting:
            connection = min(waiting).connection
            received = self._links[connection].receive()
            if isinstance(received.method, m.ChannelFlowOk):
                waiting.remove(Place(connection, received.channel))
            else:
                self._note(connection, received)
                waiting &= self._channels.keys()

    def _numbers(self, queue: str) -> Any:
        """Numbers of a queue, or the code of the refusal, at each connection that is not refused as a stranger."""
        found: Any = 0
        for connection in sorted({0, *self._links}):
            place = Place(connection, _CONTROL)
            self._channel(place)
            self._links[connection].send(_CONTROL, m.QueueDeclare(0, queue, passive=True))
            while place in self._channels:
                received = self._links[connection].receive()
                method = received.method
                if received.channel == _CONTROL and isinstance(method, m.QueueDeclareOk):
                    return method.message_count, method.consumer_count
                self._note(connection, received)
                if received.channel == _CONTROL and isinstance(method, m.ChannelClose):
                    found = method.reply_code
            if found != 405:
                return found
        return found


def _observed(received: Received) -> Any:
    method = received.method
    values: dict[str, Any] = {"method": method.name}
    for each in fields(method):  # type: ignore[arg-type]  # every method is a dataclass
        if each.name not in _LEFT_OUT:
            values[each.name] = _chosen(getattr(method, each.name))
    if method.has_content:
        values |= _properties(received.properties)
        values["body"] = received.body
    return values


def _chosen(value: Any) -> Any:
    """A value, without a name that the broker chose."""
    for prefix in ("amq.gen-", "amq.ctag-"):
        if isinstance(value, str) and value.startswith(prefix):
            return prefix
    return value


def _properties(encoded: bytes) -> dict[str, Any]:
    """The properties: their bytes, unless the broker has added dead letters to them."""
    headers = dict(decode_properties(encoded).headers or {})
    if not isinstance(headers.get("x-death"), list):
        return {"properties": encoded}
    deaths = headers.pop("x-death")
    return {
        "x-death": [{name: value for name, value in each.items() if name != "time"} for each in deaths],
        "headers": headers,
        "properties": with_fields(encoded, fields={"headers": None}),
    }
