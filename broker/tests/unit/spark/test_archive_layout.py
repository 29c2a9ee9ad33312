"""Generations of an archive without Spark: a crash at any step leaves the former or the new one."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.errors import ConfigError
from understudy.spark.archive import layout as archive_layout
from understudy.spark.archive.layout import INCOMING, Archive, DataFile, check_archive, open_archive, read_published

FIRST = "date=2026-11-23/address_key=a-1"


def add(archive: Archive, names: list[str], *, drop: int = 0) -> None:
    """Publish a generation with more files, and without the first ``drop`` ones."""
    stage = archive.stage()
    kept = list(archive.manifest.files)[drop:]
    archive.keep(stage, kept)
    files = []
    for name in names:
        path = stage / FIRST / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (stage / INCOMING / name).write_text(name)
        os.replace(stage / INCOMING / name, path)
        files.append(DataFile(f"{FIRST}/{name}", 1, len(name)))
    archive.publish(stage, archive.manifest.extended(7, [*kept, *files], None))


def contents(directory: Path) -> set[str]:
    """Names of the data files, as a reader of the link finds them."""
    return {path.name for path in (directory / "data").resolve().rglob("*.parquet")}


def tree(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def generations(directory: Path) -> list[str]:
    return sorted(os.listdir(directory / "generations"))


def test_generations_follow_each_other_and_only_the_published_one_stays_after_the_time(tmp_path: Path) -> None:
    clock = Clock()
    with open_archive(tmp_path / "archive", 5_000, clock) as archive:
        add(archive, ["1.parquet", "2.parquet"])
        add(archive, ["3.parquet"], drop=1)
    published = read_published(tmp_path / "archive")
    assert published is not None
    assert (published.manifest.generation, published.manifest.rows, published.manifest.content) == (2, 2, 14)
    assert contents(tmp_path / "archive") == {"2.parquet", "3.parquet"}
    clock.now_ms += 4_999
    with open_archive(tmp_path / "archive", 5_000, clock) as archive:
        assert (len(generations(tmp_path / "archive")), archive.former, archive.removed) == (2, 1, 0)
    clock.now_ms += 1
    with open_archive(tmp_path / "archive", 5_000, clock) as archive:
        assert generations(tmp_path / "archive") == [published.directory.name]
        assert (archive.former, archive.removed) == (0, 1)
    assert (tmp_path / "archive").stat().st_mode & 0o077 == 0


def test_reader_of_a_former_generation_finds_its_files_for_the_documented_time(tmp_path: Path) -> None:
    clock = Clock()
    with open_archive(tmp_path / "archive", 5_000, clock) as archive:
        add(archive, ["1.parquet", "2.parquet"])
    before = read_published(tmp_path / "archive")
    assert before is not None
    for number in range(3, 6):
        clock.now_ms += 1_000
        with open_archive(tmp_path / "archive", 5_000, clock) as archive:
            # its first files are merged into another one
            add(archive, [f"{number}.parquet"], drop=2 if number == 3 else 0)
        assert all((before.directory / each.path).is_file() for each in before.manifest.files)
    clock.now_ms += 4_000
    with open_archive(tmp_path / "archive", 5_000, clock) as archive:
        # replaced 6, 5 and 4 seconds ago
        assert (archive.former, archive.removed) == (1, 2)
    assert not before.directory.exists()
    # a run that publishes lists only those that are there
    with open_archive(tmp_path / "archive", 5_000, clock) as archive:
        add(archive, ["6.parquet"])
        assert len(archive.manifest.former) == 2


class Crashed(BaseException):
    """The process is killed."""


def counting(monkeypatch: pytest.MonkeyPatch, left: list[int]) -> None:
    """The process is killed before the changing call of that number."""

    def before(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **more: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                raise Crashed
            return call(*arguments, **more)

        return counted

    for name in ("link", "rename", "replace", "symlink", "fsync", "mkdir"):
        monkeypatch.setattr(archive_layout.os, name, before(getattr(os, name)))
    monkeypatch.setattr(archive_layout.shutil, "rmtree", before(shutil.rmtree))
    # a killed process cleans nothing up
    monkeypatch.setattr(archive_layout, "_undo", lambda archive, remove_directory: None)


def test_a_crash_at_any_step_leaves_the_former_or_the_new_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in itertools.count(1):
        directory = tmp_path / str(step)
        with open_archive(directory) as archive:
            add(archive, ["1.parquet", "2.parquet"])
        left = [step]
        with monkeypatch.context() as patch:
            counting(patch, left)
            try:
                with open_archive(directory) as archive:
                    add(archive, ["3.parquet"], drop=1)
            except Crashed:
                pass
        after = {"2.parquet", "3.parquet"}
        assert contents(directory) in ({"1.parquet", "2.parquet"}, after)
        # the next run begins from there
        with open_archive(directory, 0) as archive:
            if contents(directory) != after:
                add(archive, ["3.parquet"], drop=1)
        assert contents(directory) == after
        with open_archive(directory, 0):
            assert len(generations(directory)) == 1
        if left[0] > 0:
            break
    assert step > 10


def test_a_crash_while_generations_are_removed_leaves_whole_ones_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in itertools.count(1):
        directory, clock = tmp_path / str(step), Clock()
        for number in range(4):
            with open_archive(directory, 5_000, clock) as archive:
                add(archive, [f"{number}.parquet"], drop=number // 2)
        clock.now_ms += 5_000
        left = [step]
        with monkeypatch.context() as patch:
            counting(patch, left)
            # a removal that is cut in the middle
            patch.setattr(archive_layout.shutil, "rmtree", removing(left))
            try:
                with open_archive(directory, 5_000, clock) as archive:
                    pass
            except Crashed:
                pass
        for path in (directory / "generations").iterdir():
            if not path.name.endswith(".removed"):
                manifest = json.loads((path / "_manifest.json").read_text())
                assert all((path / each["path"]).is_file() for each in manifest["files"])
        # the next run goes on, also one that keeps generations longer
        with open_archive(directory, 10_000 if step % 2 else 5_000, clock) as archive:
            add(archive, ["4.parquet"])
        assert not [name for name in generations(directory) if name.endswith(".removed")]
        with open_archive(directory, 0, clock):
            assert len(generations(directory)) == 1
        if left[0] > 0:
            break
    assert step > 6


def removing(left: list[int]) -> Callable[[Path], None]:
    """A removal whose every file is a step."""

    def remove(path: Path) -> None:
        for each in sorted(Path(path).rglob("*"), reverse=True):
            left[0] -= 1
            if left[0] == 0:
                raise Crashed
            each.rmdir() if each.is_dir() else each.unlink()
        Path(path).rmdir()

    return remove


def test_a_crash_while_an_archive_is_made_leaves_a_directory_that_may_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in itertools.count(1):
        directory = tmp_path / str(step)
        left = [step]
        with monkeypatch.context() as patch:
            counting(patch, left)
            try:
                with open_archive(directory) as archive:
                    add(archive, ["1.parquet"])
            except Crashed:
                pass
        with open_archive(directory) as archive:
            if archive.published is None:
                add(archive, ["1.parquet"])
        assert contents(directory) == {"1.parquet"}
        if left[0] > 0:
            break
    assert step > 8


def test_a_failed_run_leaves_nothing(tmp_path: Path) -> None:
    for prepare in (lambda: None, (tmp_path / "archive").mkdir):
        prepare()
        before = tree(tmp_path)
        with pytest.raises(ValueError, match="no"), open_archive(tmp_path / "archive") as archive:
            archive.stage()
            raise ValueError("no")
        assert tree(tmp_path) == before
    with open_archive(tmp_path / "archive") as archive:
        add(archive, ["1.parquet"])
    before = tree(tmp_path)
    with pytest.raises(ValueError, match="no"), open_archive(tmp_path / "archive") as archive:
        archive.stage()
        raise ValueError("no")
    assert tree(tmp_path) == before


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with (
        open_archive(tmp_path / "archive") as archive,
        pytest.raises(ConfigError, match="another process writes to this archive"),
        open_archive(archive.directory),
    ):
        raise AssertionError("opened twice")
    with open_archive(tmp_path / "archive"):
        pass


def test_a_directory_that_is_no_archive_is_refused_with_its_name_and_stays(tmp_path: Path) -> None:
    def archive(name: str) -> Path:
        with open_archive(tmp_path / name) as made:
            add(made, ["1.parquet"])
        return tmp_path / name

    def marker(name: str, text: str) -> Path:
        path = archive(name)
        (path / "archive.json").write_text(text)
        return path

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("x")
    short, gone, manifest = archive("short"), archive("gone"), archive("manifest")
    (short / "data" / FIRST / "1.parquet").write_text("")
    (gone / "data" / FIRST / "1.parquet").unlink()
    (manifest / "data" / "_manifest.json").write_text('{"format": "understudy archive", "schema_version": 1}')
    newer = json.dumps({"format": "understudy archive", "schema_version": 2})
    elsewhere = archive("elsewhere")
    (elsewhere / "data").unlink()
    (elsewhere / "data").symlink_to(short / "data")
    cases = [
        (elsewhere / "data", "is no link to a generation of this archive"),
        (foreign, "is no archive: it has files and no archive.json"),
        (foreign / "letter.txt", "cannot be read: Not a directory"),
        (marker("newer", newer), "schema version 2, this Understudy has 1"),
        (marker("other", "{}"), "is not of an archive"),
        (marker("text", "x"), "is no JSON"),
        (marker("list", "[]"), "is no JSON object"),
        (short, "has 0 bytes, the manifest says 9"),
        (gone, "cannot be read: No such file or directory"),
        (manifest, "is no manifest of an archive"),
    ]
    for path, text in cases:
        before = tree(tmp_path)
        directory = path.parent if path.name == "data" else path
        with pytest.raises(ConfigError, match=text) as caught, open_archive(directory):
            raise AssertionError("opened")
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert tree(tmp_path) == before


def test_a_missing_or_empty_directory_may_become_an_archive_and_is_none_to_read(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        assert not check_archive(directory)
        with pytest.raises(ConfigError, match=r"is no archive: it has no archive\.json"):
            read_published(directory)
