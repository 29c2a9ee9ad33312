"""Sessions that outlive their connection: nothing lost or repeated, and only for who had them."""

from __future__ import annotations

import pytest

from support.core import NAME, Client, CoreNode
from support.routing import text
from understudy import limits
from understudy.errors import RemoteProtocolError
from understudy.protocols.core import reattachment, resend
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.wire.core import packets
from understudy.wire.core.codec import encode

REFUSED = packets.ReattachSessionResponse(-1, False)
OTHER_NAME = NAME.replace("0", "9")


def bodies(received: list[packets.Packet]) -> list[bytes]:
    return [packet.message.body for packet in received if isinstance(packet, packets.ReceiveMessage)]


def loaded(*names: str) -> tuple[CoreNode, Client]:
    """A client whose consumer was sent these messages; it sent 3 commands."""
    node = CoreNode()
    node.world.queue()
    client = node.client()
    client.create_session()
    client.consume()
    producer = node.world.session()
    for name in names:
        producer.sends.send(text(name))
    node.world.turn()
    return node, client


def test_a_cut_connection_is_replaced_without_loss_or_repetition() -> None:
    node, client = loaded("a", "b")
    assert bodies(client.received()) == [b"a", b"b"]
    client.lose()
    producer = node.world.session()
    producer.sends.send(text("while away"))
    node.world.turn()
    assert node.services.connections.session_count == 1
    again = node.client()
    # the client had received "a" (command 0) only; commands 0 to 2 of it have arrived
    answers = again.reattach(last_received=0)
    assert bodies(answers) == [b"b", b"while away"]
    assert answers[1] == packets.ReattachSessionResponse(2, True)
    (queue,) = node.world.office.queues()
    again.send(packets.Acknowledge(0, max(node.store.survivors(queue)), False))
    assert queue.message_count == 0, "a delivery before the cut can be acknowledged after it"


def test_no_message_is_delivered_to_a_lost_connection() -> None:
    node, client = loaded("a")
    client.lose()
    node.world.session().sends.send(text("b"))
    node.world.turn()
    (queue,) = node.world.office.queues()
    assert queue.delivering_count == 1


def test_the_answer_covers_only_durable_packets() -> None:
    node = CoreNode(automatic=False)
    node.world.queue()
    node.store.sync()
    client = node.client()
    client.create_session()
    client.send_message("a")
    client.lose()
    again = node.client()
    assert again.reattach() == [], "not yet"
    node.sync()
    answers = again.received()
    assert answers == [packets.NullResponse(1), packets.ReattachSessionResponse(0, True)]


def test_a_client_that_notices_the_cut_first_takes_its_session_along() -> None:
    node, client = loaded("a")
    client.received()
    again = node.client()
    assert again.reattach(last_received=0) == [packets.ReattachSessionResponse(2, True)]
    client.send(packets.Acknowledge(0, 1, False))
    (queue,) = node.world.office.queues()
    assert queue.message_count == 1, "the old connection has no say any more"
    client.lose()
    node.world.session().sends.send(text("b"))
    node.world.turn()
    assert bodies(again.received()) == [b"b"]


def test_confirmed_packets_are_not_kept() -> None:
    node, client = loaded("a", "b", "c")
    client.received()
    client.send(packets.PacketsConfirmed(1))
    assert len(client.handler.sessions[10].channel._cache) == 1  # type: ignore[arg-type]
    client.lose()
    again = node.client()
    assert again.reattach(last_received=0) == [REFUSED], "it had confirmed more than it says now"
    assert node.services.connections.session_count == 0
    assert node.core.resend_budget.used_bytes == 0


def test_received_packets_are_confirmed_once_durable() -> None:
    node = CoreNode(automatic=False)
    node.world.queue()
    node.store.sync()
    client = node.client()
    client.create_session(window=1)
    client.send_message("a", 1)
    client.send_message("b", 2)
    assert client.received() == []
    node.sync()
    assert client.received() == [
        packets.NullResponse(1), packets.PacketsConfirmed(0), packets.NullResponse(2), packets.PacketsConfirmed(1),
    ]  # fmt: skip


