"""Reading back: neighbours in one read, within the limits, and only the record that was asked for."""

from __future__ import annotations

from understudy.message import Message
from understudy.store.messages.read_ahead import RunReader
from understudy.store.messages.reference import Location, pack_location, unpack_location


class Source:
    """Messages back to back in two segments, with a gap after every tenth."""

    def __init__(self, count: int, body_bytes: int = 100, gap_bytes: int = 50) -> None:
        self.data = {1: bytearray(), 2: bytearray()}
        self.places: list[Location] = []
        self.fetched: list[int] = []
        for number in range(count):
            segment = 1 if number < count // 2 else 2
            encoded = Message(f"{number:0{body_bytes}}".encode()).encoded
            self.places.append(pack_location(segment, len(self.data[segment]), len(encoded)))
            self.data[segment] += encoded
            if number % 10 == 9:
                self.data[segment] += bytes(gap_bytes)

    def fetch(self, number: int, offset: int, length: int) -> bytes:
        self.fetched.append(length)
        return bytes(self.data[number][offset : offset + length])

    def decode(self, location: Location, raw: bytes | memoryview) -> Message:
        assert len(raw) == unpack_location(location)[2]
        return Message.decode(bytes(raw))

    def drain(self, reader: RunReader) -> list[int]:
        return [int(reader.read(place, self.places[n + 1 :]).body) for n, place in enumerate(self.places)]


def test_a_run_is_one_read() -> None:
    source = Source(400)
    reader = RunReader(source.fetch, source.decode)
    assert source.drain(reader) == list(range(400))
    assert reader.runs == 2, "one for each segment"


def test_limits_of_a_run() -> None:
    source = Source(400)
    length = unpack_location(source.places[0])[2]
    assert source.drain(RunReader(source.fetch, source.decode, messages_max=20)) == list(range(400))
    assert len(source.fetched) == 20
    source.fetched.clear()
    assert source.drain(RunReader(source.fetch, source.decode, run_bytes=10 * length + 100)) == list(range(400))
    assert max(source.fetched) <= 10 * length + 100
    source.fetched.clear()
    assert source.drain(RunReader(source.fetch, source.decode, run_bytes=1)) == list(range(400))
    assert set(source.fetched) == {length}, "a record larger than the limit is read for itself"


def test_what_lies_far_apart_or_backwards_or_in_memory_is_not_read_along() -> None:
    source = Source(20, gap_bytes=100_000)
    assert source.drain(RunReader(source.fetch, source.decode)) == list(range(20))
    assert len(source.fetched) == 2
    first, second, *rest = source.places
    for upcoming in ([None, second], [first], [rest[-1]], []):
        source.fetched.clear()
        RunReader(source.fetch, source.decode).read(first, upcoming)
        assert source.fetched == [unpack_location(first)[2]]
