"""Goal: a release is used only when it is whole, switched in one step, and never removed while it is needed."""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.releases import ReleaseError, Releases


def finish(releases: Releases, name: str, at: int) -> None:
    marker = releases.path(name) / ".complete"
    marker.parent.mkdir(parents=True)
    marker.touch()
    os.utime(marker, (at, at))


def archive_of(tmp_path: Path, *names: str) -> Path:
    target = tmp_path / "wheels.tar"
    with tarfile.open(target, "w") as tar:
        for name in names:
            wheel = tmp_path / "entry"
            with zipfile.ZipFile(wheel, "w") as content:
                content.writestr("x", "")
            tar.add(wheel, arcname=name)
    return target


class Commands:
    """Records commands and makes the directory that ``venv`` would; can be told to fail at one."""

    def __init__(self, fails_at: str = "") -> None:
        self.ran: list[list[str]] = []
        self.fails_at = fails_at

    def __call__(self, command: Sequence[str]) -> tuple[int, str, str]:
        self.ran.append(list(command))
        if self.fails_at and self.fails_at in command:
            return 1, "", "no"
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        return 0, "", ""


def test_an_installation_asks_no_index_and_is_marked_last(tmp_path: Path) -> None:
    releases, commands = Releases(tmp_path), Commands()
    releases.install("1-a", archive_of(tmp_path, "pip-25-py3-none-any.whl"), sys.executable, commands)
    assert releases.is_complete("1-a")
    install = next(command for command in commands.ran if "install" in command)
    assert "--no-index" in install
    assert install[1].endswith("pip-25-py3-none-any.whl/pip")
    assert not list(tmp_path.glob(".wheels-*"))


SPARK_WHEEL = "pyspark-4.3.0-py2.py3-none-any.whl"


def test_the_wheels_of_an_extra_stay_for_the_next_release_and_replace_those_of_another_name(tmp_path: Path) -> None:
    releases, commands = Releases(tmp_path), Commands()
    for name in ("spark-1-x", "spark-2-x"):
        releases.take_extra(name, archive_of(tmp_path, SPARK_WHEEL))
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == ["spark-2-x"]
    for release in ("1-a-spark", "1-b-spark"):
        archive = archive_of(tmp_path, "pip-25-py3-none-any.whl")
        releases.install(release, archive, sys.executable, commands, extra="spark", extra_name="spark-2-x")
    installs = [command for command in commands.ran if "install" in command]
    assert [command[-1] for command in installs] == ["understudy[zookeeper,spark]"] * 2
    assert all(str(tmp_path / "wheels/spark-2-x") in command for command in installs)
    assert (tmp_path / "wheels/spark-2-x" / SPARK_WHEEL).exists()