@pytest.mark.parametrize("window", [-1, 100])
def test_acknowledgements_with_a_commit_each_are_answered_and_confirmed_one_by_one(window: int) -> None:
    node = CoreNode(automatic=False)
    node.world.queue()
    for name in "abcd":
        node.world.session().sends.send(text(name))
    node.sync()
    client = node.client()
    client.create_session(window=window, auto_commit_acks=False)
    client.consume()
    deliveries = [each for each in client.received() if isinstance(each, packets.ReceiveMessage)]
    ids = [each.message.message_id for each in deliveries]
    assert len(ids) == 4
    commit = encode(packets.Commit(), 10, 131)
    pairs = [encode(packets.Acknowledge(0, message_id, False), 10) + commit for message_id in ids]
    client.handler.receive_data(b"".join(pairs[:3]))
    node.world.turn()
    assert client.received() == []
    node.sync()
    answers = [packets.NullResponse(-1)] * 3
    # before them are a consumer, credits and a start
    assert client.received() == (answers if window < 0 else [*answers, packets.PacketsConfirmed(8)])
    client.handler.receive_data(pairs[3])
    node.world.turn()
    node.sync()
    assert client.received() == answers[:1]
    assert node.world.office.queues()[0].message_count == 0


def test_packets_below_the_window_are_confirmed_by_the_periodic_check() -> None:
    _, client = loaded()
    client.received()
    client.handler.check()
    assert client.received() == [packets.PacketsConfirmed(2)]
    client.handler.check()
    assert client.received() == []


def test_requests_answered_by_an_exception_count_as_at_the_client() -> None:
    _, client = loaded()
    client.send_message("nowhere", 5, address="::missing")
    assert client.received_one(packets.ExceptionResponse).correlation_id == 5
    client.handler.check()
    assert client.received() == [packets.PacketsConfirmed(3)]


@pytest.mark.parametrize("window", [-1, 0])
def test_without_a_window_the_session_ends_with_its_connection(window: int) -> None:
    node = CoreNode()
    client = node.client()
    client.create_session(window=window)
    client.lose()
    assert node.services.connections.session_count == 0
    assert node.client().reattach() == [REFUSED]


def test_asking_ends_a_session_without_a_window_whose_loss_was_not_noticed() -> None:
    node = CoreNode()
    node.world.queue()
    client = node.client()
    client.create_session(window=-1)
    client.consume()
    node.world.session().sends.send(text("a"))
    node.world.turn()
    assert node.client().reattach() == [REFUSED]
    (queue,) = node.world.office.queues()
    assert queue.delivering_count == 0
    assert queue.consumers.count == 0


# who may


def test_another_host_gets_the_answer_of_a_name_that_never_was() -> None:
    node, client = loaded("a")
    client.received()
    client.lose()
    thief = node.client("10.0.0.2:5000")
    assert thief.reattach(last_received=-1) == thief.reattach(OTHER_NAME) == [REFUSED]
    assert not thief.handler.sessions
    assert node.client("10.0.0.1:6000").reattach(last_received=0) == [packets.ReattachSessionResponse(2, True)]


def test_another_host_cannot_end_a_session() -> None:
    node, client = loaded()
    node.client("10.0.0.2:5000").reattach()
    assert client.handler.sessions[10].session.state.closed is False


def test_names_that_can_be_guessed_take_no_part() -> None:
    node = CoreNode()
    client = node.client()
    client.create_session("sess-0001")
    assert node.client().reattach("sess-0001") == [REFUSED]
    assert not client.handler.sessions[10].session.state.closed
    client.lose()
    assert node.services.connections.session_count == 0


def test_a_name_that_is_taken_stays_with_the_older_session() -> None:
    node, client = loaded("a")
    client.received()
    copy = node.client("10.0.0.2:5000")
    copy.create_session()
    client.lose()
    assert node.client("10.0.0.2:6000").reattach() == [REFUSED]
    assert node.client().reattach(last_received=0) == [packets.ReattachSessionResponse(2, True)]


def test_names_are_not_disclosed() -> None:
    node, client = loaded()
    client.ask(packets.UniqueAddMetadata("jms-client-id", "x", True), packets.NullResponse)
    other = node.client("10.0.0.2:5000")
    other.create_session(OTHER_NAME)
    refusal = other.ask(packets.UniqueAddMetadata("jms-client-id", "x", True), packets.ExceptionResponse)
    session = client.handler.sessions[10].session
    assert session.state.alias in str(refusal.message)
    assert NAME not in str(refusal.message) + repr(session)


def test_a_host_that_guesses_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reattachment, "REATTACH_GUESSES_OF_HOST_MAX", 3)
    node, client = loaded()
    client.send(packets.Ping(120_000), 0)
    client.received()
    client.lose()
    for _ in range(3):
        node.client().reattach(OTHER_NAME)
    assert node.client().reattach() == [REFUSED], "even when it guesses right"
    node.world.clock.advance(30_000)
    assert node.client().reattach() == [REFUSED]
    node.world.clock.advance(30_000)
    assert node.client().reattach()[-1] == packets.ReattachSessionResponse(2, True)


