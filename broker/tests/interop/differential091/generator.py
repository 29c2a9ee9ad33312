"""Random programs, each from its seed.

Left out are the differences and missing parts that docs/use/amqp091.md names, and events that happen at a moment
of the broker's choice: the lifetime of a message is 0 ms, so that it ends at once, or a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from interop.differential091.runner import EXCHANGES, QUEUES
from interop.differential091.steps import Ask, Burst, CloseConnection, Place, Program, Publish, Settle, Step
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.properties import BasicProperties, encode_properties
from understudy.wire.amqp091.tables import Decimal, Timestamp

_STEPS = 30
_MINUTE_MS = 60_000
_KEYS = ("", "a", "a.b", "a.b.c", "b", "b.a", "a..b", *QUEUES)
_PATTERNS = (*_KEYS, "#", "*", "a.*", "a.#", "*.b", "#.b", "a.#.c", "*.*")
_TYPES = ("direct", "fanout", "topic", "headers")
_SOURCES = (
    *EXCHANGES,
    *EXCHANGES,
    *EXCHANGES,
    "amq.direct",
    "amq.topic",
    "amq.fanout",
    "amq.headers",
    "amq.match",
    "missing",
)
_BINDING_HEADERS: tuple[dict[str, Any], ...] = (
    {},
    {"x-match": "all", "a": 1},
    {"x-match": "any", "a": 1, "b": "two"},
    {"x-match": "all", "a": None},
    {"x-match": "any-with-x", "x-a": 1},
    {"x-match": "all-with-x", "x-a": 1, "a": 1},
    {"a": True, "b": "two"},
    {"x-match": "some"},
)
_HEADERS: tuple[dict[str, Any], ...] = (
    {},
    {"a": 1},
    {"a": 1, "b": "two"},
    {"b": "two", "x-a": 1},
    {"a": True, "b": "two", "c": [1, "x", {"d": None}]},
    {"time": Timestamp(1_700_000_000), "decimal": Decimal(2, 314), "bytes": b"\xff\x00", "float": 1.5},
    {"CC": ["q1", "a.b"]},
    {"CC": ["q0"], "BCC": ["q2", "a"], "a": 1},
    {"BCC": ["q1"]},
    {"CC": "q1"},
    {"CC": [1]},
    {"x-death": "text"},
)
_QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-message-ttl": _MINUTE_MS},
    {"x-max-length": 0},
    {"x-max-length": 2},
    {"x-max-length": 1, "x-overflow": "reject-publish"},
    {"x-max-length": 1, "x-overflow": "drop-head"},
    {"x-max-priority": 5},
    {"x-single-active-consumer": True},
    {"x-expires": _MINUTE_MS},
    {"x-queue-type": "classic"},
)
_ENDING_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-message-ttl": 0},
    {"x-message-ttl": 0, "x-max-length": 1},
)
_EXPIRATIONS = ("60000", "60000", "60000", "soon", "-1")
_REFUSED_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-message-ttl": -1},
    {"x-message-ttl": "0"},
    {"x-expires": 0},
    {"x-max-length": -1},
    {"x-max-length": "many"},
    {"x-overflow": "explode"},
    {"x-overflow": 1},
    {"x-max-priority": -1},
    {"x-max-priority": 256},
    {"x-single-active-consumer": "yes"},
    {"x-dead-letter-routing-key": "a"},
    {"x-dead-letter-exchange": 1},
    {"x-queue-type": "none"},
    {"x-unknown": 1},
)


def program(seed: int) -> Program:
    """The program of a seed; of one in four seeds one whose requests do not wait for answers."""
    generator = _Generator(Random(seed))
    return tuple(generator.bursts() if seed % 4 == 3 else generator.steps())


class _Generator:
    """Makes the steps of one program."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._number = 0
        self._ending = random.random() < 0.35
        """Whether lifetimes may be 0; then there are no consumers, which such a message may miss, and no
        persistent messages, which end when they are on the disk.
        """

    def steps(self) -> list[Step]:
        """All of them: first queues, exchanges and bindings, then anything."""
        steps: list[Step] = [self._declare_queue(queue) for queue in QUEUES[: self._random.randint(2, 4)]]
        steps += [self._declare_exchange(exchange) for exchange in EXCHANGES[: self._random.randint(2, 4)]]
        steps += [self._bind() for _ in range(self._random.randint(1, 4))]
        if self._random.random() < 0.3:
            steps.append(Ask(self._place(), m.TxSelect() if self._random.random() < 0.5 else m.ConfirmSelect()))
        makers: dict[Callable[[], Step], int] = {
            self._publish: 30,
            self._get: 12,
            self._consume: 0 if self._ending else 8,
            self._settle: 22,
            self._bind: 4,
            self._unbind: 3,
            self._bind_exchange: 4,
            self._seldom: 8,
            self._delete: 5,
            self._transact: 4,
            self._declare_any: 5,
        }
        return steps + [make() for make in self._random.choices(list(makers), list(makers.values()), k=_STEPS)]

    def bursts(self) -> list[Step]:
        """Queues and exchanges, then requests of which several are sent at once.

        Left out are dead letters, which RabbitMQ moves in its own time, consumers and returns, which may come before
        or after the answers to other requests.
        """
        self._ending = False
        steps: list[Step] = [self._plain_queue(queue) for queue in QUEUES[:3]]
        steps += [self._declare_exchange(exchange) for exchange in EXCHANGES[:2]]
        steps += [self._bind() for _ in range(3)]
        makers: dict[Callable[[], Ask | Publish], int] = {
            self._unreturned_publish: 40,
            lambda: Ask(self._place(), m.BasicGet(0, self._one(QUEUES[:3]), no_ack=True)): 20,
            lambda: Ask(self._place(), m.QueuePurge(0, self._one(QUEUES[:3]))): 6,
            lambda: Ask(self._place(), m.QueueDeclare(0, self._one(QUEUES[:3]), passive=True)): 10,
            lambda: self._plain_queue(self._one(QUEUES[:3])): 8,
            lambda: Ask(self._place(), m.QueueDelete(0, self._one(QUEUES[:3]), if_empty=self._often(0.3))): 6,
            self._bind: 5,
            self._unbind: 5,
        }
        for _ in range(12):
            made = self._random.choices(list(makers), list(makers.values()), k=self._random.randint(2, 9))
            steps.append(Burst(self._place(), tuple(make() for make in made)))
        return steps

    def _plain_queue(self, queue: str) -> Ask:
        arguments = self._one(({}, {}, {"x-message-ttl": _MINUTE_MS}, {"x-max-length": 2}))
        return Ask(self._place(), m.QueueDeclare(0, queue, durable=self._often(0.5), arguments=arguments))

    def _unreturned_publish(self) -> Publish:
        self._number += 1
        exchange = "" if self._often(0.7) else str(self._one((*EXCHANGES[:2], "amq.fanout")))
        key = self._one(QUEUES[:3]) if not exchange else self._one(_KEYS)
        properties = BasicProperties(delivery_mode=self._one((1, 2)))
        method = m.BasicPublish(0, exchange, key)
        return Publish(self._place(), method, encode_properties(properties), f"m{self._number}".encode())

    def _one(self, values: Any) -> Any:
        return self._random.choice(values)

    def _often(self, share: float) -> bool:
        return self._random.random() < share

    def _place(self) -> Place:
        return Place(int(self._often(0.15)), 1 if self._often(0.7) else 2)

    def _declare_any(self) -> Step:
        return self._declare_queue(self._one(QUEUES)) if self._often(0.6) else self._declare_exchange()

    def _declare_queue(self, queue: str) -> Step:
        arguments: dict[str, Any] = {}
        if self._often(0.6):
            arguments |= self._one(_QUEUE_ARGUMENTS + _ENDING_ARGUMENTS if self._ending else _QUEUE_ARGUMENTS)
        if self._often(0.4):
            arguments["x-dead-letter-exchange"] = self._one(("", *EXCHANGES, "amq.fanout"))
            if self._often(0.5):
                arguments["x-dead-letter-routing-key"] = self._one(_KEYS)
        if self._often(0.06):
            arguments |= self._one(_REFUSED_ARGUMENTS)
        if self._often(0.02):
            queue = "amq.mine"
        return Ask(
            self._place(),
            m.QueueDeclare(
                0,
                queue,
                passive=self._often(0.05),
                durable=self._often(0.5),
                exclusive=self._often(0.12),
                auto_delete=self._often(0.15),
                arguments=arguments,
            ),
        )

    def _declare_exchange(self, exchange: str = "") -> Step:
        arguments = {"alternate-exchange": self._one((*EXCHANGES, "amq.fanout"))} if self._often(0.25) else {}
        if self._often(0.03):
            arguments = {"alternate-exchange": 1}
        name = exchange or self._one((*EXCHANGES, *EXCHANGES, "amq.direct", "amq.mine", ""))
        return Ask(
            self._place(),
            m.ExchangeDeclare(
                0,
                name,
                self._one(_TYPES),
                passive=self._often(0.05),
                durable=self._often(0.5),
                auto_delete=self._often(0.15),
                internal=self._often(0.07),
                arguments=arguments,
            ),
        )

    def _bind(self) -> Ask:
        arguments = self._one(_BINDING_HEADERS) if self._often(0.4) else {}
        queue = self._one((*QUEUES, *QUEUES, ""))
        return Ask(self._place(), m.QueueBind(0, queue, self._source(), self._one(_PATTERNS), arguments=arguments))

    def _unbind(self) -> Ask:
        arguments = self._one(_BINDING_HEADERS) if self._often(0.2) else {}
        return Ask(self._place(), m.QueueUnbind(0, self._one(QUEUES), self._source(), self._one(_PATTERNS), arguments))

    def _source(self) -> str:
        return "" if self._often(0.02) else str(self._one(_SOURCES))

    def _bind_exchange(self) -> Step:
        kind = m.ExchangeBind if self._often(0.75) else m.ExchangeUnbind
        arguments = self._one(_BINDING_HEADERS) if self._often(0.2) else {}
        names = (self._one(EXCHANGES), self._source())
        return Ask(self._place(), kind(0, *names, self._one(_PATTERNS), arguments=arguments))

    def _publish(self) -> Step:
        self._number += 1
        exchange = "" if self._often(0.5) else str(self._one(_SOURCES))
        key = self._one(QUEUES) if not exchange and self._often(0.9) else self._one(_KEYS)
        properties = BasicProperties(
            content_type="text/plain" if self._often(0.3) else None,
            headers=self._one(_HEADERS) if self._often(0.5) else None,
            delivery_mode=self._one((1, 1 if self._ending else 2)) if self._often(0.6) else None,
            priority=self._one((0, 1, 3, 5, 9)) if self._often(0.4) else None,
            correlation_id="c1" if self._often(0.2) else None,
            reply_to="answers" if self._often(0.2) else None,
            expiration=self._one((*_EXPIRATIONS, "0", "0", "0") if self._ending else _EXPIRATIONS)
            if self._often(0.3 if self._ending else 0.1)
            else None,
            message_id="m1" if self._often(0.2) else None,
            timestamp=1_700_000_000 if self._often(0.2) else None,
            type="kind" if self._often(0.1) else None,
            user_id=self._one(("guest", "guest", "other")) if self._often(0.08) else None,
            app_id="app" if self._often(0.1) else None,
        )
        method = m.BasicPublish(0, exchange, key, mandatory=self._often(0.4))
        return Publish(self._place(), method, encode_properties(properties), f"m{self._number}".encode())

    def _get(self) -> Step:
        return Ask(self._place(), m.BasicGet(0, self._one(QUEUES), no_ack=self._often(0.3)))

    def _consume(self) -> Step:
        arguments = {"x-priority": self._one((-1, 1, 2))} if self._often(0.1) else {}
        return Ask(
            self._place(),
            m.BasicConsume(
                0,
                self._one(QUEUES),
                f"c{self._random.randrange(6)}",
                no_local=self._often(0.1),
                no_ack=self._often(0.25),
                exclusive=self._often(0.1),
                arguments=arguments,
            ),
        )

    def _settle(self) -> Step:
        verb = self._one(("ack", "ack", "nack", "nack", "reject"))
        multiple = verb != "reject" and self._often(0.3)
        requeue = verb != "ack" and self._often(0.5)
        return Settle(self._place(), verb, self._random.randrange(8), multiple, requeue)

    def _delete(self) -> Step:
        if self._often(0.3):
            return Ask(self._place(), m.ExchangeDelete(0, self._one(_SOURCES), if_unused=self._often(0.4)))
        return Ask(
            self._place(),
            m.QueueDelete(0, self._one(QUEUES), if_unused=self._often(0.4), if_empty=self._often(0.4)),
        )

    def _transact(self) -> Step:
        return Ask(self._place(), self._one((m.TxSelect, m.TxCommit, m.TxCommit, m.TxRollback))())

    def _seldom(self) -> Step:
        place = self._place()
        if self._often(0.1):
            return CloseConnection(place)
        methods = (
            m.BasicQos(0, self._random.randrange(4), for_channel=self._often(0.3)),
            m.BasicQos(0, self._random.randrange(4)),
            m.QueuePurge(0, self._one(QUEUES)),
            m.BasicCancel(f"c{self._random.randrange(6)}"),
            m.BasicRecover(True),
            m.ConfirmSelect(),
            m.ChannelClose(200, "end"),
            m.BasicAck(self._one((0, 999)), self._often(0.5)),
            m.BasicNack(self._one((0, 999)), self._often(0.5), True),
            m.QueueDeclare(0, self._one((*QUEUES, "missing")), passive=True),
            m.ExchangeDeclare(0, self._one(_SOURCES), "direct", passive=True),
        )
        return Ask(place, self._one(methods))
