"""A frame that exceeds a limit: that request is answered with an error, and the connection goes on."""

from __future__ import annotations

import random

import pytest

from support.core import NAME, Client, CoreNode, message
from support.oversized import oversized
from understudy.errors import LimitExceeded
from understudy.ids import Xid
from understudy.limits import FRAME_BYTES_MAX, NAME_UNITS_MAX, PROPERTIES_MAX, STRING_UNITS_MAX
from understudy.message import GROUP_ID, Message
from understudy.properties import PropertyValue
from understudy.wire.core import packets
from understudy.wire.core.codec import encode
from understudy.wire.core.codes import ErrorCode

LONG = "x" * (STRING_UNITS_MAX + 1)
LONG_NAME = "a" * (NAME_UNITS_MAX + 1)


def connected(**options: object) -> tuple[CoreNode, Client]:
    node = CoreNode()
    node.world.queue()
    client = node.client()
    client.create_session(window=-1, **options)
    return node, client


def give(client: Client, data: bytes, piece: int = 1 << 20) -> None:
    for start in range(0, len(data), piece):
        client.handler.receive_data(data[start : start + piece])
    client._node.world.turn()


def depth(node: CoreNode) -> int:
    return node.world.office.directory.queues["q"].message_count


def works(client: Client) -> None:
    """The session still takes messages, and so does a new session of the connection."""
    client.send_message("after", 99)
    assert client.received() == [packets.NullResponse(99)]
    client.create_session(name=NAME[:-1] + "9", channel_id=11, window=-1)


def send_of(properties: dict[str, PropertyValue], address: str = "q", *, answer: bool = True) -> packets.SessionSend:
    return packets.SessionSend(Message(b"body", address=address, properties=properties), answer, 7, 1)


SENDS = {
    "text of a property": {"p": LONG},
    "name of a property": {LONG: 1},
    "name of a group": {GROUP_ID: LONG},
    "number of properties": {f"p{number}": number for number in range(PROPERTIES_MAX + 1)},
}


@pytest.mark.parametrize("kind", [*SENDS, "address"])
@pytest.mark.parametrize("version", [129, 133, 136])
def test_a_message_beyond_a_limit_is_refused_alone(kind: str, version: int) -> None:
    _, client = connected()
    client.handler.decoder.version = version
    refused = send_of(SENDS.get(kind, {}), LONG_NAME if kind == "address" else "q")
    give(client, oversized(refused, version=version))
    (answer,) = client.received()
    assert isinstance(answer, packets.ExceptionResponse)
    assert answer.error_code == ErrorCode.ILLEGAL_STATE
    assert answer.correlation_id == (7 if version >= 130 else None)
    assert "limit" in (answer.message or "")
    client.handler.decoder.version = 136
    works(client)


def test_messages_around_a_refused_one_are_taken_in_order() -> None:
    node, client = connected()
    frames = [oversized(packets.SessionSend(message(str(number)), True, number, 1)) for number in (1, 2, 3, 4)]
    give(client, b"".join((*frames[:2], oversized(send_of(SENDS["number of properties"])), *frames[2:])))
    answers = [(type(each).__name__, each.correlation_id) for each in client.received()]  # type: ignore[attr-defined]
    assert answers == [
        ("NullResponse", 1),
        ("NullResponse", 2),
        ("ExceptionResponse", 7),
        ("NullResponse", 3),
        ("NullResponse", 4),
    ]
    assert depth(node) == 4


@pytest.mark.parametrize("answer", [True, False])
def test_a_transaction_with_a_refused_message_cannot_be_committed(answer: bool) -> None:
    node, client = connected(auto_commit_sends=False, auto_commit_acks=False)
    client.send(packets.SessionSend(message("first"), False, 0, 1))
    give(client, oversized(send_of(SENDS["text of a property"], answer=answer)))
    client.send(packets.SessionSend(message("last"), False, 0, 1))
    assert len(client.received()) == answer
    refused = client.ask(packets.Commit(-2), packets.ExceptionResponse)
    assert refused.error_code == ErrorCode.ILLEGAL_STATE, "the reason, so that a client does not try it again"
    assert "limit" in (refused.message or "")
    assert client.ask(packets.Rollback(False), packets.NullResponse)
    assert depth(node) == 0
    client.send(packets.SessionSend(message("next"), False, 0, 1))
    assert client.ask(packets.Commit(-3), packets.NullResponse)
    assert depth(node) == 1


