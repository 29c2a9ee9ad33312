"""Goal: the unit of the role broker_quorum runs a command that the broker's own command line accepts.

Method: the unit is rendered with the variables of the role; the command line parses its ExecStart.
"""

from __future__ import annotations

import shlex
from pathlib import Path, PurePosixPath

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from understudy.cli.node.witness import witness

ROLE = Path(__file__).resolve().parents[3] / "roles" / "broker_quorum"


def trusted(value: object) -> object:
    """The same with every text a template, as Ansible reads it from a role."""
    if isinstance(value, str):
        return trust_as_template(value)
    return [trusted(each) for each in value] if isinstance(value, list) else value


def unit(**inputs: object) -> dict[str, str]:
    """Settings of the rendered unit."""
    variables: dict[str, object] = {"inventory_hostname": "quorum-1", "role_path": str(ROLE)}
    for name in ("defaults", "vars"):
        variables.update(yaml.safe_load((ROLE / name / "main.yml").read_text()))
    variables.update({"broker_quorum_listen": ["10.0.0.3:61619"], "broker_quorum_secret": "x" * 24, **inputs})
    templar = Templar(DataLoader(), {name: trusted(value) for name, value in variables.items()})
    text = str(templar.template(trust_as_template((ROLE / "templates" / "witness.service.j2").read_text())))
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def options(settings: dict[str, str]) -> dict[str, object]:
    """Options of ``understudy witness run`` as click reads them."""
    program, group, command, *arguments = [each.replace("%%", "%") for each in shlex.split(settings["ExecStart"])]
    assert (program, group, command) == ("/opt/understudy/current/bin/understudy", "witness", "run")
    return witness.commands["run"].make_context("run", arguments).params


def test_the_command_line_accepts_the_command_of_the_unit() -> None:
    given = options(unit())
    assert given["addresses"] == ("10.0.0.3:61619",)
    assert given["directory"] == Path("/var/lib/understudy-witness")
    assert given["secret_file"] == Path("/etc/understudy/witness-secret")
    assert given["lease_max_ms"] == 10_000
    assert given["metrics"] is None


def test_every_input_of_the_service_reaches_the_command() -> None:
    settings = unit(
        broker_quorum_listen=["10.0.0.3:61619", "[2001:db8::3]:61619"],
        broker_quorum_directory="/srv/50% of it",
        broker_quorum_metrics="127.0.0.1:9100",
        broker_quorum_lease_max_ms=20_000,
        broker_quorum_user="witness",
    )
    given = options(settings)
    assert given["addresses"] == ("10.0.0.3:61619", "[2001:db8::3]:61619")
    assert given["directory"] == Path("/srv/50% of it")
    assert (given["metrics"], given["lease_max_ms"]) == ("127.0.0.1:9100", 20_000)
    assert (settings["User"], settings["Group"]) == ("witness", "witness")
    assert shlex.split(settings["ReadWritePaths"]) == ["/srv/50%% of it"]


def test_the_witness_may_write_its_state_and_nothing_else() -> None:
    settings = unit()
    assert settings["ProtectSystem"] == "strict"
    (writable,) = shlex.split(settings["ReadWritePaths"])
    assert PurePosixPath(writable) == PurePosixPath("/var/lib/understudy-witness")
    assert "x" * 24 not in str(settings)
