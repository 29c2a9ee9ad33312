"""Broadcasts of connectors: any bytes are a broadcast or refused, and the entries are those of a simple model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from understudy.cluster.discovery.entries import Entries, Outcome
from understudy.errors import ProtocolError
from understudy.wire.core.broadcast import Broadcast, from_channel, to_channel
from understudy.wire.core.transport import TransportConfiguration

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS
CONNECTORS = st.builds(
    TransportConfiguration, TEXTS, TEXTS, st.dictionaries(TEXTS | st.sampled_from(["host", "port"]), VALUES, max_size=4)
)
BROADCASTS = st.builds(Broadcast, TEXTS, TEXTS, st.lists(CONNECTORS, max_size=4).map(tuple))


@given(BROADCASTS, st.binary(max_size=20), TEXTS)
def test_a_broadcast_is_read_as_it_was_sent(sent: Broadcast, rest: bytes, channel: str) -> None:
    assert Broadcast.decode(sent.encode() + rest) == sent
    assert from_channel(channel, to_channel(channel, sent.encode())) == sent.encode()
    assert from_channel(channel + "x", to_channel(channel, sent.encode())) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_broadcast_or_refused(data: bytes) -> None:
    entries = Entries("g", 1_000, warn=lambda text, values: None)
    assert isinstance(entries.receive(data, "10.0.0.1", 0), Outcome)
    from_channel("c", data)
    try:
        found = Broadcast.decode(data)
    except ProtocolError:
        return
    assert Broadcast.decode(found.encode()) == found


@given(BROADCASTS, st.integers(0), st.integers(0, 255))
def test_a_damaged_broadcast_never_raises_anything_else(sent: Broadcast, place: int, value: int) -> None:
    data = bytearray(sent.encode())
    data[place % len(data)] = value
    assert isinstance(Entries("g", 1, warn=lambda text, values: None).receive(bytes(data), "", 0), Outcome)


STEPS = st.lists(
    st.tuples(st.integers(0, 700), st.sampled_from("ABC"), st.sampled_from("uv"), st.integers(1, 3)), max_size=30
)


@given(STEPS)
def test_entries_are_those_of_a_model(steps: list[tuple[int, str, str, int]]) -> None:
    """Node id to port and time of the last broadcast; older than the refresh timeout is gone."""
    entries = Entries("g", 1_000, warn=lambda text, values: None)
    model: dict[str, tuple[str, int, int]] = {}
    now_ms = duplicates = 0
    for wait_ms, node_id, unique, port in steps:
        now_ms += wait_ms
        expired = [key for key, (_, _, heard_ms) in model.items() if heard_ms + 1_000 <= now_ms]
        assert entries.expire(now_ms) is bool(expired)
        for key in expired:
            del model[key]
        duplicates += node_id in model and model[node_id][0] != unique
        connector = TransportConfiguration("c", parameters={"host": "h", "port": str(port)})
        entries.receive(Broadcast(node_id, unique, (connector,)).encode(), "10.0.0.1", now_ms)
        model[node_id] = (unique, port, now_ms)
        assert {each.node_id: each.connector.port for each in entries.all()} == {
            key: value[1] for key, value in model.items()
        }
        assert entries.next_expiry_ms() == min(value[2] for value in model.values()) + 1_000
        assert entries.duplicates == duplicates
