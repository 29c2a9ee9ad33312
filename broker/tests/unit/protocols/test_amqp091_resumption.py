"""Channels of AMQP 0-9-1 that a client of a session resumes at the same node (ADR 0195)."""

from __future__ import annotations

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared
from support.amqp091_sessions import (
    connected,
    delivery,
    opened,
    refused,
    resume_text,
    resumed,
    started,
    status_of,
)
from understudy import limits
from understudy.protocols.amqp091.deliveries import GENERATION_SHIFT
from understudy.terms import Amqp091Options
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.frames import content_frames
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

FIRST_OF_NEXT = (1 << GENERATION_SHIFT) + 1


def consuming(node: AmqpNode, count: int = 3, prefetch: int = 10) -> AmqpClient:
    """A client of a session that has messages 1 to ``count`` of the queue q."""
    made = started(node)
    declared(made)
    made.ask(m.BasicQos(0, prefetch, for_channel=False), m.BasicQosOk)
    made.ask(m.BasicConsume(0, "q", "tag", arguments={"x-priority": 1}), m.BasicConsumeOk)
    published(node, *range(1, count + 1))
    assert [delivery(each) for each in made.received()] == [(n, False, b"%d" % n) for n in range(1, count + 1)]
    return made


def published(node: AmqpNode, *numbers: int) -> None:
    other = node.channel()
    for number in numbers:
        other.publish("q", b"%d" % number)


def nothing_left(node: AmqpNode) -> bool:
    return bodies(node.channel()) == []


# --- deliveries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", range(4))
def test_exactly_the_deliveries_that_the_client_has_not_seen_come_again(seen: int) -> None:
    node = AmqpNode()
    consuming(node).lose()
    again = connected(node)
    status, came = resumed(again, seen)
    assert came == [(number, True, b"%d" % number) for number in range(seen + 1, 4)]
    assert status["resumed"]
    assert status["deliveries"] == {"unacked": [1, 3], "lost": False}
    again.send(m.BasicAck(0, multiple=True))
    published(node, 4)
    assert delivery(again.received()[0]) == (4, False, b"4")
    again.send(m.BasicAck(4))
    again.lose()
    assert nothing_left(node)


def test_outstanding_deliveries_wait_for_their_client() -> None:
    node = AmqpNode()
    consuming(node).lose()
    assert nothing_left(node)
    published(node, 4)
    other = node.channel()
    other.send(m.BasicConsume(0, "q", "other"))
    assert [each.body for each in other.received()] == [b"", b"4"], "the consumer without a client takes nothing"


def test_the_timeout_returns_deliveries() -> None:
    node = AmqpNode()
    consuming(node).lose()
    node.world.clock.advance(60_000)
    node.world.turn()
    assert bodies(node.channel()) == [b"1", b"2", b"3"]
    assert refused(node, "resume").reply_code == 404


def test_a_session_lives_until_the_tick_of_its_timeout() -> None:
    node = AmqpNode()
    consuming(node).lose()
    node.world.clock.advance(59_999)
    node.world.turn()
    _, came = resumed(connected(node))
    assert len(came) == 3
    node.world.clock.advance(60_000)
    node.world.turn()
    assert nothing_left(node), "the timer has ended with the resumption"


def test_ranges_of_tags_have_gaps_where_deliveries_are_settled() -> None:
    node = AmqpNode()
    first = consuming(node, 6)
    first.send(m.BasicAck(2))
    first.send(m.BasicAck(4))
    first.lose()
    status, _ = resumed(connected(node), 6)
    assert status["deliveries"]["unacked"] == [1, 1, 3, 3, 5, 6]


def test_acknowledgements_may_be_repeated() -> None:
    node = AmqpNode()
    first = consuming(node)
    first.send(m.BasicAck(2))
    first.lose()
    again = connected(node)
    resumed(again, 3)
    for number in (1, 2, 3):
        again.send(m.BasicAck(number))
    again.send(m.BasicNack(3, multiple=True))
    assert again.received() == []
    assert node.services.connections.stale_acknowledgements == 2
    again.send(m.BasicAck(4))
    assert again.only(m.ChannelClose)[0].reply_code == 406
    assert nothing_left(node)


