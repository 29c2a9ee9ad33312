"""Goal: an older store than the one seen, or another one, is refused by name; the one that was used never is."""

from __future__ import annotations

import json

import pytest

from understudy.errors import JournalCorrupt, StoreBehind, StoreError, WrongStore
from understudy.ports import File
from understudy.store.log.segment import segment_name
from understudy.store.seen import Position, SeenPosition, WatchedFollower, check_identity
from understudy.testing.sim.disk import SimDisk, SimVolume

NODE = "0f1e2d3c-4b5a-4697-8897-a6b5c4d3e2f1"
SEEN = Position(NODE, 5, 1_000)


@pytest.fixture
def volume() -> SimVolume:
    return SimVolume()


def write(disk: SimDisk, path: str, text: str) -> None:
    disk.make_directory(path.rpartition("/")[0])
    file = disk.open(path, create=not disk.exists(path))
    file.write(0, (text.encode(),))
    file.close()


def test_nothing_is_refused_before_anything_was_seen(volume: SimVolume) -> None:
    seen = SeenPosition(volume.disk("a"), "/instance")
    seen.check(SEEN)
    seen.check_epoch([], "/store/journal")
    assert seen.read() is None


@pytest.mark.parametrize(
    "found",
    [
        Position(NODE, 4, 1_000),
        Position(NODE, 5, 999),
        # started anew from an older copy, which another node accepted
        Position(NODE, 7, 800),
        Position("another", 5, 1_000),
        Position("", 0, 0),
    ],
)
def test_an_older_store_is_refused_and_both_positions_are_named(volume: SimVolume, found: Position) -> None:
    SeenPosition(volume.disk("a"), "/instance").note(SEEN)
    with pytest.raises(StoreBehind) as caught:
        SeenPosition(volume.disk("a"), "/instance").check(found)
    text = str(caught.value)
    assert f"epoch {found.epoch}, sequence {found.sequence}" in text
    assert "epoch 5, sequence 1000" in text
    assert "understudy accept-store --instance /instance" in text


@pytest.mark.parametrize("found", [SEEN, Position(NODE, 5, 1_001), Position(NODE, 6, 1_000)])
def test_a_store_that_is_not_older_is_accepted(volume: SimVolume, found: Position) -> None:
    SeenPosition(volume.disk("a"), "/instance").note(SEEN)
    SeenPosition(volume.disk("a"), "/instance").check(found)


def test_a_lower_epoch_is_not_recorded_and_can_be_accepted(volume: SimVolume) -> None:
    seen = SeenPosition(volume.disk("a"), "/instance")
    seen.note(SEEN)
    seen.note(Position(NODE, 4, 2_000))
    seen.note(Position(NODE, 5, 10))
    assert SeenPosition(volume.disk("a"), "/instance").read() == SEEN
    older = Position(NODE, 3, 500)
    seen.accept(older)
    seen = SeenPosition(volume.disk("a"), "/instance")
    seen.check(older)
    seen.check_epoch(["segment-000000000001-0000000003.log"], "/store/journal")


def test_missing_epochs_are_noticed_by_the_names_alone(volume: SimVolume) -> None:
    seen = SeenPosition(volume.disk("a"), "/instance")
    seen.note(SEEN)
    with pytest.raises(StoreBehind, match="newest epoch in /store/journal is 4"):
        seen.check_epoch(["segment-000000000009-0000000004.log"], "/store/journal")
    with pytest.raises(StoreBehind, match="is none"):
        seen.check_epoch([], "/store/journal")