def test_a_reattached_session_counts_as_a_login() -> None:
    node, client = loaded()
    client.lose()
    again = node.client()
    again.reattach()
    node.world.clock.advance(limits.LOGIN_TIMEOUT_MS + 1)
    again.handler.check()


# ends and bounds


def test_a_session_without_a_reattachment_in_time_ends() -> None:
    node, client = loaded("a")
    client.send(packets.Ping(5_000), 0)
    client.lose()
    node.world.clock.advance(4_000)
    assert node.services.connections.session_count == 1
    node.world.clock.advance(3_000)
    assert node.services.connections.session_count == 0
    (queue,) = node.world.office.queues()
    assert (queue.delivering_count, queue.message_count) == (0, 1)
    assert node.client().reattach() == [REFUSED]


def test_a_client_without_ttl_is_not_waited_for_without_limit() -> None:
    node, client = loaded()
    client.send(packets.Ping(-1), 0)
    client.lose()
    node.world.clock.advance(limits.DETACHED_SESSION_MS_MAX + 2_000)
    assert node.services.connections.session_count == 0


def test_a_session_of_a_connection_that_broke_the_protocol_cannot_be_reattached() -> None:
    node, client = loaded()
    with pytest.raises(RemoteProtocolError):
        client.handler.receive_data(b"\xff" * 64)
    client.lose()
    assert node.services.connections.session_count == 0


def test_temporary_queues_wait_with_the_session_and_come_along() -> None:
    node, client = loaded()
    client.handler.sessions[10].session.queues.create_queue(QueueConfiguration(name="temp", temporary=True))
    client.lose()
    assert node.world.office.directory.find_queue("temp") is not None
    again = node.client()
    again.reattach()
    assert node.world.office.directory.find_queue("temp") is not None
    again.send(packets.Ping(5_000), 0)
    again.lose()
    node.world.clock.advance(10_000)
    assert node.world.office.directory.find_queue("temp") is None


def test_detached_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reattachment, "DETACHED_SESSIONS_OF_HOST_MAX", 1)
    node = CoreNode()
    client = node.client()
    client.create_session()
    client.create_session(OTHER_NAME, 11)
    client.lose()
    assert node.services.connections.session_count == 1


def test_frames_kept_for_a_reattachment_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "RESEND_BYTES_OF_SESSION_MAX", 400)
    node, client = loaded(*(f"message {number}" for number in range(20)))
    received = client.received()
    assert len(bodies(received)) == 20
    assert node.core.resend_budget.used_bytes <= 400
    client.lose()
    assert node.client().reattach(last_received=19)[-1] == packets.ReattachSessionResponse(2, True)
    node, client = loaded(*(f"message {number}" for number in range(20)))
    client.lose()
    assert node.client().reattach(last_received=3) == [REFUSED], "some of it was dropped"


def test_a_stopping_node_keeps_nothing() -> None:
    node, client = loaded("a")
    client.lose()
    node.services.connections.accepting = False
    assert node.client().reattach() == [REFUSED]
    node.reattachments.close()
    assert node.services.connections.session_count == 0


def test_a_close_whose_answer_was_cut_off_is_answered_after_the_reattachment() -> None:
    node = CoreNode(automatic=False)
    client = node.client()
    client.create_session()
    node.world.session().queues.create_queue(QueueConfiguration(name="q"))
    client.send(packets.SessionClose())
    client.lose()
    again = node.client()
    again.reattach()
    node.sync()
    assert packets.NullResponse(-1) in again.received()
    assert node.services.connections.session_count == 0


def test_ids_run_over_the_end_of_their_field() -> None:
    node, client = loaded("a", "b")
    client.received()
    channel = client.handler.sessions[10].channel
    channel._received += 2**31 - 3
    channel._cache._first += 2**31 - 1  # type: ignore[union-attr]
    client.lose()
    again = node.client()
    answers = again.reattach(last_received=2**31 - 1)
    assert bodies(answers) == [b"b"]
    assert answers[-1] == packets.ReattachSessionResponse(2**31 - 1, True)
    again.send(packets.SessionStart())
    again.handler.check()
    assert again.received() == [packets.PacketsConfirmed(-(2**31))]


def test_a_slow_consumer_that_is_ended_while_it_is_away_takes_its_temporary_queues_along() -> None:
    node, client = loaded()
    handler = client.handler.sessions[10]
    handler.session.queues.create_queue(QueueConfiguration(name="temp", temporary=True))
    client.lose()
    handler.kill_connection("slow consumer")
    assert node.services.connections.session_count == 0
    assert node.world.office.directory.find_queue("temp") is None