def test_what_the_client_cannot_see_of_basic_get_goes_back() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first)
    published(node, 1, 2)
    for _ in range(2):
        first.send(m.BasicGet(0, "q"))
    first.lose()
    status, came = resumed(connected(node), 1)
    assert (status["deliveries"]["unacked"], came) == ([1, 2], [])
    assert bodies(node.channel()) == [b"2"]


def test_a_large_message_comes_anew() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first)
    first.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    first.connection.outgoing = limits.OUTGOING_BYTES_PAUSE
    large = bytes(500_000)
    node.channel().publish("q", large)
    first.lose()
    again = connected(node)
    _, came = resumed(again)
    (found,) = came or [delivery(each) for each in again.received()]
    assert found[1:] == (True, large)


def test_deliveries_are_sent_again_as_the_socket_takes_them() -> None:
    node = AmqpNode()
    consuming(node).lose()
    published(node, 4)
    again = connected(node)
    again.connection.outgoing = limits.OUTGOING_BYTES_PAUSE
    _, came = resumed(again)
    assert came == []
    again.send(m.BasicAck(2))
    again.connection.outgoing = 0
    again.handler.resume_deliveries()
    node.world.turn()
    assert [delivery(each)[::2] for each in again.received()] == [(1, b"1"), (3, b"3"), (4, b"4")]


def test_a_client_that_is_lost_again_finds_the_same() -> None:
    node = AmqpNode()
    consuming(node).lose()
    again = connected(node)
    resumed(again, 2)
    again.send(m.BasicAck(1))
    again.lose()
    status, came = resumed(connected(node), 2)
    assert status["deliveries"]["unacked"] == [2, 3]
    assert came == [(3, True, b"3")]


# --- consumers and prefetch ----------------------------------------------------------------------


def test_consumers_and_prefetch_are_those_of_before() -> None:
    node = AmqpNode()
    first = consuming(node, 2, prefetch=2)
    first.ask(m.BasicQos(0, 7, for_channel=True), m.BasicQosOk)
    first.lose()
    again = connected(node)
    status, _ = resumed(again, 2)
    assert (status["prefetch"], status["prefetch-global"], status["mode"]) == (2, 7, "none")
    assert status["consumers"] == [
        {
            "tag": "tag",
            "queue": "q",
            "no-ack": False,
            "exclusive": False,
            "arguments": {"x-priority": 1},
            "state": "active",
        }
    ]
    published(node, 3)
    assert again.received() == []
    again.send(m.BasicAck(1))
    assert delivery(again.received()[0]) == (3, False, b"3")


def test_a_consumer_whose_queue_is_gone_is_cancelled() -> None:
    node = AmqpNode()
    consuming(node).lose()
    node.channel().ask(m.QueueDelete(0, "q"), m.QueueDeleteOk)
    again = connected(node)
    status, came = resumed(again)
    (consumer,) = status["consumers"]
    assert (consumer["state"], consumer["reason"], came) == ("cancelled", "the queue is gone", [])
    declared(again)
    again.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    again.lose()
    (consumer,) = resumed(connected(node))[0]["consumers"]
    assert consumer["state"] == "active"


def test_an_exclusive_queue_is_consumed_further() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, exclusive=True)
    first.ask(m.BasicConsume(0, "q", "tag"), m.BasicConsumeOk)
    first.lose()
    published(node, 1)
    again = connected(node)
    again.send(m.ChannelOpen(resume_text()))
    answer, message = again.received()
    assert isinstance(answer.method, m.ChannelOpenOk)
    assert status_of(answer.method)["session"]["queues"] == ["q"]
    assert delivery(message) == (1, False, b"1")
    again.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    assert node.channel().code(m.QueueDeclare(0, "q", passive=True)) == 404


# --- publishes -----------------------------------------------------------------------------------


def confirming(node: AmqpNode) -> AmqpClient:
    made = started(node)
    declared(made)
    made.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    return made


