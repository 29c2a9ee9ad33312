"""Frames: lengths, limits, splitting, errors, and the short forms of the busy packets."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, UnsupportedPacket
from understudy.limits import FRAME_BYTES_BEFORE_LOGIN_MAX, FRAME_BYTES_MAX
from understudy.message import Message
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core import packets as p
from understudy.wire.core.codec import (
    AcknowledgeBatch,
    CommitBatch,
    Frame,
    FrameDecoder,
    encode,
    encode_null_response,
    encode_receive,
    encode_send,
)

MESSAGE = Message(b"body", address="q", properties={"a": 1})


@pytest.mark.parametrize("version", [121, 129, 130, 133, 134, 136])
def test_short_forms_are_the_long_ones(version: int) -> None:
    send = p.SessionSend(MESSAGE, True, -7, 3)
    assert encode_send(MESSAGE, 10, True, -7, 3, version) == encode(send, 10, version)
    assert encode_null_response(10, -7, version) == encode(p.NullResponse(-7), 10, version)
    assert encode_receive(MESSAGE, 10, 4, 2) == encode(p.ReceiveMessage(MESSAGE, 4, 2), 10, version)


@pytest.mark.parametrize(
    "packet",
    [
        p.SessionSend(MESSAGE, True, -7, 3),
        p.ReceiveMessage(MESSAGE, 4, 2),
        p.Acknowledge(1, 2, True),
        p.IndividualAcknowledge(1, 2, True),
        p.FlowToken(1, -1),
        p.NullResponse(-5),
        p.Commit(-5),
    ],
)
def test_busy_packets_decode_as_their_layout_says(packet: p.Packet) -> None:
    writer = Writer()
    packet.write_body(writer, 136)
    body = writer.getvalue()
    (frame,) = FrameDecoder("client").receive_data(encode(packet, 10))
    long_form = type(packet).read_body(Reader(body), 136)
    for name in packet.__slots__:
        found, expected = getattr(frame.packet, name), getattr(long_form, name)
        if isinstance(found, Message):
            found, expected = found.encoded, expected.encoded
        assert found == expected
    for size in range(len(body)):
        cut = (size + 9).to_bytes(4) + packet.TYPE.to_bytes(1, signed=True) + bytes(8) + body[:size]
        if size == 0 and isinstance(packet, (p.NullResponse, p.Commit)):
            assert FrameDecoder("client").receive_data(cut)[0].packet == type(packet)(-1)
            continue
        with pytest.raises(RemoteProtocolError, match=type(packet).__name__):
            FrameDecoder("client").receive_data(cut)


def test_versions_of_the_send_trailer() -> None:
    for version, bytes_behind in ((129, 1), (130, 9), (133, 9), (134, 13), (136, 13)):
        raw = encode_send(MESSAGE, 10, True, 5, 6, version)
        assert len(raw) == 13 + len(MESSAGE.encoded) + bytes_behind
        decoder = FrameDecoder()
        decoder.version = version
        packet = decoder.receive_data(raw)[0].packet
        assert isinstance(packet, p.SessionSend)
        assert packet.correlation_id == (5 if version >= 130 else -1)
        assert packet.sender_id == (6 if version >= 134 else -1)


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (-1, RemoteProtocolError),
        (-(2**31), RemoteProtocolError),
        (0, RemoteProtocolError),
        (8, RemoteProtocolError),
        (FRAME_BYTES_BEFORE_LOGIN_MAX - 3, LimitExceeded),
        (0x7FFFFFFF, LimitExceeded),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 4])
def test_length_is_judged_at_its_fourth_byte(length: int, error: type[Exception], step: int) -> None:
    decoder = FrameDecoder("server")
    raw = length.to_bytes(4, signed=True)
    for offset in range(0, 4 - step, step):
        assert decoder.receive_data(raw[offset : offset + step]) == []
    with pytest.raises(error, match="at byte 0") as caught:
        decoder.receive_data(raw[4 - step :])
    assert type(caught.value) is error
    assert decoder.pending_bytes == 0


def test_a_bad_length_after_valid_frames_names_its_offset() -> None:
    ping = encode(p.Ping(1), 0)
    decoder = FrameDecoder("server")
    assert len(decoder.receive_data(ping)) == 1
    with pytest.raises(RemoteProtocolError, match="length 0 at byte 42"):
        decoder.receive_data(ping + bytes(4))


def test_limit_is_raised_after_login() -> None:
    big = encode(p.SessionSendLarge(bytes(FRAME_BYTES_BEFORE_LOGIN_MAX)), 10)
    with pytest.raises(LimitExceeded, match=str(FRAME_BYTES_BEFORE_LOGIN_MAX)):
        FrameDecoder("server").receive_data(big)
    decoder = FrameDecoder("server")
    decoder.frame_limit_bytes = len(big)
    assert decoder.receive_data(big)[0].size_bytes == len(big)
    assert FrameDecoder("client").frame_limit_bytes == FRAME_BYTES_MAX
    assert FrameDecoder("client", 100).frame_limit_bytes == 100


def test_errors_name_packet_and_place_and_stay() -> None:
    decoder = FrameDecoder("client")
    ping = encode(p.Ping(1), 0)
    with pytest.raises(RemoteProtocolError, match=r"DeleteQueue at byte 21 of the stream: .*offset 17") as first:
        decoder.receive_data(ping + bytes.fromhex("0000000d 23 000000000000000a 00000004"))
    with pytest.raises(RemoteProtocolError) as second:
        decoder.receive_data(ping)
    assert second.value is first.value


def test_unknown_types_are_named() -> None:
    with pytest.raises(UnsupportedPacket, match="-16") as caught:
        FrameDecoder("client").receive_data(bytes.fromhex("00000009 f0 0000000000000004"))
    assert caught.value.packet_type == -16


def test_unknown_channels_and_trailing_bytes_are_no_error() -> None:
    (frame,) = FrameDecoder("client").receive_data(bytes.fromhex("0000000c 43 00000000deadbeef 010203"))
    assert frame == Frame(0xDEADBEEF, p.SessionStart(), 16)


@pytest.mark.parametrize("size", range(8))
def test_magic_comes_in_pieces(size: int) -> None:
    raw = b"ARTEMIS" + encode(p.Ping(1), 0)
    decoder = FrameDecoder("server")
    assert decoder.receive_data(raw[:size]) == []
    assert [frame.packet for frame in decoder.receive_data(raw[size:])] == [p.Ping(1)]


def test_magic_is_for_servers_and_only_at_the_start() -> None:
    with pytest.raises(LimitExceeded):
        FrameDecoder("client").receive_data(b"ARTEMIS")
    decoder = FrameDecoder("server")
    assert len(decoder.receive_data(encode(p.Ping(1), 0))) == 1
    with pytest.raises(LimitExceeded):
        decoder.receive_data(b"ARTEMIS")


def test_every_kind_of_buffer() -> None:
    ping = encode(p.Ping(1), 0)
    decoder = FrameDecoder("client")
    for data in (ping, bytearray(ping), memoryview(ping), bytearray(ping[:5]), memoryview(ping[5:])):
        decoder.receive_data(data)
    message = decoder.receive_data(bytearray(encode_receive(MESSAGE, 10, 0, 1)))[0].packet
    assert isinstance(message, p.ReceiveMessage)
    assert type(message.message.encoded) is bytes


def test_small_pieces_of_a_large_frame_cost_their_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    # Goal: no work on the collected bytes per piece. Method: count how often they are looked at.
    looks = []
    decode = FrameDecoder._decode

    def counting(self: FrameDecoder, data: bytes, offset: int) -> list[Frame]:
        looks.append(len(data))
        return decode(self, data, offset)

    monkeypatch.setattr(FrameDecoder, "_decode", counting)
    raw = encode(p.SessionSendLarge(bytes(100_000)), 10) + encode(p.Ping(1), 0)
    decoder = FrameDecoder("client")
    frames = [frame for offset in range(0, len(raw), 7) for frame in decoder.receive_data(raw[offset : offset + 7])]
    assert [type(frame.packet) for frame in frames] == [p.SessionSendLarge, p.Ping]
    assert sum(looks) < 2 * len(raw)


def test_a_value_that_cannot_be_encoded_is_a_local_protocol_error() -> None:
    for packet, channel_id, version in (
        (p.Ping(2**63), 0, 136),
        (p.Ping(1), 2**63, 136),
        (p.DeleteQueue(None), 10, 136),  # type: ignore[arg-type]
        (p.CreateAddress("a", (1, 300)), 10, 136),
        (p.QuorumVote("x", p.FailoverVote(True, "n")), 3, 136),
        (p.QuorumVote(p.PRIMARY_FAILOVER_VOTE, b"raw"), 3, 136),
        (p.QuorumVote(p.BACKUP_VOTE, p.FailoverVote(True, "n")), 3, 136),
    ):
        with pytest.raises(LocalProtocolError):
            encode(packet, channel_id, version)


def test_a_frame_that_was_cut_travels_with_those_that_follow() -> None:
    """One batch, whichever kind of buffer comes, and although its memory is used again."""
    frames = b"".join(encode_send(Message(bytes([number]) * 500, address="a"), 7) for number in range(6))
    for view in (bytes, bytearray, lambda data: memoryview(bytearray(data))):
        decoder = FrameDecoder()
        decoder.groups_sends = True
        found = []
        for piece in (frames[:100], frames[100:101], frames[101:2_000], frames[2_000:]):
            given = view(piece)
            found += decoder.receive_data(given)
            if not isinstance(given, bytes):
                given[:] = bytes(len(given))
        batches = [frame.packet.sends for frame in found]
        assert [sends.count for sends in batches] == [3, 3]
        bodies = [bytes(Message.decode(sends.encoded(row)).body) for sends in batches for row in range(sends.count)]
        assert bodies == [bytes([number]) * 500 for number in range(6)]


def test_a_frame_that_fills_a_read_is_decoded_as_one_with_others_after_it() -> None:
    frame = encode_send(Message(b"body", address="a"), 7)
    lone, several = FrameDecoder(), FrameDecoder()
    for decoder in (lone, several):
        decoder.groups_sends = True
        decoder.receive_data(b"ARTEMIS")
    found = [lone.receive_data(frame) for _ in range(2)]
    for (alone,) in found:
        (first,) = several.receive_data(frame + frame[:20])
        several.receive_data(frame[20:])
        assert alone.channel_id == first.channel_id == 7
        assert alone.size_bytes == first.size_bytes == len(frame)
        assert alone.packet.sends.encoded(0) == first.packet.sends.encoded(0)
    # errors name the byte of the stream
    too_long = (1 << 30).to_bytes(4, "big") + frame[4:]
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(b'ARTEMIS') + 2 * len(frame)} "):
        lone.receive_data(too_long)


def test_input_left_over_is_kept_when_its_memory_is_used_again() -> None:
    frames = b"".join(encode_send(Message(bytes([number]) * 50, address="a"), 7) for number in range(6))
    decoder = FrameDecoder()
    decoder.groups_sends = True
    decoder.turn_cost_max = 2
    shared = bytearray(frames)
    found = decoder.receive_data(memoryview(shared)[:-20])
    shared[:] = bytes(len(shared))
    found += decoder.receive_data(b"")
    found += decoder.receive_data(memoryview(bytearray(frames[-20:])))
    found += decoder.receive_data(b"")
    bodies = [
        bytes(Message.decode(frame.packet.sends.encoded(row)).body)
        for frame in found
        for row in range(frame.packet.sends.count)
    ]
    assert bodies == [bytes([number]) * 50 for number in range(6)]


def test_acknowledgements_that_are_followed_by_commits_come_together() -> None:
    """Only pairs of one consumer of one channel come together; all others come one by one, in their order."""
    commit = encode(p.Commit(), 7, 131)

    def pair(consumer_id: int, message_id: int, channel_id: int = 7) -> bytes:
        return encode(p.Acknowledge(consumer_id, message_id, False), channel_id) + commit

    decoder = FrameDecoder()
    decoder.groups_acknowledges = True
    found = decoder.receive_data(
        pair(1, 10)
        + pair(1, 12)
        + encode(p.Acknowledge(1, 13, True), 7)
        + commit
        + pair(2, 14)
        + encode(p.Acknowledge(1, 15, False), 7)
        + encode(p.Commit(5), 7)
        + pair(1, 16, 8)
        + pair(1, 17)[:20]
    )
    found += decoder.receive_data(pair(1, 17)[20:])
    seen = [
        (each.packet.consumer_id, each.packet.message_ids, each.size_bytes)
        if isinstance(each.packet, CommitBatch)
        else each.packet
        for each in found
    ]
    assert seen == [
        (1, [10, 12], 86),
        p.Acknowledge(1, 13, True),
        p.Commit(),
        (2, [14], 43),
        p.Acknowledge(1, 15, False),
        p.Commit(5),
        p.Acknowledge(1, 16, False),
        p.Commit(),
        (1, [17], 43),
    ]
    decoder.turn_cost_max = 3
    found = decoder.receive_data(b"".join(pair(1, number) for number in range(5)))
    found += decoder.receive_data(b"")
    assert [each.packet.message_ids for each in found] == [[0, 1, 2], [3, 4]]


def test_acknowledgements_of_a_consumer_come_together() -> None:
    """Neighbours of one consumer of one channel that want no response; all others come one by one, in their order."""

    def one(consumer_id: int, message_id: int, answered: bool = False, channel_id: int = 7) -> bytes:
        return encode(p.Acknowledge(consumer_id, message_id, answered), channel_id)

    decoder = FrameDecoder()
    decoder.groups_acknowledges = True
    found = decoder.receive_data(
        b"".join((one(1, 10), one(1, 12), one(1, 13, True), one(1, 14), one(2, 15), one(2, 16), one(2, 17, False, 8)))
        + one(2, 18, False, 8)[:20]
    )
    found += decoder.receive_data(one(2, 18, False, 8)[20:])
    seen = [
        (each.packet.consumer_id, each.packet.message_ids, each.size_bytes)
        if isinstance(each.packet, AcknowledgeBatch)
        else each.packet
        for each in found
    ]
    assert seen == [
        (1, [10, 12], 60),
        p.Acknowledge(1, 13, True),
        p.Acknowledge(1, 14, False),
        (2, [15, 16], 60),
        p.Acknowledge(2, 17, False),
        p.Acknowledge(2, 18, False),
    ]
    decoder.turn_cost_max = 3
    found = decoder.receive_data(b"".join(one(1, number) for number in range(5)))
    found += decoder.receive_data(b"")
    assert [each.packet.message_ids for each in found] == [[0, 1, 2], [3, 4]]


def test_a_long_acknowledgement_comes_alone() -> None:
    """Bytes after its fields are ignored, as in every packet."""
    frame = encode(p.Acknowledge(1, 5, False), 7)
    longer = (len(frame) - 3).to_bytes(4, "big") + frame[4:] + b"x"
    decoder = FrameDecoder()
    decoder.groups_acknowledges = True
    found = decoder.receive_data(longer * 2)
    assert [each.packet for each in found] == [p.Acknowledge(1, 5, False)] * 2
