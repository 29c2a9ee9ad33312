"""The lines of document 001 on instances of the preset, in the groups in which the document gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.dmr import Configured
from support.document_lines import LINES, Line
from understudy.config.instance_files import FullHa, InstanceOptions, broker_xml

SHARED = (391, 393, 400, 411, 417)
TRANSPORTS = (495, 497, 501, 503, 508, 510, 515, 517, 521, 526, 528, 533)
#: The numbers of the lines that belong together, each group for an instance of its own.
GROUPS = {
    "first policy": (50, 58),
    "replication, live": (122, 135, 349),
    "replication, backup": (128, 149),
    "shared store, live": (291, 299),
    "shared store, backup": (294, 313, 345, 359, 363),
    "colocated, shared store, node one": (*SHARED, *range(434, 450, 2), *TRANSPORTS),
    "colocated, shared store, node two": (*SHARED, *range(452, 468, 2), *TRANSPORTS),
    "colocated, replication, node one": (391, 393, 404, 411, 421, *range(472, 480, 2), *TRANSPORTS),
    "colocated, replication, node two": (391, 393, 406, 411, 423, *range(482, 490, 2), *TRANSPORTS),
    "reviewed": (564, 568),
}
FIRST_OUTPUT = """\
{
    "outcome" => "success",
    "result" => {
        "check-for-live-server" => false,
        "cluster-name" => undefined,
        "group-name" => undefined,
        "initial-replication-sync-timeout" => 30000L
    }
}"""


def lines_of(group: str) -> Iterator[Line]:
    numbered = {line.number: line for line in LINES}
    return (numbered[number] for number in GROUPS[group])


def test_every_line_that_can_be_carried_out_is_in_a_group() -> None:
    runnable = {line.number for line in LINES if not line.has_placeholder}
    assert {number for numbers in GROUPS.values() for number in numbers} == runnable
    assert len(runnable) == 61


@pytest.fixture
def preset(tmp_path: Path) -> Configured:
    options = InstanceOptions("node", host="10.0.0.1", full_ha=FullHa("a password of our own, long"))
    return Configured(tmp_path, broker_xml(options))


@pytest.mark.parametrize("group", GROUPS)
def test_the_lines_of_a_group_are_carried_out_on_a_fresh_instance(preset: Configured, group: str) -> None:
    for line in lines_of(group):
        answer = preset.carry_out(line.parsed())
        assert answer["outcome"] == "success", line
    loaded = preset.loaded
    assert not preset.waiting
    assert ("backup" in [each.configuration.name for each in loaded.servers]) == group.startswith("colocated")


def test_the_output_of_the_first_read_is_that_of_the_document(preset: Configured) -> None:
    *_, add, read = lines_of("first policy")
    preset.carry_out(add.parsed())
    assert preset.printed(str(read.parsed())) == FIRST_OUTPUT


#: Values for the placeholders of the six lines that have one.
VALUES = {
    "<SERVER>": "default",
    "<POLICY>": "shared-store-slave",
    "<ATTRIBUTE>": "restart-backup",
    "<VALUE>": "false",
    "<NEW_VALUE>": "5",
}


def test_the_lines_with_placeholders_are_carried_out_with_values(preset: Configured) -> None:
    lines = [line for line in LINES if line.has_placeholder]
    assert len(lines) == 6
    for line in lines:
        text = str(line.parsed())
        for name, value in VALUES.items():
            text = text.replace(f'"{name}"', value).replace(name, value)
        assert preset.carry_out(text)["outcome"] == "success", text
    (factory,) = preset.loaded.configuration.connection_factories
    assert {("reconnectAttempts", "5"), ("initialConnectAttempts", "5")} <= set(factory.parameters)


def test_a_server_that_was_added_is_removed(preset: Configured) -> None:
    preset.carry_out("/subsystem=messaging-activemq/server=backup:add")
    assert [each.configuration.name for each in preset.loaded.servers] == ["backup"]
    preset.carry_out("/subsystem=messaging-activemq/server=backup:remove")
    assert preset.loaded.servers == ()


def test_a_colocated_policy_is_made_by_lines(preset: Configured) -> None:
    policy = "/subsystem=messaging-activemq/server=default/ha-policy=replication-colocated"
    preset.carry_out(f"{policy}:add(request-backup=true,max-backups=2,excluded-connectors=[])")
    preset.carry_out(f"{policy}/configuration=primary:add(group-name=a)")
    preset.carry_out(f"{policy}/configuration=slave:add(group-name=b,allow-failback=false)")
    assert preset.result(f"{policy}:read-children-names(child-type=configuration)") == ["master", "slave"]
    assert preset.result(f"{policy}/configuration=slave:read-attribute(name=group-name)") == "b"
    found = preset.loaded.configuration.ha_policy
    assert found.colocated is not None
    assert (found.colocated.request_backup, found.colocated.max_backups) == (True, 2)
    assert found.replication is not None
    assert found.replication.group_name == "a"
    assert found.colocated.backup.allow_failback is False
    preset.carry_out(f"{policy}/configuration=slave:remove")
    assert preset.result(f"{policy}:read-children-names(child-type=configuration)") == ["master"]


def test_an_http_acceptor_and_connector_are_made_by_lines(preset: Configured) -> None:
    server = "/subsystem=messaging-activemq/server=default"
    preset.carry_out("/socket-binding-group=standard-sockets/socket-binding=web:add(port=8080)")
    preset.carry_out(f"{server}/http-acceptor=web:add(http-listener=web)")
    preset.carry_out(f"{server}/http-connector=web:add(socket-binding=web,endpoint=web)")
    preset.carry_out(f"{server}/cluster-connection=my-cluster:write-attribute(name=connector-name,value=web)")
    assert preset.result(f"{server}:read-children-names(child-type=http-acceptor)") == ["http-acceptor", "web"]
    assert preset.result(f"{server}:read-children-names(child-type=remote-acceptor)") == []
    connector = preset.loaded.configuration.connector("web")
    assert connector.parameters["activemqServerName"] == "node"
    assert connector.url == "tcp://10.0.0.1:8080"