def test_publishes_go_on_after_those_that_were_accepted() -> None:
    node = AmqpNode()
    first = confirming(node)
    for number in range(1, 4):
        first.publish("q", b"%d" % number)
    first.lose()
    again = connected(node)
    status, _ = resumed(again, publishes=5)
    assert status["publishes"] == {"accepted": 3, "returned": [], "rejected": []}
    assert status["mode"] == "confirm"
    again.publish("q", b"4")
    assert again.only(m.BasicAck)[0].delivery_tag == 4
    assert bodies(node.channel()) == [b"1", b"2", b"3", b"4"]


def test_returned_and_rejected_publishes_are_in_the_status() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    first.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    first.publish("q")
    first.publish("missing", mandatory=True)
    first.publish("q")
    first.lose()
    status, _ = resumed(connected(node), publishes=3)
    assert status["publishes"] == {"accepted": 3, "returned": [2], "rejected": [3]}


def test_a_publish_that_has_not_come_whole_is_not_accepted() -> None:
    node = AmqpNode()
    first = confirming(node)
    frames = content_frames(m.BasicPublish(0, "", "q"), encode_properties(BasicProperties()), b"body", 1, 4096)
    first.send_bytes(frames[:-6])
    first.lose()
    again = connected(node)
    assert resumed(again, publishes=1)[0]["publishes"]["accepted"] == 0
    again.send_bytes(frames)
    again.only(m.BasicAck)
    assert bodies(node.channel()) == [b"body"]


def test_publishes_without_confirms_are_counted() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first)
    first.publish("q")
    first.lose()
    assert resumed(connected(node), publishes=2)[0]["publishes"]["accepted"] == 1


@pytest.mark.parametrize(("tag", "publishes"), [(4, 1), (3, 0)])
def test_a_client_that_contradicts_the_broker_is_refused(tag: int, publishes: int) -> None:
    node = AmqpNode()
    first = consuming(node)
    first.publish("missing")
    first.lose()
    again = connected(node)
    again.send(m.ChannelOpen(resume_text(tag, publishes)))
    assert again.only(m.ConnectionClose)[0].reply_code == 406
    assert refused(node, "resume").reply_code == 404, "an error of the client ends its session"


# --- transactions --------------------------------------------------------------------------------


def test_an_open_transaction_goes_on() -> None:
    node = AmqpNode()
    first = consuming(node, 1)
    first.ask(m.TxSelect(), m.TxSelectOk)
    first.publish("q", b"in tx")
    first.send(m.BasicAck(1))
    first.lose()
    again = connected(node)
    status, came = resumed(again, 1, 1)
    assert status["tx"] == {"open": True, "commits": 0, "rolled-back": False}
    assert (status["publishes"]["accepted"], status["deliveries"]["unacked"], came) == (1, [], [])
    again.send(m.TxCommit())
    committed, message = again.received()
    assert isinstance(committed.method, m.TxCommitOk)
    assert delivery(message) == (2, False, b"in tx")


def test_a_commit_without_an_answer_is_decided() -> None:
    node = AmqpNode()
    first = started(node)
    declared(first, durable=True)
    first.ask(m.TxSelect(), m.TxSelectOk)
    first.publish("q", b"once", delivery_mode=2)
    first.send(m.TxCommit())
    first.lose()
    status, _ = resumed(connected(node), publishes=1)
    assert status["tx"] == {"open": False, "commits": 1, "rolled-back": False}


# --- new channels --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "status", "anything"])
def test_a_new_channel_ends_the_kept_one_of_its_number(text: str) -> None:
    node = AmqpNode()
    consuming(node).lose()
    again = connected(node)
    answer = again.ask(m.ChannelOpen(text), m.ChannelOpenOk)
    assert bool(answer.reserved_1) is (text == "status")
    assert bodies(again) == [b"1", b"2", b"3"]


