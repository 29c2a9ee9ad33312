"""Goal: a release is named by its content, built once, and holds only what its name covers."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.wheelhouse import (
    WheelhouseError,
    build,
    plan,
    prune,
    source_digest,
    source_files,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "broker"
    package = top / "src/understudy"
    package.mkdir(parents=True)
    (top / "pyproject.toml").write_text("[project]\n")
    (top / "README.md").write_text("# understudy\n")
    (package / "__init__.py").write_text('__version__ = "1.2.3"\n')
    return top


def test_only_what_is_built_from_counts(source: Path) -> None:
    before = source_digest(source, ())
    (source / "tests").mkdir()
    (source / "tests/test_x.py").touch()
    cache = source / "src/understudy/__pycache__"
    cache.mkdir()
    (cache / "x.cpython-311.pyc").touch()
    assert source_digest(source, ()) == before
    assert [path.as_posix() for path in source_files(source)] == [
        "README.md",
        "pyproject.toml",
        "src/understudy/__init__.py",
    ]


@pytest.mark.parametrize("change", ["content", "name", "python", "constraints"])
def test_any_change_gives_another_name(source: Path, tmp_path: Path, change: str) -> None:
    first, version, archive = plan(source, tmp_path, "3.11", "")
    assert version == "1.2.3"
    assert first.startswith("1.2.3-")
    assert archive == tmp_path / f"understudy-{first}.tar"
    module = source / "src/understudy/module.py"
    module.write_text("a = 1\n")
    first = plan(source, tmp_path, "3.11", "")[0]
    if change == "content":
        module.write_text("a = 2\n")
    if change == "name":
        module.rename(module.with_name("other.py"))
    second = plan(
        source, tmp_path, "3.12" if change == "python" else "3.11", "x==1" if change == "constraints" else ""
    )[0]
    assert second != first


def test_a_directory_that_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match=r"pyproject.toml, README.md, src missing"):
        plan(tmp_path, tmp_path, "3.11", "")


def test_the_archive_holds_the_wheels_and_the_build_sees_only_the_sources(source: Path, tmp_path: Path) -> None:
    (source / "secret.txt").touch()
    seen: list[list[str]] = []

    def pip(command: Sequence[str]) -> tuple[int, str, str]:
        wheels, copy = Path(command[command.index("--wheel-dir") + 1]), Path(command[-2])
        seen.append(sorted(path.name for path in copy.iterdir()))
        wheels.mkdir()
        for name in ("b-1.whl", "a-1.whl", "note.txt"):
            (wheels / name).write_text(name)
        return 0, "", ""

    archives = [tmp_path / "cache/one.tar", tmp_path / "cache/two.tar"]
    for archive in archives:
        build(source, archive, "python3", "", pip)
    assert seen == [["README.md", "pyproject.toml", "src"]] * 2
    with tarfile.open(archives[0]) as tar:
        assert tar.getnames() == ["a-1.whl", "b-1.whl"]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["one.tar", "two.tar"]


def test_a_failed_build_leaves_nothing_and_says_why(source: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match="pip wheel ended with 1:\nno matching distribution"):
        build(
            source, tmp_path / "cache/one.tar", "python3", "pins", lambda command: (1, "", "no matching distribution")
        )
    assert list((tmp_path / "cache").iterdir()) == []


def test_old_archives_go_and_the_current_one_stays(tmp_path: Path) -> None:
    archives = [tmp_path / f"understudy-{number}.tar" for number in range(4)]
    for number, archive in enumerate(archives):
        archive.touch()
        os.utime(archive, (number, number))
    assert prune(tmp_path, 2, archives[0]) == ["understudy-2.tar", "understudy-1.tar"]
    assert sorted(tmp_path.iterdir()) == [archives[0], archives[3]]
