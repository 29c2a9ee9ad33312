"""The overlay beside a broker.xml: a crash at any step of a write, one writer at a time, and the reader's errors."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from support.dmr import FULL_HA
from understudy.config.edit import Set
from understudy.config.edit.overlay import Override
from understudy.errors import ConfigError
from understudy.runtime.files import overlay_file
from understudy.runtime.files.configuration_file import ConfigurationFile
from understudy.runtime.files.overlay_file import overlay_of, overlay_writer, read_overlay, write_overlay

#: Steps of a write, and the calls of each.
STEPS = [("write", 1), ("fsync", 1), ("replace", 1), ("fsync", 2), ("fsync", 3)]


def override(hops: str) -> Override:
    return Override(
        Set("core/cluster-connections/cluster-connection[@name='my-cluster']/max-hops", hops), "now", "user", "line"
    )


OLD, NEW = (override("1"),), (override("2"), Override(Set("core/name", "x"), "now", "user", "line"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    path = tmp_path / "etc" / "broker.xml"
    path.write_text(FULL_HA)
    return path


def test_the_first_write_makes_the_directory(config: Path) -> None:
    assert read_overlay(config) == ()
    with overlay_writer(config):
        write_overlay(config, OLD)
    assert read_overlay(config) == OLD
    assert overlay_of(config) == config.parent / "broker.d" / "50-cli.json"
    assert overlay_of(config).stat().st_mode & 0o777 == 0o600
    assert [each.name for each in overlay_of(config).parent.iterdir()] == ["50-cli.json"]


@pytest.mark.parametrize("after", [False, True], ids=["before the step", "after the step"])
@pytest.mark.parametrize("first", [False, True], ids=["with an overlay", "without one"])
@pytest.mark.parametrize(("step", "call"), STEPS)
def test_a_process_that_is_killed_at_a_step_leaves_one_whole_overlay(
    config: Path, step: str, call: int, *, first: bool, after: bool
) -> None:
    if not first:
        with overlay_writer(config):
            write_overlay(config, OLD)
    child = os.fork()
    if child == 0:
        _write_and_die(config, step, call, after=after)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, "the step was not reached"
    renamed = (step, call) in (("fsync", 2), ("fsync", 3)) or (step == "replace" and after)
    assert read_overlay(config) == (NEW if renamed else () if first else OLD)
    ConfigurationFile(config, config.parent.parent).load()
    with overlay_writer(config):
        write_overlay(config, NEW)
    assert read_overlay(config) == NEW


def _write_and_die(config: Path, step: str, call: int, *, after: bool) -> None:
    """Write the overlay, and end the process before or after one call of a step."""
    calls = 0

    def dying(real):  # type: ignore[no-untyped-def]
        def made(*arguments, **more):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            if calls == call and not after:
                os._exit(9)
            result = real(*arguments, **more)
            if calls == call:
                os._exit(9)
            return result

        return made

    if step == "write":
        opened = os.fdopen

        def half(descriptor: int, *arguments: object) -> object:
            os.write(descriptor, b'{"format": 1, "over')
            if not after:
                os._exit(9)
            file = opened(descriptor, "wb")
            file.write(b'rides": []}')
            file.flush()
            os._exit(9)

        overlay_file.os.fdopen = half  # type: ignore[assignment]
    else:
        setattr(overlay_file.os, step, dying(getattr(os, step)))
    with overlay_writer(config):
        write_overlay(config, NEW)


@pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")
def test_the_owner_of_the_file_or_its_directory_stays(config: Path) -> None:
    with overlay_writer(config):
        os.chown(overlay_of(config).parent, 1234, 2345)
        write_overlay(config, OLD)
        assert (overlay_of(config).stat().st_uid, overlay_of(config).stat().st_gid) == (1234, 2345)
        os.chown(overlay_of(config), 1235, 2346)
        write_overlay(config, NEW)
    assert (overlay_of(config).stat().st_uid, overlay_of(config).stat().st_gid) == (1235, 2346)


def test_a_write_that_fails_leaves_the_old_overlay(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with overlay_writer(config):
        write_overlay(config, OLD)

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(overlay_file.os, "fsync", full)
        with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
            write_overlay(config, NEW)
    assert read_overlay(config) == OLD
    assert [each.name for each in overlay_of(config).parent.iterdir()] == ["50-cli.json"]


def test_a_second_writer_is_refused_while_another_one_writes(config: Path) -> None:
    with (
        overlay_writer(config),
        pytest.raises(ConfigError, match="another change of the configuration is being made"),
        overlay_writer(config),
    ):
        raise AssertionError("two writers at once")
    with overlay_writer(config):
        write_overlay(config, OLD)


def test_the_lock_of_a_killed_writer_is_free(config: Path) -> None:
    child = os.fork()
    if child == 0:
        with overlay_writer(config):
            os._exit(9)
    os.waitpid(child, 0)
    with overlay_writer(config):
        descriptor = os.open(overlay_of(config).parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


# --- the reader with the overlay -------------------------------------------------------------------------------------


def write(config: Path, *overrides: Override) -> ConfigurationFile:
    with overlay_writer(config):
        write_overlay(config, overrides)
    return ConfigurationFile(config, config.parent.parent)


def test_the_overlay_counts_instead_of_broker_xml_and_is_a_warning(config: Path) -> None:
    loaded = write(config, *NEW).load()
    assert loaded.configuration.name == "x"
    assert loaded.configuration.cluster_connections[0].max_hops == 2
    assert loaded.overrides == 2
    assert any("override broker.xml (2)" in str(each) for each in loaded.warnings)
    assert str(overlay_of(config)) in loaded.included
    assert config.read_text() == FULL_HA


def test_an_empty_overlay_changes_nothing(config: Path) -> None:
    before = ConfigurationFile(config, config.parent.parent).load()
    loaded = write(config).load()
    assert (loaded.overrides, loaded.warnings) == (0, before.warnings)
    assert loaded.configuration == before.configuration


def test_an_overlay_that_makes_broker_xml_unusable_is_named(config: Path) -> None:
    source = write(config, override("many"))
    with pytest.raises(ConfigError, match=r"50-cli\.json: .*is usable, but not with the changes in this file: .*many"):
        source.load()


def test_an_error_of_broker_xml_itself_has_its_own_line(config: Path) -> None:
    source = write(config, override("2"))
    config.write_text(FULL_HA.replace("<name>node</name>", "<name>node</name><nothing/>"))
    with pytest.raises(ConfigError, match=r"broker\.xml:2 .*nothing"):
        source.load()
