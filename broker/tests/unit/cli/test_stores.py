"""Goal: no store that a process uses is compacted, a reader is in no way, and the journal of an instance is named."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from understudy.cli.data.stores import open_store, refuse_running
from understudy.errors import DiskFailed

STORE = "/srv/a/journal"


def process(processes: Path, number: int, target: str, flags: int) -> None:
    """An entry of /proc with one open file."""
    for name in ("fd", "fdinfo"):
        (processes / str(number) / name).mkdir(parents=True)
    (processes / str(number) / "fd" / "7").symlink_to(target)
    (processes / str(number) / "fdinfo" / "7").write_text(f"pos:\t0\nflags:\t{flags:o}\nmnt_id:\t1\n")


def instance(directory: Path, journal: str) -> str:
    """The lock of an instance with a store; its path."""
    (directory / "etc").mkdir(parents=True)
    (directory / "etc/broker.xml").write_text(f"<core><journal-directory>{journal}</journal-directory></core>")
    return str(directory / "run/lock")


@pytest.mark.parametrize("access", [os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_a_process_that_writes_a_segment_is_named(tmp_path: Path, access: int) -> None:
    process(tmp_path, 4711, f"{STORE}/segment-1.log", access)
    with pytest.raises(DiskFailed, match=r"process 4711 writes segment-1.log"):
        refuse_running(STORE, tmp_path)


def test_a_node_that_has_no_segment_open_is_named_by_its_instance(tmp_path: Path) -> None:
    process(tmp_path / "proc", 4711, instance(tmp_path / "node", STORE), os.O_RDWR)
    with pytest.raises(DiskFailed, match=r"process 4711 runs the instance .*node with this store"):
        refuse_running(STORE, tmp_path / "proc")


@pytest.mark.parametrize(
    ("target", "access"),
    [
        (f"{STORE}/segment-1.log", os.O_RDONLY),
        (f"{STORE}-of-another/segment-1.log", os.O_RDWR),
        ("/dev/null", os.O_RDWR),
    ],
)
def test_readers_and_users_of_other_stores_are_in_no_way(tmp_path: Path, target: str, access: int) -> None:
    process(tmp_path, 4711, target, access)
    refuse_running(STORE, tmp_path)


def test_the_instance_of_another_store_is_in_no_way(tmp_path: Path) -> None:
    process(tmp_path / "proc", 4711, instance(tmp_path / "node", f"{STORE}-of-another"), os.O_RDWR)
    refuse_running(STORE, tmp_path / "proc")


def test_the_command_itself_and_a_process_without_readable_files_are_in_no_way(tmp_path: Path) -> None:
    process(tmp_path, os.getpid(), f"{STORE}/segment-1.log", os.O_RDWR)
    (tmp_path / "4712").mkdir()
    refuse_running(STORE, tmp_path)


@pytest.mark.parametrize(("given", "named"), [(".", "data/journal"), ("data", "journal")])
def test_the_journal_of_an_instance_is_named(tmp_path: Path, given: str, named: str) -> None:
    journal = tmp_path / "data" / "journal"
    journal.mkdir(parents=True)
    (journal / "segment-000000000001-0000000001.log").touch()
    directory = str((tmp_path / given).resolve())
    with pytest.raises(click.UsageError, match=rf"holds no journal: .*; it is in {directory}/{named}$"):
        open_store(directory)
    with pytest.raises(click.UsageError, match=r"no file is named segment-\*.log$"):
        open_store(str(tmp_path / "etc"))
