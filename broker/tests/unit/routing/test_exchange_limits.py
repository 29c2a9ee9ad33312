"""Bindings whose number or form would make each message of an exchange expensive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from support.amqp091 import AmqpNode, bodies, declared
from understudy.limits import TOPIC_WORDS_MAX
from understudy.routing.exchanges.errors import ExchangeMismatch
from understudy.routing.exchanges.exchange import ExchangeBinding, HeadersMatcher, TopicMatcher
from understudy.wire.amqp091 import methods as m

EXCHANGE = "understudy.routing.exchanges.exchange"


def binding(key: str, queue: str = "q") -> ExchangeBinding:
    return ExchangeBinding("x", queue, False, key)


@pytest.mark.parametrize("key", ["." * 255, "a." * 127 + "x", "x." + "." * 253])
def test_every_word_of_the_longest_routing_key_counts(key: str) -> None:
    topic = TopicMatcher()
    patterns = ["#", "#.x", "x.#", ".".join("*" * TOPIC_WORDS_MAX), "#.x.#"]
    for pattern in patterns:
        topic.add(binding(pattern), {})
    words = key.split(".")
    wanted = {"#"}
    wanted |= {"#.x"} if words[-1] == "x" else set()
    wanted |= {"x.#"} if words[0] == "x" else set()
    wanted |= {"#.x.#"} if "x" in words else set()
    wanted |= {patterns[3]} if len(words) == TOPIC_WORDS_MAX else set()
    assert {found.key for found in topic.match(key, {})} == wanted


@pytest.mark.parametrize(
    ("key", "wanted"), [("", {"", "#", "#.#"}), (".", {"#", "#.#", "*.*", "#.", ".#"}), ("a", {"#", "#.#", "*"})]
)
def test_an_empty_routing_key_has_no_words(key: str, wanted: set[str]) -> None:
    """The same patterns match as in RabbitMQ 3.10."""
    topic = TopicMatcher()
    patterns = [binding(pattern) for pattern in ("", "#", "#.#", "*", "*.*", "#.", ".#")]
    for each in patterns:
        topic.add(each, {})
    assert {found.key for found in topic.match(key, {})} == wanted
    for each in patterns:
        topic.remove(each)
    assert not topic.match(key, {})


def test_words_after_a_hash_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message may be compared with each of them at each of its words."""
    monkeypatch.setattr(f"{EXCHANGE}.TOPIC_PLACES_AFTER_HASH_MAX", 4)
    topic = TopicMatcher()
    # the same words are one place, and words before a "#" are none
    for pattern in ("a.b.c.d.e", "a.#.b", "a.#.b.c", "#.d.#", "a.#"):
        topic.add(binding(pattern), {})
    with pytest.raises(ExchangeMismatch, match="more than 4 words after '#'"):
        topic.add(binding("#.e.f"), {})
    assert {found.key for found in topic.match("e.f", {})} == set()
    topic.add(binding("other.#"), {})
    for pattern in ("a.#.b.c", "#.d.#"):
        topic.remove(binding(pattern))
    topic.add(binding("#.e.f"), {})
    assert {found.key for found in topic.match("e.f", {})} == {"#.e.f"}
    with pytest.raises(ExchangeMismatch):
        topic.add(binding("#.g.h"), {})


def test_arguments_of_a_headers_exchange_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{EXCHANGE}.HEADERS_ARGUMENTS_OF_EXCHANGE_MAX", 4)
    headers = HeadersMatcher()
    headers.add(binding("", "1"), {"a": 1, "b": 2, "x-match": "any"})
    headers.add(binding("", "2"), {"a": 1, "b": 2})
    with pytest.raises(ExchangeMismatch, match="more than 4 arguments"):
        headers.add(binding("", "3"), {"a": 1})
    assert [found.destination for found in headers.match("", {"a": 1})] == ["1"]
    headers.remove(binding("", "1"))
    headers.add(binding("", "3"), {"a": 1})
    assert [found.destination for found in headers.match("", {"a": 1})] == ["3"]


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_further_keys_repeat_no_decision_that_is_the_same_for_all_keys(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = AmqpNode()
    client = node.channel()
    declared(client)
    client.ask(m.QueueBind(0, "q", f"amq.{kind}", ""), m.QueueBindOk)
    matcher = node.world.office.routing.exchanges.get(f"amq.{kind}").matcher
    real, keys = matcher.match, []

    def match(key: str, headers: Mapping[str, object]) -> Iterable[ExchangeBinding]:
        keys.append(key)
        return real(key, headers)

    monkeypatch.setattr(matcher, "match", match)
    client.publish("k", exchange=f"amq.{kind}", headers={"CC": [str(number) for number in range(100)]})
    assert keys == ["k"]
    assert len(bodies(client)) == 1