def test_an_unpacking_that_was_interrupted_starts_over(tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    (tmp_path / "wheels/.spark-1-x.new").mkdir(parents=True)
    assert not releases.extra_wheels("spark-1-x").is_dir()
    releases.take_extra("spark-1-x", archive_of(tmp_path, SPARK_WHEEL))
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == ["spark-1-x"]


KERNEL_WHEEL = "understudy_kernel-1-cp311-abi3-linux_x86_64.whl"


class KernelCommands(Commands):
    """Commands whose interpreter says which kernel it runs."""

    def __init__(self, says: str, fails_at: str = "") -> None:
        super().__init__(fails_at)
        self.says = says

    def __call__(self, command: Sequence[str]) -> tuple[int, str, str]:
        code, output, error = super().__call__(command)
        return (code, self.says, error) if "-c" in command else (code, output, error)


def test_the_native_kernel_is_installed_and_noted(tmp_path: Path) -> None:
    releases, commands = Releases(tmp_path), KernelCommands("native understudy_kernel 1\n")
    archive = archive_of(tmp_path, "pip-25-py3-none-any.whl", KERNEL_WHEEL)
    releases.install("1-a", archive, sys.executable, commands)
    assert commands.ran[2][-2:] == ["--no-deps", "understudy-kernel"]
    assert releases.kernel("1-a") == ("native", "understudy_kernel 1")


def test_a_host_of_another_platform_runs_without_the_kernel_and_says_so(tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    commands = KernelCommands("python understudy_kernel is not installed\n", fails_at="understudy-kernel")
    archive = archive_of(tmp_path, "pip-25-py3-none-any.whl", KERNEL_WHEEL)
    releases.install("1-a", archive, sys.executable, commands)
    assert releases.is_complete("1-a")
    kind, reason = releases.kernel("1-a")
    assert kind == "python"
    assert reason.startswith("understudy_kernel is not installed: its wheel is not for this platform (")


def test_a_release_without_the_wheel_notes_why_the_twin_runs(tmp_path: Path) -> None:
    releases, commands = Releases(tmp_path), KernelCommands("python understudy_kernel is not installed\n")
    assert releases.kernel("1-a") == ("", "")
    releases.install("1-a", archive_of(tmp_path, "pip-25-py3-none-any.whl"), sys.executable, commands)
    assert not any("understudy-kernel" in command for command in commands.ran)
    assert releases.kernel("1-a") == ("python", "understudy_kernel is not installed")


def test_wheels_are_unpacked_without_the_extraction_filters_of_python_3_11_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12 has Python 3.11.2; on a newer interpreter ``extractall`` refuses here as it would there."""

    def extract(*_: object, **options: object) -> None:
        assert "filter" not in options, "extraction filters came with Python 3.11.4"

    monkeypatch.setattr(tarfile.TarFile, "extractall", extract)
    monkeypatch.setattr(tarfile.TarFile, "extract", extract)
    seen: list[str] = []

    def run(command: Sequence[str]) -> tuple[int, str, str]:
        if "install" in command:
            wheels = Path(command[command.index("--find-links") + 1])
            seen.extend(sorted(path.name for path in wheels.iterdir() if zipfile.is_zipfile(path)))
        return Commands()(command)

    releases = Releases(tmp_path)
    releases.install("1-a", archive_of(tmp_path, "pip-25-py3-none-any.whl", "b-1.whl"), sys.executable, run)
    assert seen == ["b-1.whl", "pip-25-py3-none-any.whl"]


@pytest.mark.parametrize("step", ["venv", "install", "compileall"])
def test_an_interrupted_installation_is_never_used_and_starts_over(tmp_path: Path, step: str) -> None:
    releases = Releases(tmp_path)
    archive = archive_of(tmp_path, "pip-25-py3-none-any.whl")
    with pytest.raises(ReleaseError, match="ended with 1:\nno"):
        releases.install("1-a", archive, sys.executable, Commands(step))
    assert releases.installed() == []
    with pytest.raises(ReleaseError, match="not completely installed"):
        releases.switch("1-a")
    releases.install("1-a", archive, sys.executable, Commands())
    releases.switch("1-a")
    assert releases.current() == "1-a"


@pytest.mark.parametrize("names", [("../pip-1.whl",), ("pip-1.whl", "evil.sh"), ("pip-1.whl", "d/x.whl")])
def test_an_archive_with_anything_but_wheels_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ReleaseError, match="which is no wheel"):
        Releases(tmp_path).install("1-a", archive_of(tmp_path, *names), sys.executable, Commands())


def test_an_archive_without_pip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="holds no pip wheel"):
        Releases(tmp_path).install("1-a", archive_of(tmp_path, "a-1.whl"), sys.executable, Commands())


def test_the_link_is_relative_and_moves(tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    assert releases.current() == ""
    for at, name in enumerate(("1-a", "2-b")):
        finish(releases, name, at)
        releases.switch(name)
        assert releases.current() == name
        assert os.readlink(releases.link) == f"releases/{name}"


def test_old_releases_are_surplus_but_never_the_current_or_a_needed_one(tmp_path: Path) -> None:
    releases = Releases(tmp_path)
    for at, name in enumerate(("1-a", "2-b", "3-c", "4-d", "5-e")):
        finish(releases, name, at)
    releases.switch("1-a")
    assert releases.installed() == ["5-e", "4-d", "3-c", "2-b", "1-a"]
    assert releases.surplus(2, ["2-b"]) == ["4-d", "3-c"]
    assert releases.surplus(9, []) == []
    releases.remove("3-c")
    assert "3-c" not in releases.installed()
