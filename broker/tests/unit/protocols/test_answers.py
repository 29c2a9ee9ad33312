"""An internal error in the work for a client after a sync: it costs that client its connection
and sessions, and the others their answers not a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from support.core import Client, CoreNode
from support.lost_fence import replace_node
from understudy.errors import BrokerError, StoreError
from understudy.protocols.core import answers
from understudy.protocols.core.channel import SessionChannel
from understudy.protocols.core.connection import CoreConnection
from understudy.protocols.core.session import CoreSession
from understudy.routing.queues.queue import Queue
from understudy.store.messages.reference import Part
from understudy.wire.core import packets

OTHER = "0" * 35 + "1"


class Bug(Exception):
    """An error of our own code."""


def breaks(*_: object, **__: object) -> None:
    raise Bug("of ours")


def break_answers_of(victim: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the encoding of NULL_RESPONSE packets fail for one client."""
    handler = victim.handler.sessions[10]
    handler.version = -7  # no other client has it

    whole = answers.encode_null_response
    answer_run = CoreSession.answer_run

    def encode(channel_id: int, correlation_id: int, version: int) -> bytes:
        if handler.version == version:
            raise Bug("of ours")
        return whole(channel_id, correlation_id, version)

    def answer(session: CoreSession, correlation_ids: Sequence[int], error: BrokerError | None = None) -> None:
        if session is handler:
            raise Bug("of ours")
        answer_run(session, correlation_ids, error)

    monkeypatch.setattr(answers, "encode_null_response", encode)
    monkeypatch.setattr(CoreSession, "answer_run", answer)


def two_clients(node: CoreNode, window: int = -1) -> tuple[Client, Client]:
    victim, other = node.client("10.0.0.1:1"), node.client("10.0.0.2:2")
    victim.create_session(window=window)
    other.create_session(OTHER, window=window)
    victim.send(packets.CreateQueueV2("q", "q", None, True, False, False))
    node.sync()
    victim.received()
    return victim, other


def send(client: Client) -> None:
    client.send_message("hello")


def commit(client: Client) -> None:
    client.send(packets.Commit(3))


def create_queue(client: Client) -> None:
    client.send(packets.CreateQueueV2("r", "r", None, True, False, True))


def close(client: Client) -> None:
    client.send(packets.SessionClose())


def assert_dropped(node: CoreNode, victim: Client, caplog: pytest.LogCaptureFixture) -> None:
    assert victim.connection.aborted
    assert "internal error" in caplog.text
    assert "10.0.0.1:1" in str([getattr(each, "peer", "") for each in caplog.records])
    victim.lose()
    assert node.reattachments.detached_count == 0, "its sessions have ended, whatever their window"


