"""AMQP 0-9-1: random graphs of exchanges, with circles, lead messages to the queues that a simple model finds."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from support.amqp091 import AmqpNode, bodies, declared
from understudy.wire.amqp091 import methods as m

EXCHANGES = ("d", "f", "t", "h", "e")
TYPES = {"d": "direct", "f": "fanout", "t": "topic", "h": "headers", "e": "direct"}
#: The exchange ``e`` has an alternate exchange.
ALTERNATE = {"e": "f"}
QUEUES = ("q0", "q1", "q2")
KEYS = ("", "a", "a.b", "b.a", "a.b.c")
PATTERNS = ("", "a", "#", "a.#", "*.b", "a.*", "#.a.#", "a.b")
MATCHES: tuple[dict[str, object], ...] = ({}, {"x": 1}, {"x": 1, "y": "2"}, {"x": 1, "y": "2", "x-match": "any"})
HEADERS: tuple[dict[str, object], ...] = ({}, {"x": 1}, {"y": "2"}, {"x": 1, "y": "2"}, {"x": 2})


class Bound(NamedTuple):
    """One binding of the model."""

    source: str
    destination: str
    key: str
    match: int
    """Index in ``MATCHES``."""


def topic_matches(pattern: list[str], words: list[str]) -> bool:
    """The rule of the specification, s. 3.1.3.3, word by word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and topic_matches(pattern[1:], words[1:])


def matches(binding: Bound, key: str, headers: dict[str, object]) -> bool:
    kind = TYPES[binding.source]
    if kind == "fanout":
        return True
    if kind == "direct":
        return binding.key == key
    if kind == "topic":
        return topic_matches(binding.key.split("."), key.split("."))
    arguments = dict(MATCHES[binding.match])
    wanted = arguments.pop("x-match", "all")
    found = [name in headers and headers[name] == value for name, value in arguments.items()]
    return all(found) if wanted == "all" else any(found)


def model(bindings: set[Bound], exchange: str, key: str, headers: dict[str, object]) -> set[str]:
    """The queues of a message: every exchange that can be reached, each once."""
    queues: set[str] = set()
    seen, waiting = {exchange}, [exchange]
    while waiting:
        current = waiting.pop()
        targets = {each.destination for each in bindings if each.source == current and matches(each, key, headers)}
        if not targets and current in ALTERNATE:
            targets = {ALTERNATE[current]}
        for target in targets:
            if target in QUEUES:
                queues.add(target)
            elif target not in seen:
                seen.add(target)
                waiting.append(target)
    return queues


BINDINGS = st.builds(
    Bound,
    st.sampled_from(EXCHANGES),
    st.sampled_from(EXCHANGES + QUEUES),
    st.sampled_from(PATTERNS),
    st.integers(0, len(MATCHES) - 1),
)
PUBLISHES = st.tuples(st.sampled_from(EXCHANGES), st.sampled_from(KEYS), st.sampled_from(HEADERS))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(BINDINGS, max_size=14),
    st.lists(st.integers(0, 13), max_size=4),
    st.lists(PUBLISHES, min_size=1, max_size=6),
)
def test_messages_reach_the_queues_of_the_model_once(
    bindings: list[Bound], removed: list[int], publishes: list[tuple[str, str, dict[str, object]]]
) -> None:
    client = AmqpNode().channel()
    for queue in QUEUES:
        declared(client, queue)
    for name in EXCHANGES:
        arguments: dict[str, object] = {"alternate-exchange": ALTERNATE[name]} if name in ALTERNATE else {}
        client.ask(m.ExchangeDeclare(0, name, TYPES[name], arguments=arguments), m.ExchangeDeclareOk)
    present: set[Bound] = set()
    changes = [(True, each) for each in bindings]
    changes += [(False, bindings[at]) for at in removed if at < len(bindings)]
    for add, each in changes:
        if add:
            present.add(each)
        else:
            present.discard(each)
        arguments = MATCHES[each.match]
        if each.destination in QUEUES:
            if add:
                client.ask(m.QueueBind(0, each.destination, each.source, each.key, arguments=arguments), m.QueueBindOk)
            else:
                client.ask(m.QueueUnbind(0, each.destination, each.source, each.key, arguments), m.QueueUnbindOk)
        elif add:
            client.ask(
                m.ExchangeBind(0, each.destination, each.source, each.key, arguments=arguments), m.ExchangeBindOk
            )
        else:
            client.ask(
                m.ExchangeUnbind(0, each.destination, each.source, each.key, arguments=arguments), m.ExchangeUnbindOk
            )
    expected: dict[str, list[bytes]] = {queue: [] for queue in QUEUES}
    numbers = itertools.count()
    for exchange, key, headers in publishes:
        body = b"%d" % next(numbers)
        client.publish(key, body, exchange, headers=headers)
        for queue in model(present, exchange, key, headers):
            expected[queue].append(body)
    assert {queue: bodies(client, queue) for queue in QUEUES} == expected
