"""Every argument and option of every command that takes a path refuses URLs of schemes that are not served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from understudy.cli.main import LocalPath, cli


def _commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*names, name))


_PATHS = [
    pytest.param(parameter, id=f"{' '.join(names)} {parameter.name}")
    for names, command in _commands(cli)
    for parameter in command.params
    if isinstance(parameter.type, click.Path)
]


@pytest.mark.parametrize("parameter", _PATHS)
def test_path_of_a_command_is_no_url(parameter: click.Parameter, tmp_path: Path) -> None:
    assert isinstance(parameter.type, LocalPath)
    with pytest.raises(click.BadParameter, match="files of the scheme s3a: are not read or written here"):
        parameter.type.convert("s3a://bucket/x", parameter, None)
    if not parameter.type.exists or parameter.type.dir_okay:
        kept = parameter.type.exists, parameter.type.file_okay, parameter.type.dir_okay
        wanted = tmp_path if parameter.type.dir_okay else tmp_path / "file"
        found = parameter.type.convert(wanted.as_uri(), parameter, None)
        assert os.fspath(found) == str(wanted)
        assert kept == (parameter.type.exists, parameter.type.file_okay, parameter.type.dir_okay)


@pytest.mark.parametrize(
    "arguments",
    [
        ["pipeline", "archive", "{store}", "-o", "s3a://bucket/x"],
        ["pipeline", "archive", "s3a://bucket/store", "-o", "{store}/out"],
        ["pipeline", "consolidate", "{store}", "-o", "hdfs://n/x"],
        ["pipeline", "flow", "{store}", "--parquet", "s3://bucket/x"],
        ["data", "export", "{store}", "-o", "gs://bucket/x"],
    ],
)
def test_command_with_a_url_makes_nothing_and_ends_with_code_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [each.format(store=store) for each in arguments])
    assert done.exit_code == 2
    assert "are not read or written here" in " ".join(done.output.split())
    assert sorted(tmp_path.rglob("*")) == [store]
