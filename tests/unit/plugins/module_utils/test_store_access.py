"""Goal: the access of a user to a store is what the kernel says of this user, and finding it out changes nothing.

Method: real directories with real modes. As root the questions are asked as a user without rights (number 65534);
otherwise as the user of the test, whose own modes decide.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.platforms import PLATFORMS
from ansible_collections.understudy.broker.plugins.module_utils.store_access import (
    access_problems,
    as_user,
    java_found,
    store_problems,
)

NOBODY = 65534
READERS = 65533
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store as a broker makes it for a group of readers."""
    for path in [tmp_path, *tmp_path.parents]:
        if IS_ROOT and path.owner() == "root" and path.stat().st_mode & 0o005 != 0o005 and "pytest" in str(path):
            path.chmod(0o755)
    store = tmp_path / "store"
    (store / "journal").mkdir(parents=True)
    (store / "journal/segment-1.log").write_text("x")
    for path, mode in ((store, 0o2750), (store / "journal", 0o2750), (store / "journal/segment-1.log", 0o640)):
        if IS_ROOT:
            os.chown(path, 0, READERS)
        path.chmod(mode)
    return store


def problems(store: Path, *groups: int) -> list[str]:
    """Problems of access that a user without rights has who is in these groups."""
    if not IS_ROOT:
        return access_problems(store, check_writing=True)
    return as_user(NOBODY, NOBODY, groups, lambda: access_problems(store, check_writing=True))


def own(store: Path, mode: int, name: str) -> None:
    """Give the entry a mode that decides for the user who asks: that of the group as root, else that of the owner."""
    (store / name).chmod(mode if IS_ROOT else mode << 3)


def test_a_reader_that_cannot_write_has_no_problem(store: Path) -> None:
    for name, mode in (("journal/segment-1.log", 0o040), ("journal", 0o050), (".", 0o050)):
        own(store, mode, name)
    assert problems(store, READERS) == []


def test_a_file_that_cannot_be_read_is_named(store: Path) -> None:
    own(store, 0o000, "journal/segment-1.log")
    own(store, 0o050, "journal")
    own(store, 0o050, ".")
    assert problems(store, READERS) == [f"{store}/journal/segment-1.log cannot be read"]


def test_a_directory_that_can_be_written_is_named(store: Path) -> None:
    own(store, 0o040, "journal/segment-1.log")
    own(store, 0o070, "journal")
    own(store, 0o050, ".")
    assert problems(store, READERS) == [f"{store}/journal can be written"]


@pytest.mark.skipif(not IS_ROOT, reason="only root can ask as another user")
def test_a_user_outside_of_the_group_reads_nothing(store: Path) -> None:
    assert problems(store) == [f"{store} cannot be read"]


@pytest.mark.skipif(not IS_ROOT, reason="only root can ask as another user")
def test_the_caller_stays_who_it_is(store: Path) -> None:
    problems(store, READERS)
    assert os.geteuid() == 0
    assert sorted(path.name for path in store.rglob("*")) == ["journal", "segment-1.log"]


def test_a_path_that_is_not_there_or_no_directory_is_named(store: Path) -> None:
    store.chmod(0o755)
    assert access_problems(store / "absent", check_writing=False) == [f"{store}/absent: No such file or directory"]
    (store / "file").touch()
    assert access_problems(store / "file", check_writing=False) == [f"{store}/file is no directory"]


def test_at_most_so_many_entries_are_asked_about(store: Path) -> None:
    own(store, 0o000, "journal/segment-1.log")
    own(store, 0o050, "journal")
    own(store, 0o050, ".")
    assert access_problems(store, check_writing=False, limit=1) == []


def test_an_unknown_user_is_an_error(store: Path) -> None:
    with pytest.raises(KeyError):
        store_problems("no-such-user-of-a-test", [], [store])


VERSION = 'openjdk version "{}" 2025-04-15\n'


@pytest.mark.parametrize(
    ("version", "major", "problem"),
    [
        ("17.0.15", 17, ""),
        ("21", 21, ""),
        ("11.0.2", 11, "is version 11. Spark needs Java 17"),
        ("1.8.0_392", 8, "is version 8."),
        (None, 0, "does not say its version"),
    ],
)
def test_java_is_judged_by_its_version(tmp_path: Path, version: str | None, major: int, problem: str) -> None:
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.touch()

    def run(command: Sequence[str]) -> tuple[int, str, str]:
        assert command == [str(java), "-version"]
        return 0, "", VERSION.format(version) if version else "?"

    found = java_found(str(tmp_path), lambda _: None, run, PLATFORMS[0])
    assert found[:2] == (str(java), major)
    assert problem in found[2]
    assert bool(found[2]) is bool(problem)
    assert not problem or "openjdk-17-jre-headless, or set broker_pipeline_java_home" in found[2]


def test_a_host_without_java_is_told_the_package_and_the_variable(tmp_path: Path) -> None:
    def run(_command: Sequence[str]) -> tuple[int, str, str]:
        raise AssertionError

    for home, said in (("", "there is no java on the PATH"), (str(tmp_path), f"has no {tmp_path}/bin/java")):
        command, _major, problem = java_found(home, lambda _: None, run, PLATFORMS[0])
        assert command == ""
        assert said in problem
        assert "openjdk-17-jre-headless" in problem