def test_a_channel_that_is_not_kept_is_new() -> None:
    node = AmqpNode()
    consuming(node).lose()
    again = connected(node)
    status = opened(again, resume_text(), 2)
    assert not status["channel"]["resumed"]
    assert status["session"]["channels"] == [1, 2]
    assert status["session"]["generation"] == 0
    assert nothing_left(node), "the kept channel still waits"
    assert [each[0] for each in resumed(again)[1]] == [1, 2, 3]


def test_a_client_that_only_attaches_has_new_channels() -> None:
    node = AmqpNode()
    first = connected(node, "attach")
    first.ask(m.ChannelOpen(), m.ChannelOpenOk)
    declared(first)
    published(node, 1)
    first.send(m.BasicConsume(0, "q", "tag"))
    assert len(first.received()) == 2
    first.lose()
    assert bodies(node.channel()) == [b"1"]
    assert not opened(connected(node), resume_text())["channel"]["resumed"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("resume", 502), ("resume;tag=-1;seq=0", 502), ("resume;tag=1", 502), ("status;", 502), ("statusx", 502)],
)
def test_a_request_that_cannot_be_read_is_refused(text: str, code: int) -> None:
    made = started(AmqpNode())
    made.send(m.ChannelOpen(text), 2)
    assert made.only(m.ConnectionClose)[0].reply_code == code


@pytest.mark.parametrize("text", ["status", resume_text()])
def test_a_status_needs_a_session(text: str) -> None:
    made = AmqpNode().channel()
    made.send(m.ChannelOpen(text), 2)
    assert made.only(m.ConnectionClose)[0].reply_code == 503


def test_another_virtual_host_does_not_have_the_session() -> None:
    node = AmqpNode()
    node.amqp.options = type(node.amqp.options)(amqp091=Amqp091Options(virtual_hosts=("v",)))
    consuming(node).lose()
    other = node.amqp_client(virtual_host="v")
    with pytest.raises(AssertionError, match="NOT_FOUND"):
        other.open(properties={"qpid.session.resume": "01234567-89ab-4def-8123-456789abcdef"})


# --- taking over, end ----------------------------------------------------------------------------


def test_a_half_open_connection_settles_nothing_any_more() -> None:
    node = AmqpNode()
    first = consuming(node)
    again = connected(node)
    assert first.only(m.ConnectionClose)[0].reply_code == 320
    first.send(m.BasicAck(0, multiple=True))
    _, came = resumed(again)
    assert [each[0] for each in came] == [1, 2, 3]
    first.lose()
    again.send(m.BasicAck(0, multiple=True))
    assert nothing_left(node)


def test_keep_session_keeps_channels() -> None:
    node = AmqpNode()
    first = consuming(node)
    first.ask(m.ConnectionClose(201, ""), m.ConnectionCloseOk, 0)
    assert [each[0] for each in resumed(connected(node))[1]] == [1, 2, 3]


def test_a_clean_close_returns_deliveries() -> None:
    node = AmqpNode()
    first = consuming(node)
    first.ask(m.ConnectionClose(200, ""), m.ConnectionCloseOk, 0)
    assert bodies(node.channel()) == [b"1", b"2", b"3"]


def in_transit(node: AmqpNode) -> AmqpClient:
    """A client that is back and whose channel is resumed when a publish of before is on disk."""
    first = connected(node, "start")
    first.send(m.ChannelOpen())
    first.send(m.QueueDeclare(0, "q", durable=True))
    node.sync()
    first.send(m.ConfirmSelect())
    first.received()
    first.publish("q", delivery_mode=2)
    first.lose()
    again = connected(node)
    again.send(m.ChannelOpen(resume_text(0, 1)))
    assert again.received() == []
    return again


def test_the_answer_waits_until_publishes_are_decided() -> None:
    node = AmqpNode(automatic=False)
    again = in_transit(node)
    node.sync()
    assert status_of(again.only(m.ChannelOpenOk)[0])["channel"]["publishes"]["accepted"] == 1


def test_a_frame_before_the_answer_is_refused() -> None:
    node = AmqpNode(automatic=False)
    again = in_transit(node)
    again.publish("q")
    assert again.only(m.ConnectionClose)[0].reply_code == 504
    node.sync()
    assert again.received() == []