def test_a_message_without_an_answer_is_refused_without_one() -> None:
    _, client = connected()
    give(client, oversized(send_of(SENDS["text of a property"], answer=False)))
    assert client.received() == []
    works(client)


@pytest.mark.parametrize(
    "packet",
    [
        packets.CreateConsumer(0, "q", LONG, False, True, 0),
        packets.CreateConsumer(0, LONG_NAME, None, False, True, 0),
        packets.CreateQueueV2("q", "new", LONG),
        packets.CreateQueueV2(LONG_NAME, "new"),
        packets.CreateAddress(LONG_NAME, (1,)),
        packets.CreateSharedQueueV2("q", LONG_NAME),
        packets.QueueQuery(LONG_NAME),
        packets.BindingQuery(LONG_NAME),
        packets.DeleteQueue(LONG_NAME),
        packets.AddMetadataV2("key", LONG, True),
        packets.UniqueAddMetadata(LONG, "value", True),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_a_request_beyond_a_limit_is_refused_alone(packet: packets.Packet) -> None:
    _, client = connected()
    give(client, oversized(packet))
    (answer,) = client.received()
    assert isinstance(answer, packets.ExceptionResponse)
    assert "limit" in (answer.message or "")
    works(client)


def test_a_request_that_wants_no_answer_gets_none() -> None:
    _, client = connected()
    give(client, oversized(packets.AddMetadataV2("key", LONG, False)))
    give(client, oversized(packets.CreateProducer(1, LONG_NAME)))
    assert client.received() == []
    works(client)


def test_a_branch_id_beyond_a_limit_is_answered_as_xa_requests_are() -> None:
    _, client = connected(xa=True)
    give(client, oversized(packets.XaStart(Xid(1, bytes(65), b"b"))))
    (answer,) = client.received()
    assert isinstance(answer, packets.XaResponse)
    assert answer.error
    works(client)


def test_credits_for_an_address_that_is_too_long_are_granted_so_that_its_message_is_refused() -> None:
    """A client without credits would wait and never learn why."""
    _, client = connected()
    give(client, oversized(packets.ProducerRequestCredits(1000, LONG_NAME)))
    assert client.received() == [packets.ProducerCredits(1000, LONG_NAME)]


def test_a_session_with_a_name_that_is_too_long_is_refused_alone() -> None:
    _, client = connected()
    create = packets.CreateSession(name=LONG, session_channel_id=12, version=136)
    give(client, oversized(create, 1))
    (answer,) = client.received()
    assert isinstance(answer, packets.ExceptionResponse)
    give(client, oversized(packets.ReattachSession(LONG), 1))
    assert client.received() == [packets.ReattachSessionResponse(-1, False)]
    give(client, oversized(packets.CheckForFailover(LONG), 1))
    assert client.received() == [packets.CheckForFailoverReply(False)]
    works(client)


# --- frames above the limit of frames -----------------------------------------------------------------


def test_a_frame_above_the_limit_is_skipped_while_it_arrives() -> None:
    _, client = connected()
    frame = oversized(packets.SessionSend(Message(bytes(FRAME_BYTES_MAX), address="q"), True, 7, 1))
    give(client, frame[:-1])
    assert client.handler.decoder.pending_bytes == 0
    assert client.received() == []
    give(client, frame[-1:])
    (answer,) = client.received()
    assert isinstance(answer, packets.ExceptionResponse)
    assert answer.correlation_id == 7
    assert str(FRAME_BYTES_MAX) in (answer.message or "")
    works(client)


@pytest.mark.parametrize("piece", [1, 7, 16, 17, 18, 1000])
def test_the_way_a_skipped_frame_is_split_makes_no_difference(piece: int) -> None:
    _, client = connected()
    client.handler.decoder.frame_limit_bytes = 2000
    frames = [
        encode(packets.SessionSend(message("one"), True, 1, 1), 10),
        oversized(packets.SessionSend(Message(random.Random(1).randbytes(5000), address="q"), True, 2, 1)),
        oversized(packets.QueueQuery("q" * 1500)),
        oversized(packets.CreateQueueV2("q", "new", "x" * 2000)),
        encode(packets.SessionSend(message("two"), True, 3, 1), 10),
    ]
    give(client, b"".join(frames), piece)
    kinds = [(type(each).__name__, getattr(each, "correlation_id", None)) for each in client.received()]
    assert kinds == [
        ("NullResponse", 1),
        ("ExceptionResponse", 2),
        ("ExceptionResponse", None),
        ("ExceptionResponse", None),
        ("NullResponse", 3),
    ]


def test_a_large_message_with_a_refused_piece_is_answered_at_its_last_piece() -> None:
    node, client = connected()
    client.handler.decoder.frame_limit_bytes = 5000
    header = packets.header_of_message(Message(b"", address="q"))
    for last in (False, True):
        client.send(packets.SessionSendLarge(header))
        client.send(packets.SessionSendContinuation(bytes(1000), True, -1, False, 0, 1))
        piece = packets.SessionSendContinuation(bytes(9000), not last, 10_000 if last else -1, last, 8, 1)
        give(client, oversized(piece))
        if not last:
            assert client.received() == []
            client.send(packets.SessionSendContinuation(b"end", False, 10_003, True, 8, 1))
        (answer,) = client.received()
        assert isinstance(answer, packets.ExceptionResponse)
        assert answer.correlation_id == 8
        assert "limit" in (answer.message or "")
    assert depth(node) == 0
    works(client)


@pytest.mark.parametrize("transacted", [False, True])
def test_a_large_message_with_a_refused_header_is_answered_at_its_last_piece(transacted: bool) -> None:
    node, client = connected(auto_commit_sends=not transacted, auto_commit_acks=not transacted)
    header = packets.header_of_message(Message(b"", address="q", properties=SENDS["number of properties"]))
    client.send(packets.SessionSendLarge(header))
    client.send(packets.SessionSendContinuation(bytes(1000), True, -1, False, 0, 1))
    assert client.received() == []
    client.send(packets.SessionSendContinuation(b"end", False, 1003, not transacted, 8, 1))
    if transacted:
        assert client.received() == []
        refused = client.ask(packets.Commit(-2), packets.ExceptionResponse)
        assert "limit" in (refused.message or "")
    else:
        (answer,) = client.received()
        assert isinstance(answer, packets.ExceptionResponse)
        assert answer.correlation_id == 8
        assert str(PROPERTIES_MAX) in (answer.message or "")
        works(client)
    assert depth(node) == (0 if transacted else 1)


# --- limits that still end the connection --------------------------------------------------------------


def test_before_its_login_a_client_has_no_frame_that_is_skipped() -> None:
    node = CoreNode()
    client = node.client()
    with pytest.raises(LimitExceeded):
        client.handler.receive_data(oversized(send_of(SENDS["text of a property"]))[:13])
    client = node.client()
    with pytest.raises(LimitExceeded):
        client.handler.receive_data(oversized(packets.ReattachSession("n" * 40_000), 1))


def test_a_frame_above_the_limit_for_a_channel_without_a_session_ends_the_connection() -> None:
    _, client = connected()
    frame = (FRAME_BYTES_MAX + 1).to_bytes(4) + b"\x47" + (55).to_bytes(8) + bytes(100)
    with pytest.raises(LimitExceeded):
        client.handler.receive_data(frame)


def test_a_refused_command_is_counted_for_a_reattachment() -> None:
    node = CoreNode()
    node.world.queue()
    client = node.client()
    client.create_session(window=100_000)
    client.send_message("one")
    give(client, oversized(send_of(SENDS["number of properties"])))
    client.send_message("two", 2)
    client.lose()
    again = node.client()
    (answer,) = (each for each in again.reattach() if isinstance(each, packets.ReattachSessionResponse))
    assert answer.last_confirmed_command_id == 2