@pytest.mark.parametrize("window", [-1, 1 << 20])
@pytest.mark.parametrize("request_of", [send, create_queue, close])
def test_an_internal_error_in_a_response_ends_the_connection(
    request_of: Callable[[Client], None], window: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = CoreNode(automatic=False)
    victim, other = two_clients(node, window)
    break_answers_of(victim, monkeypatch)
    send(other)
    request_of(victim)
    send(other)
    with caplog.at_level(logging.ERROR):
        node.sync()
    assert [type(each) for each in other.received()] == [packets.NullResponse] * 2
    assert not other.connection.aborted
    assert_dropped(node, victim, caplog)


@pytest.mark.parametrize(
    "request_packet",
    [
        packets.QueueQuery("q"),
        packets.BindingQuery("q"),
        packets.CreateConsumer(0, "q", None, 0, requires_response=True),
        packets.SessionStop(),
        packets.AddMetadataV2("key", "value", True),
        packets.DeleteQueue("missing"),
        packets.XaGetTimeout(),
    ],
    ids=lambda packet: type(packet).__name__,
)
@pytest.mark.parametrize("window", [-1, 0, 1 << 20])
def test_an_answer_comes_after_those_of_earlier_sends(request_packet: packets.Packet, window: int) -> None:
    """The stock client loses an answer that another response of the channel follows at once, and waits for its call
    timeout (found with JmsProducerTest of the reference).
    """
    node = CoreNode(automatic=False)
    _, other = two_clients(node, window)
    for number in range(3):
        other.send_message(f"m{number}")
    other.send(request_packet)
    assert other.received() == []
    node.sync()
    responses = [each for each in other.received() if not isinstance(each, packets.PacketsConfirmed)]
    assert [type(each) for each in responses[:3]] == [packets.NullResponse] * 3
    assert len(responses) == 4
    other.send(request_packet)
    again = [each for each in other.received() if not isinstance(each, packets.PacketsConfirmed)]
    assert len(again) == 1, "at once if nothing waits"


def test_a_failed_store_ends_the_connection_before_earlier_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier answers never come, because the log does not get any further."""
    node = CoreNode(automatic=False)
    _, other = two_clients(node)
    send(other)

    def fails(*_: object) -> None:
        raise StoreError("the journal is broken")

    monkeypatch.setattr(type(other.handler.sessions[10].session.queues), "query_queue", fails)
    other.send(packets.QueueQuery("q"))
    assert other.connection.aborted


def test_an_internal_error_in_routing_confirms_nothing_to_the_producer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The producer is not told anything, not even by a connection that goes on without its answer."""
    node = CoreNode(automatic=False)
    victim, other = two_clients(node)
    victim.send(packets.CreateQueueV2("broken", "broken", None, True, False, False))
    node.sync()
    victim.received()
    whole = Queue.add

    def add(queue: Queue, part: Part) -> None:
        if queue.name == "broken":
            raise Bug("of ours")
        whole(queue, part)

    monkeypatch.setattr(Queue, "add", add)
    send(other)
    victim.send_message("hello", address="broken")
    with caplog.at_level(logging.ERROR):
        node.sync()
    assert [type(each) for each in other.received()] == [packets.NullResponse]
    assert victim.received() == []
    assert_dropped(node, victim, caplog)


@pytest.mark.parametrize("method", [(SessionChannel, "_confirm"), (CoreConnection, "_reattached")])
def test_an_internal_error_in_a_packet_of_the_channel_ends_the_connection(
    method: tuple[type, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = CoreNode(automatic=False)
    victim, other = two_clients(node, 1 << 20)
    monkeypatch.setattr(*method, breaks)
    if method[1] == "_confirm":
        send(victim)
        victim.handler.check()
    else:
        send(victim)
        victim.lose()
        victim = node.client("10.0.0.1:1")
        victim.reattach()
    send(other)
    with caplog.at_level(logging.ERROR):
        node.sync()
    assert [type(each) for each in other.received()] == [packets.NullResponse]
    assert_dropped(node, victim, caplog)


def test_a_session_without_a_connection_ends(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    node = CoreNode(automatic=False)
    victim, other = two_clients(node, 1 << 20)
    break_answers_of(victim, monkeypatch)
    send(victim)
    victim.lose()
    assert node.reattachments.detached_count == 1
    send(other)
    node.sync()
    assert [type(each) for each in other.received()] == [packets.NullResponse]
    assert_dropped(node, victim, caplog)


@pytest.mark.parametrize(
    ("request_packet", "answer"),
    [
        (packets.QueueQuery("missing"), packets.QueueQueryResponseV3),
        (packets.BindingQuery("missing"), packets.BindingQueryResponseV5),
        (packets.CreateConsumer(0, "missing", None, 0, requires_response=True), packets.ExceptionResponse),
        (packets.CreateConsumer(0, "missing", None, 0, requires_response=False), None),
        (packets.DeleteQueue("missing"), packets.ExceptionResponse),
        (packets.CreateQueueV2("q", "q", None, True, False, True), packets.ExceptionResponse),
    ],
)
def test_a_node_that_was_replaced_denies_nothing(
    request_packet: packets.Packet, answer: type[packets.Packet] | None
) -> None:
    """The node that has taken over may have got the queue meanwhile: the client asks it."""
    for replaced in (False, True):
        node = CoreNode()
        _, client = two_clients(node)
        if replaced:
            replace_node(node.world.office)
        client.send(request_packet)
        assert client.connection.aborted is replaced
        expected = [] if replaced or answer is None else [answer]
        assert [type(each) for each in client.received()] == expected


def test_a_node_that_was_replaced_still_describes_the_queues_that_it_has() -> None:
    node = CoreNode()
    _, client = two_clients(node)
    replace_node(node.world.office)
    assert client.ask(packets.QueueQuery("q"), packets.QueueQueryResponseV3).exists
