"""Properties of packets besides their fields: types, versions, command ids, secrets."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded, RemoteProtocolError
from understudy.message import Message
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.transport import TransportConfiguration

#: Type bytes of artemis-core s. 4, 8 and 9, without -16, whose layout is not known, and those of s. 9.2.
CATALOGUE = {
    *(10, 11, -19, 124, 12, 13, 20, 21, 22, 30, -18, 31, 32, 33, -4, -5, 112, 113),
    *(-11, 34, -12, 36, -13, 35, 45, 46, -7, -14, 49, 50, -8, -10, -15, -22),
    *(-20, -21, 79, 80, 82, 71, 72, 73),
    *(40, 74, 70, 78, 75, 76, 77, 41, 81, 42, 67, 68, 69, 43, 44, 104, 105, 106),
    *(51, 57, 59, 54, 56, 60, 52, 58, 53, 39, 61, 62, 63, 64, 65, 66, 55),
    *(110, 114, 122, -17, 125, 126, 111, 115, 116, 127, -1, -2, -3, -6),
}
OURS = {-120, -100, -101, -102, -103, -104, -105, -106, *range(-117, -109)}


def test_the_catalogue_is_complete_but_for_the_replication_stream_of_artemis() -> None:
    assert set(p.PACKET_TYPES) == CATALOGUE | OURS


def test_all_names_are_exported() -> None:
    assert {packet_type.__name__ for packet_type in p.PACKET_TYPES.values()} <= set(p.__all__)
    assert all(hasattr(p, name) for name in p.__all__)


@pytest.mark.parametrize(
    ("version", "queue", "binding", "up", "down"),
    [
        (121, 46, 50, 110, 110),
        (122, 46, 50, 114, 114),
        (125, 46, 50, 122, 114),
        (126, -7, -8, 122, 114),
        (127, -7, -10, 122, 114),
        (128, -7, -10, 122, 114),
        (129, -14, -15, 122, 114),
        (130, -14, -15, 122, 114),
        (131, -14, -15, -17, 114),
        (134, -14, -15, -17, 114),
        (135, -14, -22, -17, 114),
        (136, -14, -22, -17, 114),
    ],
)
def test_version_chooses_the_answer(version: int, queue: int, binding: int, up: int, down: int) -> None:
    assert p.queue_query_response_type(version) is p.PACKET_TYPES[queue]
    assert p.binding_query_response_type(version) is p.PACKET_TYPES[binding]
    connector = TransportConfiguration("c")
    told = p.topology_packet(p.ClusterTopologyV4(False, "n", 1, connector, None, True, None, None, 136), version)
    assert type(told) is p.PACKET_TYPES[up]
    assert told.primary == connector  # type: ignore[attr-defined]
    gone = p.topology_packet(p.ClusterTopologyV4(True, "n", 1, None, None, False, None, None, 136), version)
    assert type(gone) is p.PACKET_TYPES[down]


def test_command_ids_skip_packets_outside_sessions() -> None:
    uncounted = {10, 11, 124, -19, 13, 22, 30, -18, 31, 32, 33, 104}
    for number, packet_type in p.PACKET_TYPES.items():
        packet = packet_type.__new__(packet_type)
        if number in (105, 106):
            continue
        assert packet.counts_as_command is (number not in uncounted), packet_type
    for packet_type in (p.AddMetadataV2, p.UniqueAddMetadata):
        assert packet_type("k", "v", True).counts_as_command
        assert not packet_type("k", "v", False).counts_as_command


def test_secrets_are_not_shown() -> None:
    for packet in (
        p.CreateSession("s", 10, 136, "u", "hunter2"),
        p.CreateSessionV2("s", 10, 136, "u", "hunter2"),
        p.ClusterConnect("u", "hunter2"),
        p.BackupRegistration("u", "hunter2", False, TransportConfiguration("c")),
    ):
        assert "hunter2" not in repr(packet)


def test_header_of_a_large_message() -> None:
    message = Message(b"body", address="q", properties={"a": 1})
    header = p.header_of_message(message)
    found = p.message_of_header(header)
    assert (found.address, dict(found.properties), found.body) == ("q", {"a": 1}, b"")
    assert p.message_of_header(header, b"body").encoded == message.encoded
    with pytest.raises(RemoteProtocolError):
        p.message_of_header(header[:-1])


def test_optional_groups_may_be_left_out_one_after_the_other() -> None:
    full = p.CreateQueueV2("a", "q", exclusive=True, last_value_key="k", ring_size=5, enabled=True)
    raw = encode(full, 10)
    sizes = set()
    for cut in range(len(raw), 12, -1):
        shorter = (cut - 4).to_bytes(4) + raw[4:cut]
        try:
            packet = FrameDecoder("client").receive_data(shorter)[0].packet
        except RemoteProtocolError:
            continue
        assert isinstance(packet, p.CreateQueueV2)
        sizes.add((packet.exclusive, packet.last_value_key, packet.ring_size, packet.enabled))
    assert sizes == {
        (True, "k", 5, True),
        (True, "k", 5, None),
        (True, "k", None, None),
        (True, None, None, None),
        (None, None, None, None),
    }


def test_bounds_of_fields() -> None:
    for raw in (
        "0000000f 23 000000000000000a 00002002 0000",  # a name of 4097 characters
        "00000015 33 000000000000000b 00000007 00000041 00000000",  # a branch qualifier of 65 bytes
        "0000000d 9a 0000000000000003 00000101",  # a proof of 257 bytes
        "0000000d 3e 000000000000000b 7fffffff",  # a list of transactions
    ):
        with pytest.raises(LimitExceeded):
            FrameDecoder("client").receive_data(bytes.fromhex(raw))
