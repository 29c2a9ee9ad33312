"""Goal: units writes, enables and starts, and directories makes and changes, only the parts that differ."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.units import mount_unit_name
from ansible_collections.understudy.broker.plugins.modules import directories, node_info, units
from hypothesis import given
from hypothesis import strategies as st

SYSTEMCTL = """#!/bin/sh
echo "$@" >>"$STATE/commands"
case $1 in
show)
    shift 2
    for unit in "$@"; do
        enabled=disabled; active=inactive; reload=no
        [ -e "$STATE/$unit.enabled" ] && enabled=enabled
        [ -e "$STATE/$unit.active" ] && active=active
        [ -e "$STATE/$unit.outdated" ] && reload=yes
        printf 'Id=%s\\nActiveState=%s\\nUnitFileState=%s\\nNeedDaemonReload=%s\\n\\n' \\
            "$unit" "$active" "$enabled" "$reload"
    done ;;
daemon-reload) rm -f "$STATE"/*.outdated ;;
enable) shift; for unit in "$@"; do : >"$STATE/$unit.enabled"; done ;;
disable) shift; for unit in "$@"; do rm -f "$STATE/$unit.enabled"; done ;;
start)
    shift
    [ -e "$STATE/broken" ] && { echo "Job failed" >&2; exit 1; }
    for unit in "$@"; do : >"$STATE/$unit.active"; done ;;
esac
"""
MOUNT = {"name": "srv.mount", "content": "[Mount]\n", "enabled": True, "state": "started"}
RETRY = {"name": "srv-retry.service", "content": "[Service]\n", "enabled": False}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of a systemctl that notes its commands."""
    for name in ("bin", "state", "system"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin/systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    for module in (units, node_info):
        monkeypatch.setattr(module, "DIRECTORY", tmp_path / "system")
    monkeypatch.setattr(node_info, "SYSTEMD", str(tmp_path))
    return tmp_path / "state"


def done(state: Path) -> list[str]:
    """Commands since the last call that change something."""
    path = state / "commands"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [line for line in lines if not line.startswith("show")]


def test_node_info_returns_units_that_have_a_file(
    state: Path, run_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_module(units, units=[RETRY, MOUNT])
    (state / "srv-retry.service.outdated").touch()
    arguments = {"directory": str(tmp_path / "none"), "units": ["srv.mount", "srv-retry.service", "other.service"]}
    found = run_module(node_info, **arguments)["units"]
    assert found == {
        "srv.mount": {"enabled": True, "active": True, "outdated": False},
        "srv-retry.service": {"enabled": False, "active": False, "outdated": True},
    }
    monkeypatch.setattr(node_info, "SYSTEMD", str(tmp_path / "none"))
    assert run_module(node_info, **arguments)["units"] == {}


def test_units_are_written_and_started_once(state: Path, run_module: Any) -> None:
    result = run_module(units, units=[RETRY, MOUNT])
    assert (result["changed"], result["written"]) == (True, ["srv-retry.service", "srv.mount"])
    assert done(state) == ["daemon-reload", "enable srv.mount", "start srv.mount"]
    assert (units.DIRECTORY / "srv.mount").read_text() == "[Mount]\n"
    assert (units.DIRECTORY / "srv.mount").stat().st_mode & 0o777 == 0o644
    again = run_module(units, units=[RETRY, MOUNT])
    assert (again["changed"], done(state)) == (False, [])


def test_a_changed_unit_that_runs_is_read_again_and_not_restarted(state: Path, run_module: Any) -> None:
    run_module(units, units=[MOUNT])
    done(state)
    result = run_module(units, units=[{**MOUNT, "content": "[Mount]\nWhat=x\n"}])
    assert result["changed"]
    assert result["diff"][0]["after"] == "[Mount]\nWhat=x\n"
    assert done(state) == ["daemon-reload"]


def test_a_unit_whose_change_systemd_has_not_read_is_read_again(state: Path, run_module: Any) -> None:
    """A run that was interrupted after it wrote the file."""
    (state / "understudy.service.outdated").touch()
    (state / "understudy.service.enabled").touch()
    run_module(units, units=[{"name": "understudy.service", "enabled": True}])
    assert done(state) == ["daemon-reload"]


def test_check_mode_changes_nothing(state: Path, run_module: Any) -> None:
    result = run_module(units, units=[MOUNT], check_mode=True)
    assert result["changed"]
    assert done(state) == []
    assert not list(units.DIRECTORY.iterdir())


def test_a_unit_is_not_enabled_any_more(state: Path, run_module: Any) -> None:
    run_module(units, units=[MOUNT])
    done(state)
    run_module(units, units=[{**MOUNT, "enabled": False}])
    assert done(state) == ["disable srv.mount"]


def test_a_unit_that_is_not_wanted_is_stopped_and_removed_once(state: Path, run_module: Any) -> None:
    run_module(units, units=[MOUNT])
    done(state)
    gone = [{"name": "srv.mount", "state": "absent"}]
    assert run_module(units, units=gone, check_mode=True)["changed"]
    assert (units.DIRECTORY / "srv.mount").exists()
    result = run_module(units, units=gone)
    assert result["removed"] == [str(units.DIRECTORY / "srv.mount")]
    assert done(state) == ["stop srv.mount", "disable srv.mount", "daemon-reload"]
    (state / "srv.mount.active").unlink()
    again = run_module(units, units=gone)
    assert (again["changed"], again["removed"], done(state)) == (False, [], [])


def test_a_missing_need_and_a_failed_start_are_named(state: Path, run_module: Any, tmp_path: Path) -> None:
    needs = [{"path": str(tmp_path / "mount.nfs4"), "otherwise": "install nfs-common"}]
    assert run_module(units, units=[MOUNT], needs=needs)["msg"] == "install nfs-common"
    assert not list(units.DIRECTORY.iterdir())
    (state / "broken").touch()
    assert run_module(units, units=[MOUNT])["msg"] == "systemctl start srv.mount ended with 1: Job failed"


def test_directories_are_made_once(tmp_path: Path, run_module: Any) -> None:
    wanted = [{"path": str(tmp_path / "a/b"), "mode": "0750"}, {"path": str(tmp_path / "a/b/c"), "mode": "0700"}]
    checked = run_module(directories, directories=wanted, check_mode=True)
    assert (checked["changed"], (tmp_path / "a").exists()) == (True, False)
    result = run_module(directories, directories=wanted)
    assert result["made"] == [each["path"] for each in wanted]
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c")] == [0o755, 0o750, 0o700]
    assert not run_module(directories, directories=wanted)["changed"]
    (tmp_path / "a/b/c").chmod(0o777)
    changed = run_module(directories, directories=wanted)
    assert (changed["changed"], changed["made"]) == (True, [])
    assert (tmp_path / "a/b/c").stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_place_of_a_directory_is_named(tmp_path: Path, run_module: Any) -> None:
    (tmp_path / "a").touch()
    result = run_module(directories, directories=[{"path": str(tmp_path / "a"), "mode": "0750"}])
    assert result["failed"]
    assert str(tmp_path / "a") in result["msg"]


NAMES = st.text(st.sampled_from("ab-._:\u00e9 \\%"), min_size=1, max_size=5).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(NAMES, max_size=3))
def test_names_of_mount_units_are_those_of_systemd(names: list[str]) -> None:
    path = "/" + "/".join(names)
    known = subprocess.run(
        ["systemd-escape", "--path", "--suffix=mount", path], capture_output=True, text=True, check=True
    )
    assert mount_unit_name(path) == known.stdout.strip()


@pytest.mark.parametrize("path", ["srv", "", "/srv/../x"])
def test_a_path_that_cannot_be_mounted_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="no absolute path"):
        mount_unit_name(path)
