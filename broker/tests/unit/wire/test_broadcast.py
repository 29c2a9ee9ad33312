"""The datagram of brokers: its bytes, its limits, and the header of a channel."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded, ProtocolError
from understudy.limits import BROADCAST_BYTES_MAX, BROADCAST_CONNECTORS_MAX, BROADCAST_NAME_UNITS_MAX
from understudy.wire.core.broadcast import Broadcast, from_channel, is_usable, to_channel
from understudy.wire.core.transport import TransportConfiguration

CONNECTOR = TransportConfiguration("core", parameters={"host": "a", "port": "5"})


def utf16(text: str) -> bytes:
    return len(text).to_bytes(4) + text.encode("utf-16-be")


def test_the_bytes_are_those_of_artemis() -> None:
    """artemis-ha s. 7.1: node id, broadcaster id, count, then name, factory and typed parameters of each connector.

    The factory is longer than 8 characters, so it has a length in bytes and UTF-8 after the number of characters.
    """
    factory = CONNECTOR.factory.encode()
    expected = (
        utf16("node")
        + utf16("one")
        + (1).to_bytes(4)
        + utf16("core")
        + len(factory).to_bytes(4)
        + len(factory).to_bytes(2)
        + factory
        + (2).to_bytes(4)
        + (utf16("host") + b"\3" + utf16("a") + utf16("port") + b"\3" + utf16("5"))
    )
    assert Broadcast("node", "one", (CONNECTOR,)).encode() == expected


def test_bytes_after_the_connectors_are_ignored() -> None:
    sent = Broadcast("node", "one", (CONNECTOR, CONNECTOR))
    assert Broadcast.decode(sent.encode() + bytes(3000)) == sent, "Java sends its whole buffer"


@pytest.mark.parametrize(
    "sent",
    [
        Broadcast("n" * (BROADCAST_NAME_UNITS_MAX + 1), "b", ()),
        Broadcast("n", "b" * (BROADCAST_NAME_UNITS_MAX + 1), ()),
    ],
)
def test_long_names_are_refused(sent: Broadcast) -> None:
    with pytest.raises(ProtocolError):
        Broadcast.decode(sent.encode())


def test_large_broadcasts_are_not_sent() -> None:
    with pytest.raises(LimitExceeded):
        Broadcast("n", "b", (CONNECTOR,) * (BROADCAST_CONNECTORS_MAX + 1)).encode()
    long = TransportConfiguration("c", parameters={"host": "a" * BROADCAST_BYTES_MAX})
    with pytest.raises(LimitExceeded):
        Broadcast("n", "b", (long,)).encode()


def test_channels_are_separate() -> None:
    plain = Broadcast("n", "b", (CONNECTOR,)).encode()
    carried = to_channel("cluster", plain)
    assert from_channel("cluster", carried) == plain
    assert from_channel("cluster", to_channel("cluster", b"")) == b"", "a request of a client"
    assert from_channel("other", carried) is None
    assert from_channel("cluster", plain) is None
    assert from_channel("cluster", carried[:9]) is None
    with pytest.raises(ProtocolError):
        Broadcast.decode(carried)


@pytest.mark.parametrize(
    ("parameters", "usable"),
    [
        ({"host": "a", "port": "5"}, True),
        ({"host": "a", "port": 5}, True),
        ({"host": "a"}, True),
        ({"serverId": 0}, False),
        ({"host": "", "port": "5"}, False),
        ({"host": 7, "port": "5"}, False),
        ({"host": "a", "port": "0"}, False),
        ({"host": "a", "port": "70000"}, False),
        ({"host": "a", "port": True}, False),
    ],
)
def test_only_a_host_and_a_port_can_be_dialled(parameters: dict[str, bool | int | str], usable: bool) -> None:
    assert is_usable(TransportConfiguration("c", parameters=parameters)) is usable
