"""Goal: a release is named by its content, built once, and holds only what its name covers."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.wheelhouse import (
    KERNEL_LACKING,
    KERNEL_SOURCES,
    Kernel,
    WheelhouseError,
    build,
    build_extra,
    make_kernel,
    plan,
    plan_extra,
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


PYTHON_KERNEL = Kernel("python", "cargo is not installed")


@pytest.mark.parametrize("change", ["content", "name", "python", "constraints", "kernel"])
def test_any_change_gives_another_name(source: Path, tmp_path: Path, change: str) -> None:
    first, version, archive = plan(source, tmp_path, "3.11", "", "x86_64", PYTHON_KERNEL)
    assert version == "1.2.3"
    assert first.startswith("1.2.3-")
    assert first.endswith("-x86_64")
    assert archive == tmp_path / f"understudy-{first}.tar"
    module = source / "src/understudy/module.py"
    module.write_text("a = 1\n")
    first = plan(source, tmp_path, "3.11", "", "x86_64", PYTHON_KERNEL)[0]
    if change == "content":
        module.write_text("a = 2\n")
    if change == "name":
        module.rename(module.with_name("other.py"))
    second = plan(
        source,
        tmp_path,
        "3.12" if change == "python" else "3.11",
        "x==1" if change == "constraints" else "",
        "x86_64",
        Kernel("native 1") if change == "kernel" else PYTHON_KERNEL,
    )[0]
    assert second != first


def test_a_directory_that_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match=r"pyproject.toml, README.md, src missing"):
        plan(tmp_path, tmp_path, "3.11", "", "x86_64", PYTHON_KERNEL)


def test_the_archive_holds_the_wheels_and_the_build_sees_only_the_sources(source: Path, tmp_path: Path) -> None:
    (source / "secret.txt").touch()
    seen: list[list[str]] = []

    def pip(command: Sequence[str]) -> tuple[int, str, str]:
        wheels = Path(command[command.index("--wheel-dir") + 1])
        copy = Path(command[-2].removesuffix("[zookeeper,ldap]"))
        seen.append(sorted(path.name for path in copy.iterdir()))
        wheels.mkdir()
        for name in ("b-1.whl", "a-1.whl", "note.txt"):
            (wheels / name).write_text(name)
        return 0, "", ""

    archives = [tmp_path / "cache/one.tar", tmp_path / "cache/two.tar"]
    for archive in archives:
        build(source, archive, "python3", "", pip, PYTHON_KERNEL)
    assert seen == [["README.md", "pyproject.toml", "src"]] * 2
    with tarfile.open(archives[0]) as tar:
        assert tar.getnames() == ["a-1.whl", "b-1.whl"]
    assert archives[0].read_bytes() == archives[1].read_bytes()
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["one.tar", "two.tar"]


def test_the_wheel_of_the_native_kernel_is_in_the_archive(source: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "understudy_kernel-1-cp311-abi3-linux_x86_64.whl"
    wheel.touch()

    def pip(command: Sequence[str]) -> tuple[int, str, str]:
        wheels = Path(command[command.index("--wheel-dir") + 1])
        wheels.mkdir()
        (wheels / "understudy-1.whl").touch()
        return 0, "", ""

    archive = tmp_path / "cache/one.tar"
    build(source, archive, "python3", "", pip, Kernel("native 1", wheel=wheel))
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["understudy-1.whl", wheel.name]


WITH_EXTRA = '[project]\n[project.optional-dependencies]\nspark = ["pyspark>=4.3,<4.4", "pyarrow>=18"]\n'


def test_the_wheels_of_an_extra_are_named_by_their_requirements_and_not_by_the_sources(
    source: Path, tmp_path: Path
) -> None:
    pyproject = source / "pyproject.toml"
    pyproject.write_text(WITH_EXTRA)
    arguments = ("spark", "3.11", "", "x86_64")
    first = plan_extra(source, tmp_path, *arguments)
    assert first.requirements == ("pyspark>=4.3,<4.4", "pyarrow>=18")
    assert first.archive == tmp_path / f"extra-{first.name}.tar"
    (source / "src/understudy/module.py").write_text("a = 1\n")
    assert plan_extra(source, tmp_path, *arguments) == first
    others = {plan_extra(source, tmp_path, "spark", *more).name for more in (("3.12", "", "x"), ("3.11", "a==1", "x"))}
    pyproject.write_text(WITH_EXTRA.replace(">=18", ">=19"))
    others |= {plan_extra(source, tmp_path, *arguments).name, first.name}
    assert len(others) == 4


def test_an_extra_that_the_sources_do_not_have_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match="no optional dependencies 'spark'"):
        plan_extra(source, tmp_path, "spark", "3.11", "", "x86_64")


def test_the_archive_of_an_extra_has_its_wheels_only(source: Path, tmp_path: Path) -> None:
    (source / "pyproject.toml").write_text(WITH_EXTRA)
    extra = plan_extra(source, tmp_path / "cache", "spark", "3.11", "", "x86_64")
    asked: list[str] = []

    def pip(command: Sequence[str]) -> tuple[int, str, str]:
        asked.extend(command[-2:])
        wheels = Path(command[command.index("--wheel-dir") + 1])
        wheels.mkdir()
        (wheels / "pyspark-4.3.0-py2.py3-none-any.whl").touch()
        return 0, "", ""

    build_extra(extra, "python3", "", pip)
    assert asked == list(extra.requirements)
    with tarfile.open(extra.archive) as tar:
        assert tar.getnames() == ["pyspark-4.3.0-py2.py3-none-any.whl"]


def test_archives_of_extras_are_pruned_apart_from_those_of_releases(tmp_path: Path) -> None:
    for number in range(4):
        for name in (f"extra-spark-{number}-x.tar", f"understudy-{number}.tar"):
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (number, number))
    assert prune(tmp_path, 3, tmp_path / "understudy-3.tar") == [
        "understudy-0.tar",
        "extra-spark-1-x.tar",
        "extra-spark-0-x.tar",
    ]


@pytest.fixture
def kernel_source(source: Path) -> Path:
    for name in KERNEL_SOURCES:
        path = source / "kernel" / (f"{name}/lib.rs" if name == "src" else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return source


class Builds:
    """Plays kernel/build.py; records its arguments."""

    def __init__(self, code: int = 0, output: str = "", error: str = "") -> None:
        self.answer = code, output, error
        self.ran: list[list[str]] = []

    def __call__(self, command: Sequence[str]) -> tuple[int, str, str]:
        self.ran.append(list(command[2:]))
        if self.answer[0] == 0 and "--wheel-dir" in command:
            wheels = Path(command[command.index("--wheel-dir") + 1])
            (wheels / "understudy_kernel-1-cp311-abi3-linux_x86_64.whl").touch()
        return self.answer


def test_the_native_kernel_is_built_once_for_its_sources(kernel_source: Path, tmp_path: Path) -> None:
    cache, builds = tmp_path / "cache", Builds()
    first = make_kernel(kernel_source, cache, "python3", builds)
    assert first.wheel is not None
    assert first.wheel.exists()
    assert not first.reason
    assert make_kernel(kernel_source, cache, "python3", builds) == first
    assert len(builds.ran) == 1
    (kernel_source / "kernel/src/lib.rs").write_text("changed")
    second = make_kernel(kernel_source, cache, "python3", builds)
    assert second.salt != first.salt
    assert len(builds.ran) == 2


def test_a_controller_without_cargo_gets_the_reason_each_time_it_looks(kernel_source: Path, tmp_path: Path) -> None:
    builds = Builds(KERNEL_LACKING, "understudy-kernel is not built: cargo is not installed\n")
    for attempt in ("first", "second"):
        kernel = make_kernel(kernel_source, tmp_path / "cache", "python3", builds)
        assert kernel == Kernel("python", "understudy-kernel is not built: cargo is not installed"), attempt
    assert len(builds.ran) == 2


def test_a_build_that_failed_is_not_tried_again_until_its_marker_is_removed(
    kernel_source: Path, tmp_path: Path
) -> None:
    cache, builds = tmp_path / "cache", Builds(1, "could not be built\n", "x\nerror: no route to crates.io\nhint\n")
    assert make_kernel(kernel_source, cache, "python3", builds).reason == (
        "could not be built: error: no route to crates.io"
    )
    again = make_kernel(kernel_source, cache, "python3", builds)
    (marker,) = cache.glob("kernel-*.failed")
    assert again.reason == f"could not be built: error: no route to crates.io (to try again, remove {marker})"
    assert again.salt == "python"
    assert len(builds.ran) == 1


def test_check_mode_builds_no_kernel_and_names_the_same_release(kernel_source: Path, tmp_path: Path) -> None:
    cache, builds = tmp_path / "cache", Builds()
    planned = make_kernel(kernel_source, cache, "python3", builds, check_mode=True)
    assert builds.ran == [["--check"]]
    assert not cache.exists()
    assert make_kernel(kernel_source, cache, "python3", builds).salt == planned.salt


def test_sources_without_a_kernel_are_built_without_one(source: Path, tmp_path: Path) -> None:
    assert "has no sources of the native kernel" in make_kernel(source, tmp_path, "python3", Builds()).reason


def test_a_failed_build_leaves_nothing_and_says_why(source: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelhouseError, match="pip wheel ended with 1:\nno matching distribution"):
        build(
            source,
            tmp_path / "cache/one.tar",
            "python3",
            "pins",
            lambda command: (1, "", "no matching distribution"),
            PYTHON_KERNEL,
        )
    assert list((tmp_path / "cache").iterdir()) == []


def test_old_archives_go_and_the_current_one_stays(tmp_path: Path) -> None:
    archives = [tmp_path / f"understudy-{number}.tar" for number in range(4)]
    for number, archive in enumerate(archives):
        archive.touch()
        os.utime(archive, (number, number))
    assert prune(tmp_path, 2, archives[0]) == ["understudy-2.tar", "understudy-1.tar"]
    assert sorted(tmp_path.iterdir()) == [archives[0], archives[3]]
