"""Goal: a step is left out only if the files, directories and units of a host are as it would make them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.understudy.broker.plugins.filter.filters import FilterModule
from ansible_collections.understudy.broker.plugins.module_utils import units
from ansible_collections.understudy.broker.plugins.module_utils.files import describe, in_place
from ansible_collections.understudy.broker.plugins.modules import configuration, directories, node_info

USER = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def wanted(tmp_path: Path) -> list[dict[str, Any]]:
    """A file and its directory, as they are wanted and not made yet."""
    return [
        {"path": str(tmp_path / "etc"), "mode": "0750", "owner": USER},
        {"path": str(tmp_path / "etc/service.json"), "content": "{}\n", "mode": "0640", "group": ""},
    ]


def seen(wanted: list[dict[str, Any]]) -> dict[str, Any]:
    found = {each["path"]: describe(Path(each["path"])) for each in wanted}
    return {path: each for path, each in found.items() if each is not None}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: path.unlink(), id="missing"),
        pytest.param(lambda path: path.write_text("{}"), id="other content"),
        pytest.param(lambda path: path.chmod(0o644), id="other mode"),
        pytest.param(lambda path: path.parent.chmod(0o755), id="other mode of the directory"),
        pytest.param(lambda path: path.with_name("service.json.staged").touch(), id="staged"),
        pytest.param(lambda path: (path.rename(path.parent / "x"), path.symlink_to("x")), id="a link"),
        pytest.param(lambda path: (path.unlink(), path.mkdir(0o640)), id="a directory"),
    ],
)
def test_what_the_modules_make_is_in_place_and_nothing_else(
    wanted: list[dict[str, Any]], run_module: Any, change: Callable[[Path], object]
) -> None:
    assert not in_place(wanted, seen(wanted))
    run_module(directories, directories=[wanted[0]])
    assert not in_place(wanted, seen(wanted))
    file = {key: value for key, value in wanted[1].items() if value}
    run_module(configuration, **file)
    assert in_place(wanted, seen(wanted))
    assert not run_module(configuration, **file)["changed"]
    change(Path(wanted[1]["path"]))
    assert not in_place(wanted, seen(wanted))


def test_another_owner_or_group_is_not_in_place(wanted: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir(mode=0o750)
    (tmp_path / "etc").chmod(0o750)
    assert in_place(wanted[:1], seen(wanted))
    for key in ("owner", "group"):
        assert not in_place([wanted[0] | {key: "another-name"}], seen(wanted))


def test_a_number_stands_for_an_owner_without_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(_number: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", fails)
    found = describe(tmp_path)
    assert found is not None
    assert found["owner"] == str(os.geteuid())


def test_node_info_returns_them(wanted: list[dict[str, Any]], tmp_path: Path, run_module: Any) -> None:
    run_module(directories, directories=[wanted[0]])
    result = run_module(node_info, directory=str(tmp_path / "none"), files=[each["path"] for each in wanted])
    assert result["files"] == seen(wanted)
    assert list(result["files"]) == [wanted[0]["path"]]


SERVICE = {"name": "a.service", "enabled": True}
MOUNT = {"name": "a.mount", "content": "[Mount]\n", "enabled": True, "state": "started"}
GONE = {"name": "old.service", "state": "absent"}
READ = {"enabled": True, "active": True, "outdated": False}


@pytest.mark.parametrize(
    ("states", "there"),
    [
        ({"a.service": READ, "a.mount": READ}, True),
        ({"a.service": READ | {"active": False}, "a.mount": READ}, True),
        ({"a.service": READ, "a.mount": READ | {"active": False}}, False),
        ({"a.service": READ | {"enabled": False}, "a.mount": READ}, False),
        ({"a.service": READ | {"outdated": True}, "a.mount": READ}, False),
        ({"a.service": READ, "a.mount": READ, "old.service": READ}, False),
        ({"a.mount": READ}, False),
        ({}, False),
    ],
)
def test_units_are_in_place_if_systemd_has_nothing_to_do(
    states: dict[str, dict[str, bool]], there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "DIRECTORY", tmp_path)
    path = tmp_path / "a.mount"
    path.write_text("[Mount]\n")
    path.chmod(0o644)
    found: dict[str, Any] = {str(path): describe(path)}
    assert units.in_place([SERVICE, MOUNT, GONE], found, states) is there
    path.write_text("[Mount]\nWhat=x\n")
    assert not units.in_place([SERVICE, MOUNT, GONE], {str(path): describe(path)}, states)
    assert not units.in_place([SERVICE, MOUNT, GONE], {}, states)


def test_the_filters_take_the_result_of_node_info() -> None:
    filters: Any = FilterModule().filters()
    assert filters["units_in_place"]([SERVICE, GONE], {"units": {"a.service": READ}})
    assert not filters["units_in_place"]([SERVICE], {})
    assert filters["in_place"]([], {})
    with pytest.raises(AnsibleFilterError, match="in_place: KeyError: 'path'"):
        filters["in_place"]([{}], {})
    with pytest.raises(AnsibleFilterError, match="units_in_place: KeyError: 'name'"):
        filters["units_in_place"]([{}], {})
