"""``understudy config diff``, ``drop`` and ``adopt``: the changes of the management CLI beside broker.xml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.dmr import FULL_HA
from understudy.cli.node.configuration.commands import config
from understudy.config.edit import Clear, Ensure, Set, Target
from understudy.config.edit.overlay import Override
from understudy.errors import ConfigError
from understudy.runtime.files.overlay_file import overlay_writer, read_overlay, write_overlay

POLICY = "core/ha-policy/shared-store/backup"


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "broker.xml").write_text(FULL_HA)
    return tmp_path


def broker_xml(instance: Path) -> Path:
    return instance / "etc" / "broker.xml"


def write(instance: Path, *targets: Target) -> None:
    with overlay_writer(broker_xml(instance)):
        write_overlay(broker_xml(instance), [Override(each, "2026-11-30", "token", "a line") for each in targets])


def run(instance: Path, *arguments: str) -> Result:
    return CliRunner().invoke(config, [*arguments, "--instance", str(instance)])


def test_changes_are_shown_with_their_difference_and_without_secrets(instance: Path) -> None:
    write(instance, Set("core/name", "node"), Ensure(POLICY), Set("core/cluster-password", "a long secret of ours"))
    found = run(instance, "diff", "--json")
    assert found.exit_code == 1, found.output
    rows = json.loads(found.output)
    assert [(each["path"], each["state"], each["value"], each["differs"]) for each in rows] == [
        ("core/name", "set", "node", False),
        (POLICY, "present", None, True),
        ("core/cluster-password", "set", "***", True),
    ]
    assert "secret of ours" not in found.output + run(instance, "diff").output


def test_no_changes_are_no_difference(instance: Path) -> None:
    for _ in range(2):
        assert run(instance, "diff").exit_code == 0
        write(instance)
    assert run(instance, "drop", "--all").output == "nothing to drop\n"
    assert run(instance, "adopt").output == "nothing to adopt\n"


def test_changes_of_a_place_and_in_it_are_dropped(instance: Path) -> None:
    write(instance, Ensure(POLICY), Set(f"{POLICY}/restart-backup", "false"), Set("core/name", "x"))
    assert run(instance, "drop", "core/ha-policy", "--dry-run").output.endswith("nothing was written\n")
    assert len(read_overlay(broker_xml(instance))) == 3
    dropped = run(instance, "drop", "core/ha-policy")
    assert dropped.output == f"dropped: {POLICY}\ndropped: {POLICY}/restart-backup\n"
    assert [each.target for each in read_overlay(broker_xml(instance))] == [Set("core/name", "x")]
    assert run(instance, "drop", "--all").output == "dropped: core/name\n"
    assert read_overlay(broker_xml(instance)) == ()


def test_a_drop_that_the_reader_refuses_drops_nothing(instance: Path) -> None:
    connector = "core/connectors/connector[@name='netty']"
    reference = "core/cluster-connections/cluster-connection[@name='my-cluster']/connector-ref"
    write(instance, Set(connector, "tcp://127.0.0.1:5445"), Set(reference, "netty"))
    refused = run(instance, "drop", connector)
    assert isinstance(refused.exception, ConfigError)
    assert "netty" in str(refused.exception)
    assert len(read_overlay(broker_xml(instance))) == 2
    missing = run(instance, "drop", "core/nothing")
    assert isinstance(missing.exception, ConfigError)
    assert run(instance, "drop").exit_code == 2
    assert run(instance, "drop", "--all", "core/name").exit_code == 2


def test_adopted_changes_are_in_broker_xml_and_its_comments_stay(instance: Path) -> None:
    group = "core/broadcast-groups/broadcast-group[@name='bg-group1']"
    write(instance, Set("core/name", "x"), Ensure(POLICY), Clear(group))
    tried = run(instance, "adopt", "--dry-run")
    assert "+  <name>x</name>" in tried.output
    assert broker_xml(instance).read_text() == FULL_HA
    assert run(instance, "adopt").exit_code == 0
    text = broker_xml(instance).read_text()
    assert "<name>x</name>" in text
    assert "<!-- the cluster -->" in text
    assert "bg-group1" not in text
    assert read_overlay(broker_xml(instance)) == ()
    assert run(instance, "diff").exit_code == 0


def test_a_change_in_an_included_file_is_not_adopted(instance: Path) -> None:
    (instance / "etc" / "more.xml").write_text('<diverts xmlns="urn:activemq:core"/>')
    include = '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="more.xml"/>'
    broker_xml(instance).write_text(FULL_HA.replace("<name>node</name>", f"<name>node</name>{include}"))
    divert = "core/diverts/divert[@name='d']"
    write(instance, Set(f"{divert}/address", "a"), Set(f"{divert}/forwarding-address", "b"))
    refused = run(instance, "adopt")
    assert isinstance(refused.exception, ConfigError)
    assert "more.xml" in str(refused.exception)
    assert len(read_overlay(broker_xml(instance))) == 2


def test_the_configuration_is_printed_with_its_changes(instance: Path) -> None:
    assert run(instance, "print").output == FULL_HA
    write(instance, Set("core/name", "other"), Clear("core/broadcast-groups/broadcast-group[@name='bg-group1']"))
    printed = run(instance, "print")
    assert printed.exit_code == 0
    assert "<name>other</name>" in printed.output
    assert "bg-group1" not in printed.output
    assert "<!-- the cluster -->" in printed.output
    assert broker_xml(instance).read_text() == FULL_HA


def test_changes_that_broker_xml_has_as_well_are_dropped(instance: Path) -> None:
    write(instance, Set("core/name", "node"), Ensure(POLICY), Set(f"{POLICY}/restart-backup", "false"))
    assert run(instance, "drop", "--superfluous", "--dry-run").output == "dropped: core/name\nnothing was written\n"
    assert run(instance, "drop", "--superfluous").output == "dropped: core/name\n"
    assert [each.target for each in read_overlay(broker_xml(instance))] == [
        Ensure(POLICY),
        Set(f"{POLICY}/restart-backup", "false"),
    ]
    effective = run(instance, "print").output
    broker_xml(instance).write_text(effective)
    assert run(instance, "drop", "--superfluous").output.count("dropped: ") == 2
    assert run(instance, "print").output == effective
    assert run(instance, "drop", "--superfluous").output == "nothing to drop\n"
    assert run(instance, "drop", "--superfluous", "--all").exit_code == 2
