"""Goal: no choice ever removes the current store or the newest old copy, and nothing outside a copy is touched."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.old_copies import (
    ARTEMIS,
    EAP,
    OldDirectory,
    Unsafe,
    choose,
    copy_under_way,
    find,
    judge,
    number_of,
    paths_of_processes,
    remove,
    size_of,
)
from hypothesis import given
from hypothesis import strategies as st

DIRECTORIES = st.lists(
    st.builds(
        OldDirectory,
        st.sampled_from(["/s/journal", "/s/bindings"]),
        st.just(""),
        st.integers(1, 9),
        st.integers(0, 5),
    ).map(lambda each: OldDirectory(each.parent, f"oldreplica.{each.number}", each.number, each.modified_ns)),
    max_size=12,
    unique_by=lambda each: each.path,
)


@given(DIRECTORIES, st.integers(1, 4), st.sets(st.integers(1, 9), max_size=2))
def test_a_choice(found: list[OldDirectory], keep: int, protected: set[int]) -> None:
    choice = choose(found, keep, protected)
    assert sorted((*choice.removed, *choice.kept), key=repr) == sorted(found, key=repr)
    numbers = {each.number for each in found}
    kept, removed = {each.number for each in choice.kept}, {each.number for each in choice.removed}
    assert not kept & removed, "a copy stays or goes as a whole"
    assert set(sorted(numbers)[-keep:]) <= kept
    assert not protected & removed
    if found:
        assert max(found, key=lambda each: each.modified_ns).modified_ns in {each.modified_ns for each in choice.kept}
    assert choose(choice.kept, keep, protected).removed == (), "a second run removes nothing"
    more = {each.number for each in choose(found, keep + 1, protected).removed}
    assert more <= removed, "keeping more removes no other copy"


def test_nothing_is_kept_only_on_purpose() -> None:
    with pytest.raises(ValueError, match="keep must be 1 or more"):
        choose([], 0)


def made(path: Path, day: int) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_bytes(b"x" * 5000)
    for each in (path / "file", path):
        os.utime(each, (day * 86400, day * 86400))
    return path


def test_the_example_of_the_eap_guide(tmp_path: Path) -> None:
    """journal of 20 May, journal1 of 10 May, journal2 of 15 May: only journal1 goes, and likewise elsewhere."""
    for kind in ("journal", "bindings", "largemessages", "paging"):
        for name, day in ((kind, 20), (f"{kind}1", 10), (f"{kind}2", 15)):
            made(tmp_path / name, day)
    currents = [tmp_path / kind for kind in ("journal", "bindings", "largemessages", "paging")]
    choice = choose(find(currents, EAP), 1)
    assert {each.name for each in choice.removed} == {"journal1", "bindings1", "largemessages1", "paging1"}
    for each in choice.removed:
        assert size_of(each) >= 5000
        remove(each)
    assert sorted(each.name for each in tmp_path.iterdir() if "journal" in each.name) == ["journal", "journal2"]


@pytest.mark.parametrize(
    ("name", "naming", "number"),
    [
        ("oldreplica.12", ARTEMIS, 12),
        ("oldreplica.", ARTEMIS, None),
        ("oldreplica.1x", ARTEMIS, None),
        ("journal1", ARTEMIS, None),
        ("journal12", EAP, 12),
        ("journal", EAP, None),
        ("journal0", EAP, None),
        ("journal-1", EAP, None),
        ("journals1", EAP, None),
        ("oldreplica.1", EAP, None),
    ],
)
def test_names(name: str, naming: str, number: int | None) -> None:
    assert number_of(name, "journal", naming) == number


def test_links_are_neither_copies_nor_followed(tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "elsewhere", 1)
    journal = tmp_path / "journal"
    old = made(journal / "oldreplica.1", 1)
    (old / "link").symlink_to(elsewhere)
    (journal / "oldreplica.2").symlink_to(elsewhere)
    (directory,) = find([journal], ARTEMIS)
    remove(directory)
    assert not old.exists()
    assert (elsewhere / "file").exists()
    (tmp_path / "linked").symlink_to(journal)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        remove(OldDirectory(str(tmp_path / "linked"), "oldreplica.2", 2, 0))


def test_a_directory_that_a_process_uses_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "journal/oldreplica.1", 1)
    found = find([tmp_path / "journal"], ARTEMIS)
    judge(found, [tmp_path / "journal"], {})
    with (tmp_path / "journal/oldreplica.1/file").open("rb"), pytest.raises(Unsafe, match=f"process {os.getpid()} has"):
        judge(found, [tmp_path / "journal"], paths_of_processes())


def test_a_directory_of_the_current_store_is_refused(tmp_path: Path) -> None:
    """journal-directory of one broker is journal1, and old copies beside journal are removed."""
    made(tmp_path / "journal", 1)
    made(tmp_path / "journal1/large", 1)
    found = find([tmp_path / "journal"], EAP)
    with pytest.raises(Unsafe, match="a directory of the current store"):
        judge(found, [tmp_path / "journal", tmp_path / "journal1/large"], {})


def test_a_copy_with_a_mount_point_in_it_is_refused(tmp_path: Path) -> None:
    old = made(tmp_path / "journal/oldreplica.1", 1)
    found = find([tmp_path / "journal"], ARTEMIS)
    judge(found, [tmp_path / "journal"], {}, ["/", str(tmp_path), f"{old}0"])
    for point in (old, old / "large"):
        with pytest.raises(Unsafe, match=f"has one in it .{point}"):
            judge(found, [tmp_path / "journal"], {}, [str(point)])


def test_files_with_a_second_name_free_nothing(tmp_path: Path) -> None:
    old = made(tmp_path / "journal/oldreplica.1", 1)
    os.link(old / "file", tmp_path / "journal/file")
    (directory,) = find([tmp_path / "journal"], ARTEMIS)
    assert size_of(directory) == 0


def test_the_copy_under_way_is_read_from_the_state_of_the_replica() -> None:
    assert copy_under_way(struct.pack("<8sHBBI", b"USTREPL\n", 1, 1, 1, 7)) == 7
    assert copy_under_way(struct.pack("<8sHBBI", b"USTREPL\n", 1, 2, 0, 0)) is None
    assert copy_under_way(b"junk") is None