def test_a_client_that_is_lost_before_the_answer_resumes_later() -> None:
    node = AmqpNode(automatic=False)
    again = in_transit(node)
    again.lose()
    third = connected(node)
    third.send(m.ChannelOpen(resume_text(0, 1)))
    node.sync()
    assert again.received() == []
    assert status_of(third.only(m.ChannelOpenOk)[0])["channel"]["publishes"]["accepted"] == 1


# --- too much ------------------------------------------------------------------------------------


def test_a_status_that_is_too_long_has_one_range_then_loses_deliveries() -> None:
    node = AmqpNode()
    first = consuming(node, 1_199, prefetch=2_000)
    for tag in range(2, 1_200, 2):
        first.send(m.BasicAck(tag))
    first.lose()
    again = connected(node, frame_max=4096)
    status, _ = resumed(again, 1_199)
    assert status["deliveries"] == {"unacked": [1, 1_199], "lost": False}
    again.send(m.BasicAck(0, multiple=True))
    for number in range(60):
        again.ask(m.BasicConsume(0, "q", f"consumer {number} with a long tag"), m.BasicConsumeOk)
    published(node, 1, 2)
    again.received()
    again.lose()
    again = connected(node, frame_max=4096)
    status, _ = resumed(again)
    assert status["deliveries"] == {"unacked": [], "lost": True}
    assert status["consumers"] == []
    assert status["resumed"]
    assert bodies(again) == [b"1", b"2"]


def test_a_session_keeps_a_limited_state() -> None:
    node = AmqpNode()
    count = limits.AMQP091_SESSION_BYTES_MAX // 24
    consuming(node, count, prefetch=0).lose()
    again = connected(node)
    status, came = resumed(again, count)
    assert status["deliveries"]["lost"]
    assert (status["deliveries"]["unacked"], len(status["consumers"])) == ([], 1)
    assert (came or [delivery(again.received()[0])])[0] == (FIRST_OF_NEXT, True, b"1")
    again.send(m.BasicAck(1))
    assert node.services.connections.stale_acknowledgements == 1
    assert again.handler.channels[1].deliveries.unacknowledged_count == count
    again.send(m.BasicAck(FIRST_OF_NEXT))
    assert again.handler.channels[1].deliveries.unacknowledged_count == count - 1


def test_a_session_keeps_a_limited_number_of_channels() -> None:
    node = AmqpNode()
    first = started(node)
    most = limits.AMQP091_SESSION_BYTES_MAX // 1_024
    for number in range(2, most + 3):
        first.ask(m.ChannelOpen(), m.ChannelOpenOk, number)
    first.lose()
    again = connected(node)
    assert opened(again, resume_text(), most)["channel"]["resumed"]
    assert not opened(again, resume_text(), most + 1)["channel"]["resumed"]


def test_a_loss_rolls_the_open_transaction_back() -> None:
    node = AmqpNode()
    count = limits.AMQP091_SESSION_BYTES_MAX // 24
    first = consuming(node, count, prefetch=0)
    first.ask(m.TxSelect(), m.TxSelectOk)
    first.publish("q", b"in tx")
    first.lose()
    again = connected(node)
    status, _ = resumed(again, count, 1)
    assert status["tx"] == {"open": False, "commits": 0, "rolled-back": True}
    again.received()
    again.send(m.TxCommit())
    closed = again.received()[-1].method
    assert isinstance(closed, m.ChannelClose)
    assert closed.reply_code == 406


def test_after_a_rollback_a_transaction_begins() -> None:
    node = AmqpNode()
    count = limits.AMQP091_SESSION_BYTES_MAX // 24
    first = consuming(node, count, prefetch=0)
    first.ask(m.TxSelect(), m.TxSelectOk)
    first.lose()
    again = connected(node)
    resumed(again, count)
    again.received()
    again.ask(m.TxRollback(), m.TxRollbackOk)
    again.ask(m.TxCommit(), m.TxCommitOk)