@pytest.mark.parametrize(("epochs", "refused"), [((), True), ((4,), True), ((5,), False)])
def test_a_follower_looks_at_the_names_before_it_opens_anything(
    volume: SimVolume, epochs: tuple[int, ...], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = volume.disk("a")
    disk.make_directory("/store")
    for epoch in epochs:
        disk.open(f"/store/{segment_name(9, epoch)}", create=True).close()
    seen = SeenPosition(disk, "/instance")
    seen.note(SEEN)
    follower = WatchedFollower(disk, "/store", seen, syncs=True, id_cache_size=5)
    opened: list[str] = []
    opening = SimDisk.open

    def open_noted(self: SimDisk, path: str, *, create: bool = False, read_only: bool = False) -> File:
        opened.append(path)
        return opening(self, path, create=create, read_only=read_only)

    monkeypatch.setattr(SimDisk, "open", open_noted)
    # the segment is empty, which is damage of another kind
    with pytest.raises(StoreBehind if refused else JournalCorrupt):
        follower.finish(disk)
    assert any(path.startswith("/store/") for path in opened) != refused


def test_a_blank_file_is_none_and_any_other_text_is_refused(volume: SimVolume) -> None:
    seen = SeenPosition(volume.disk("a"), "/instance")
    write(volume.disk("a"), seen.path, "\0" * 256)
    assert seen.read() is None
    for text in ("no json" + " " * 300, json.dumps({"epoch": 1}) + " " * 300, "[]" + " " * 300):
        write(volume.disk("a"), seen.path, text)
        with pytest.raises(StoreError, match="holds no position"):
            seen.read()


def test_a_disk_that_refuses_the_note_is_logged_and_stops_nothing(
    volume: SimVolume, caplog: pytest.LogCaptureFixture
) -> None:
    seen = SeenPosition(volume.disk("a"), "/instance")
    seen.note(SEEN)
    volume.fail_next_sync(2)
    seen.note(Position(NODE, 6, 1_001), sync=True)
    seen.note(Position(NODE, 6, 1_002), sync=True)
    assert caplog.text.count("cannot be noted") == 1


class Identities:
    """A store with its identity, and a note of it."""

    def __init__(self, volume: SimVolume) -> None:
        self.disk = volume.disk("a")
        self.write("/store/store.json", "one")
        self.write("/instance/etc/store-seen.json", "one")

    def write(self, path: str, store_id: str) -> None:
        write(self.disk, path, json.dumps({"store_id": store_id, "cluster": "c", "pair": "p"}))

    def check(self) -> None:
        check_identity(self.disk, "/instance", ("/store/journal", "/store/lock"))


def test_the_store_that_was_noted_is_taken(volume: SimVolume) -> None:
    Identities(volume).check()


def test_without_a_note_any_store_is_taken(volume: SimVolume) -> None:
    identities = Identities(volume)
    identities.disk.remove("/instance/etc/store-seen.json")
    identities.disk.remove("/store/store.json")
    identities.check()


def test_a_store_without_identity_or_with_another_is_refused(volume: SimVolume) -> None:
    identities = Identities(volume)
    identities.write("/store/store.json", "two")
    with pytest.raises(WrongStore, match=r"/store/store\.json names the store two, .* uses the store one"):
        identities.check()
    identities.disk.remove("/store/store.json")
    with pytest.raises(WrongStore, match=r"/store/store\.json is missing, .*is the store mounted"):
        identities.check()
    write(identities.disk, "/store/store.json", "{}")
    with pytest.raises(WrongStore, match="holds no identity"):
        identities.check()


def test_every_directory_is_looked_at(volume: SimVolume) -> None:
    identities = Identities(volume)
    with pytest.raises(WrongStore, match=r"/elsewhere/store\.json is missing"):
        check_identity(identities.disk, "/instance", ("/store/journal", "/elsewhere/lock"))


# --- a whole instance that was put back: the notes of the node come back with its store ------------------------------

KEPT = (5, 1_000)
KEEPER = "witness 10.0.0.3:61619"


def seen_of(volume: SimVolume) -> SeenPosition:
    return SeenPosition(volume.disk("a"), "/instance")


@pytest.mark.parametrize("found", [Position(NODE, 5, 999), Position(NODE, 4, 1_000), Position("", 0, 0)])
def test_a_log_that_ends_before_the_position_of_the_lock_manager_is_refused(volume: SimVolume, found: Position) -> None:
    with pytest.raises(StoreBehind) as caught:
        seen_of(volume).check_kept(found, KEPT, KEEPER)
    text = str(caught.value)
    for part in (
        str(found),
        f"{KEEPER} has noted epoch 5, sequence 1000",
        "understudy accept-store --instance /instance",
    ):
        assert part in text


@pytest.mark.parametrize("found", [Position(NODE, 5, 1_000), Position(NODE, 6, 1_001)])
def test_a_log_that_has_the_position_of_the_lock_manager_is_used(volume: SimVolume, found: Position) -> None:
    seen_of(volume).check_kept(found, KEPT, KEEPER)
    seen_of(volume).check_kept(found, (0, 0), KEEPER)


def test_an_accepted_store_is_used_although_the_lock_manager_knows_a_later_position(volume: SimVolume) -> None:
    older = Position(NODE, 5, 900)
    seen_of(volume).accept(older)
    seen_of(volume).check_kept(older, KEPT, KEEPER)
    assert seen_of(volume).has_accepted(900)
    assert not seen_of(volume).has_accepted(901)
    # put back to another state than the accepted one
    with pytest.raises(StoreBehind):
        seen_of(volume).check_kept(Position(NODE, 5, 950), KEPT, KEEPER)


def test_the_word_of_an_operator_counts_for_the_log_that_is_read_next(volume: SimVolume) -> None:
    seen = seen_of(volume)
    seen.accept_next()
    seen_of(volume).check(Position(NODE, 3, 70))
    older = Position(NODE, 5, 900)
    seen.check_kept(older, KEPT, KEEPER)
    assert seen_of(volume).read() == older
    with pytest.raises(StoreBehind):
        seen_of(volume).check_kept(Position(NODE, 5, 899), KEPT, KEEPER)


def test_a_node_that_was_put_back_does_not_serve_until_an_operator_accepts_it(volume: SimVolume) -> None:
    seen = seen_of(volume)
    seen.note(SEEN)
    assert seen.why_not_serve() is None
    seen.put_back(5, 1_500)
    why = seen_of(volume).why_not_serve()
    assert why is not None
    assert "epoch 5, sequence 1500" in str(why)
    assert "understudy promote" in str(why)
    # notes of a position keep it
    other = seen_of(volume)
    other.note(Position(NODE, 6, 1_100))
    assert seen_of(volume).read() == Position(NODE, 6, 1_100)
    assert seen_of(volume).why_not_serve() is not None
    other.accept(Position(NODE, 6, 1_100))
    assert seen_of(volume).why_not_serve() is None


def test_a_copy_of_another_node_ends_the_notes_about_the_own_store(volume: SimVolume) -> None:
    seen = seen_of(volume)
    seen.put_back(5, 1_500)
    seen.forget()
    assert seen.why_not_serve() is None
    assert seen_of(volume).why_not_serve() is None


def test_marks_fit_into_the_record(volume: SimVolume) -> None:
    huge = 2**63 - 1
    seen = seen_of(volume)
    seen.accept(Position(NODE, huge, huge))
    assert seen_of(volume).read() == Position(NODE, huge, huge)
    seen.put_back(huge, huge)
    assert seen_of(volume).why_not_serve() is not None
    assert volume.disk("a").open(seen.path, read_only=True).size() == 256
