"""Goal: the broker may write every directory its configuration can name, and systemd notices one that stands still.

Method: the unit is rendered with the variables of the role and nothing else; the elements that name directories are
those of the broker's generated page.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.understudy.broker.plugins.module_utils.store import subdirectories

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles" / "broker_service"
STORE = "/srv/store"
INSTANCE = "/srv/instance"


def trusted(value: object) -> object:
    """The same with every text a template, as Ansible reads it from a role."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return {key: trusted(each) for key, each in value.items()} if isinstance(value, dict) else value


def text_of_unit(**inputs: object) -> str:
    """The rendered unit."""
    variables: dict[str, object] = {"inventory_hostname": "east-1", "role_path": str(ROLE)}
    for name in ("defaults", "vars"):
        variables.update(yaml.safe_load((ROLE / name / "main.yml").read_text()))
    # The filter of the command is not known outside Ansible.
    variables.update({"__broker_service_command": ["/srv/understudy"], "broker_service_store": STORE})
    variables.update({"broker_service_instance": INSTANCE, **inputs})
    templar = Templar(DataLoader(), {name: trusted(value) for name, value in variables.items()})
    return str(templar.template(trust_as_template((ROLE / "templates" / "understudy.service.j2").read_text())))


def unit(**inputs: object) -> dict[str, list[str]]:
    """The settings of the rendered unit, each with its values."""
    settings: dict[str, list[str]] = {}
    for line in text_of_unit(**inputs).splitlines():
        if "=" in line and not line.startswith("#"):
            name, value = line.split("=", 1)
            settings[name] = [each.replace("%%", "%") for each in shlex.split(value)]
    return settings


def covered(path: str | Path, settings: dict[str, list[str]]) -> bool:
    """Whether the unit may write there."""
    return any(PurePosixPath(path).is_relative_to(each) for each in settings["ReadWritePaths"])


def named_directories() -> set[str]:
    """Every element of ``core`` that names a directory."""
    found = set(
        re.findall(r"^\| `([a-z-]+-directory)` \| path \|", (ROOT / "docs/operate/configuration.md").read_text(), re.M)
    )
    assert "journal-directory" in found
    return found


def test_every_directory_that_the_configuration_can_name_is_writable() -> None:
    inside = {f"{noun}-directory": path for noun, path in subdirectories(Path(STORE)).items()}
    elsewhere = named_directories() - set(inside)
    assert elsewhere == {"journal-retention-directory"}, "an element that neither the store nor the unit knows of"
    settings = unit(broker_service_retention="/archive/kept")
    for path in [*inside.values(), f"{INSTANCE}/log", f"{INSTANCE}/run", f"{INSTANCE}/etc/broker.d", "/archive/kept"]:
        assert covered(path, settings), path
    for path in ("/archive", INSTANCE, f"{INSTANCE}/etc", "/srv/understudy", "/"):
        assert not covered(path, settings), path


@pytest.mark.parametrize(
    ("given", "path"),
    [("kept", f"{INSTANCE}/kept"), ("/archive/kept", "/archive/kept"), ("/with space/50%", "/with space/50%")],
)
def test_the_directory_of_retained_segments(given: str, path: str) -> None:
    settings = unit(broker_service_retention=given)
    assert path in settings["ReadWritePaths"]
    assert path in settings["RequiresMountsFor"]


def test_without_retention_there_is_nothing_more() -> None:
    settings = unit()
    assert settings["ReadWritePaths"] == [STORE, f"{INSTANCE}/log", f"{INSTANCE}/run", f"{INSTANCE}/etc/broker.d"]
    assert settings["RequiresMountsFor"] == [STORE, INSTANCE]


def test_the_mount_point_of_the_store_is_asserted_at_every_start() -> None:
    assert "AssertPathIsMountPoint" not in unit()
    settings = unit(broker_service_mount_point="/srv/50%")
    assert settings["AssertPathIsMountPoint"] == ["/srv/50%"]
    assert settings["RequiresMountsFor"] == [STORE, INSTANCE]


def test_at_a_shutdown_of_the_host_the_broker_is_stopped_before_the_network() -> None:
    assert {"network.target", "network-online.target"} <= set(unit()["After"])


def test_a_broker_that_stands_still_is_noticed() -> None:
    settings = unit()
    assert settings["NotifyAccess"] == ["main"]
    assert settings["WatchdogSec"] == ["120"]
    assert unit(broker_service_watchdog_s=0)["WatchdogSec"] == ["0"]


@pytest.mark.parametrize(
    ("element", "directory"),
    [("", ""), ("kept", "kept"), ({"#text": "/archive", "@period": "7"}, "/archive"), ({"@unit": "DAYS"}, "")],
)
def test_store_and_service_get_the_directory_of_the_element(element: object, directory: str) -> None:
    variables = yaml.safe_load((ROOT / "roles/broker/vars/main.yml").read_text())
    names = {name: trusted(value) for name, value in variables.items()}
    templar = Templar(DataLoader(), {**names, "broker_config_extra": {"journal-retention-directory": element}})
    assert templar.template(trust_as_template("{{ __broker_retention }}")) == directory
    for phase, name in (("store", "broker_store_retention"), ("service", "broker_service_retention")):
        (task,) = yaml.safe_load((ROOT / f"roles/broker/tasks/{phase}.yml").read_text())
        assert task["vars"][name] == "{{ __broker_retention }}"
    tasks = yaml.safe_load((ROOT / "roles/broker_store/tasks/main.yml").read_text())
    made = [task["ansible.builtin.file"]["path"] for task in tasks if "retained" in task["name"]]
    assert made == ["{{ [broker_store_instance, broker_store_retention] | path_join }}"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze of the package systemd is missing")
def test_the_exposure_is_the_one_that_the_readme_states(tmp_path: Path) -> None:
    file = tmp_path / "understudy-east-1.service"
    file.write_text(text_of_unit())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    (found,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+) ", done.stdout)
    (stated,) = re.findall(r"`systemd-analyze security`[^.]*: ([0-9.]+[0-9])", (ROLE / "README.md").read_text())
    assert float(found) <= float(stated), done.stdout
