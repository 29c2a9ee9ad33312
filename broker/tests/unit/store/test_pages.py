"""Page files: stored messages are readable until released, files are removed, a failing disk loses nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.errors import JournalCorrupt
from understudy.message import Encoding, LargeMessage, Message
from understudy.store.messages import read_back
from understudy.store.messages.columns import PAGE_SEGMENT
from understudy.store.messages.pages import Pages
from understudy.store.messages.reference import unpack_location
from understudy.testing.sim.disk import SimVolume

KIB = 1024


class PagesHarness:
    def __init__(self, epoch: int = 1) -> None:
        self.volume = SimVolume()
        self.pages = Pages(self.volume.disk("a"), "/paging", epoch)
        self.chain = self.pages.chain(0)

    def files(self) -> list[str]:
        return self.volume.disk("a").list("/paging")


def test_nothing_is_made_before_something_is_stored() -> None:
    rig = PagesHarness()
    assert not rig.volume.disk("a").exists("/paging")
    assert rig.chain.store(b"x") is not None
    assert rig.files() == ["page-0000000001-000000000001.dat"]


def test_stored_messages_are_read_from_the_buffer_and_from_the_file() -> None:
    rig = PagesHarness()
    bodies = [bytes([number]) * 10_000 for number in range(40)]
    places = [rig.chain.store(body) for body in bodies]
    assert rig.pages.file_count > 1
    for place, body in zip(places, bodies, strict=True):
        assert place is not None
        assert unpack_location(place)[0] > PAGE_SEGMENT
        assert rig.pages.read(place) == body
    assert rig.pages.size_bytes == 40 * 10_005


def test_a_file_goes_with_the_last_use_of_its_last_record() -> None:
    rig = PagesHarness()
    places = [rig.chain.store(bytes(30 * KIB), 2) for _ in range(9)]
    assert len(rig.files()) == 3
    for place in places[:4]:
        assert place is not None
        rig.pages.release(place)
        rig.pages.release(place)
    assert len(rig.files()) == 2
    for place in places[4:]:
        assert place is not None
        rig.pages.release(place)
        rig.pages.release(place)
    rig.chain.close()
    assert rig.files() == []
    assert rig.pages.file_count == 0


def test_closing_a_chain_keeps_needed_pages() -> None:
    rig = PagesHarness()
    place = rig.chain.store(b"needed")
    assert place is not None
    rig.chain.close()
    assert rig.pages.read(place) == b"needed"
    rig.pages.release(place)
    assert rig.files() == []


def test_leftovers_of_earlier_activations_are_removed_bit_by_bit() -> None:
    volume = SimVolume()
    for epoch in (1, 2):
        chain = Pages(volume.disk("a"), "/paging", epoch).chain(0)
        for _ in range(20):
            chain.store(bytes(40 * KIB))
    later = Pages(volume.disk("b"), "/paging", 3)
    mine = later.chain(0).store(b"mine")
    before = len(volume.disk("b").list("/paging"))
    calls: list[Callable[[], None]] = []
    later.remove_leftovers(lambda delay_ms, call: calls.append(call))
    assert len(volume.disk("b").list("/paging")) == before, "clients come first"
    calls.pop()()
    assert before - 5 < len(volume.disk("b").list("/paging")) < before
    while calls:
        calls.pop()()
    assert volume.disk("b").list("/paging") == ["page-0000000003-000000000001.dat"]
    assert mine is not None
    assert later.read(mine) == b"mine"
    assert Pages(volume.disk("b"), "/nowhere", 3).leftovers() == []


def test_a_full_disk_is_said_and_forgotten() -> None:
    rig = PagesHarness()
    first = rig.chain.store(bytes(65 * KIB))
    rig.volume.capacity_bytes = rig.volume.used_bytes()
    assert rig.chain.store(b"refused") is None
    assert rig.pages.stuck
    assert first is not None
    assert rig.pages.read(first) == bytes(65 * KIB)
    rig.volume.capacity_bytes = 1 << 40
    again = rig.chain.store(b"taken")
    assert again is not None
    assert not rig.pages.stuck
    assert rig.pages.read(again) == b"taken"


def test_a_changed_byte_is_noticed() -> None:
    rig = PagesHarness()
    place = rig.chain.store(b"x" * 70 * KIB)
    assert place is not None
    rig.chain.store(b"written behind it")
    (name,) = rig.files()[:1]
    rig.volume.flip_bit(f"/paging/{name}", 5000, 1)
    with pytest.raises(JournalCorrupt):
        rig.pages.read(place)
    rig.pages.close()


class Foreign(Message):
    """A message of another protocol, whose bytes are those of CORE backwards."""

    __slots__ = ()

    encoding = 5


def _decode_foreign(encoded: bytes) -> Message:
    return Foreign(Message.decode(encoded[::-1]).body)


def test_a_page_has_the_encoding_of_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(read_back.DECODERS, 5, (_decode_foreign, LargeMessage.decode))
    rig = PagesHarness()
    message = Message(b"x", address="q")
    foreign = rig.chain.store(message.encoded[::-1], 1, Foreign.encoding)
    core = rig.chain.store(message.encoded, 1, message.encoding)
    for place, kind, encoding in ((foreign, Foreign, 5), (core, Message, Encoding.CORE)):
        assert place is not None
        raw = rig.pages.read_raw(*unpack_location(place))
        assert rig.pages.check(place, raw)[0] == encoding
        decoded = rig.pages.decode(place, raw)
        assert type(decoded) is kind
        assert bytes(decoded.body) == b"x"


def test_a_page_of_an_unknown_or_changed_encoding_is_damage() -> None:
    rig = PagesHarness()
    place = rig.chain.store(Message(b"x", address="q").encoded, 1, 5)
    assert place is not None
    raw = bytearray(rig.pages.read_raw(*unpack_location(place)))
    with pytest.raises(JournalCorrupt, match="message of encoding 5 cannot be decoded") as caught:
        rig.pages.decode(place, raw)
    assert caught.value.file == "/paging/page-0000000001-000000000001.dat"
    assert raw[4] == 5
    raw[4] = 0
    with pytest.raises(JournalCorrupt, match="paged bytes are damaged"):
        rig.pages.decode(place, raw)
    with pytest.raises(JournalCorrupt, match="paged bytes are damaged"):
        rig.pages.decode(place, raw[:3])
