"""The management CLI of a node that runs: lines, requests over HTTP, changes at once and after a reload."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.dmr import FULL_HA, SERVER
from support.ports import free_port
from support.processes import COMMAND
from understudy.cli.main import cli, exit_code_of
from understudy.cli.node.status import Place
from understudy.client import profile_url, sync
from understudy.config.edit.overlay import waiting
from understudy.errors import BrokerError, Unreachable
from understudy.runtime.files.overlay_file import overlay_of, overlay_writer, read_overlay

MASTER = f"{SERVER}/ha-policy=replication-master"
SLAVE = f"{SERVER}/ha-policy=shared-store-slave"
NONE: Mapping[str, str] = {}
RELOAD_REQUIRED = (
    "{\n"
    '    "outcome" => "success",\n'
    '    "response-headers" => {\n'
    '        "operation-requires-reload" => true,\n'
    '        "process-state" => "reload-required"\n'
    "    }\n"
    "}\n"
)


class Managed:
    """A node whose broker.xml has what the documents assume, and lines to it."""

    def __init__(self, directory: Path) -> None:
        self.instance = directory / "node"
        self.port, self.http = free_port(), free_port()
        self.log = directory / "log"
        (directory / "password").write_text("secret\n")
        options = ["--user", "admin", "--password-file", str(directory / "password")]
        subprocess.run([COMMAND, "create", self.instance, *options], check=True, stdout=subprocess.DEVNULL)
        without_groups = re.sub(r"<broadcast-groups>.*</broadcast-groups>", "", FULL_HA, flags=re.DOTALL)
        open_to_all = without_groups.replace("<name>node</name>", "<security-enabled>false</security-enabled>")
        self.config.write_text(open_to_all.replace("61616", str(self.port)))
        self.process = subprocess.Popen(
            [COMMAND, "run", "--instance", self.instance, "--http", f"127.0.0.1:{self.http}"],
            stderr=self.log.open("w"),
        )

    @property
    def config(self) -> Path:
        return self.instance / "etc" / "broker.xml"

    def wait_ready(self) -> None:
        """Wait until the node is ready; a test that hangs is ended by its timeout."""
        while True:
            try:
                if Place.of(self.instance, None, None).ask("/health/ready")["ready"]:
                    return
            except (Unreachable, BrokerError):
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.05)

    def run(self, *arguments: str, code: int = 0, typed: str | None = None) -> str:
        """The output of a command on the node, which ends with a code."""
        found = CliRunner().invoke(cli, [*arguments, "--instance", str(self.instance)], input=typed)
        actual = exit_code_of(found.exception) if isinstance(found.exception, BrokerError) else found.exit_code
        assert actual == code, (arguments, found.output, str(found.exception), self.log.read_text())
        return found.output

    def line(self, line: str, code: int = 0) -> str:
        """The printed answer to a line."""
        return self.run("cli", "--command", line, code=code)

    def text(self, path: str) -> str:
        """The text at a path."""
        return self._request("GET", path, None, {})[1]

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] = NONE) -> tuple[int, Any]:
        """Status and JSON of an answer over HTTP."""
        status, text = self._request(method, path, body, headers)
        return status, json.loads(text)

    def _request(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http)
        token = (self.instance / "etc" / "management-token").read_text().strip()
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} | dict(headers)
        connection.request(method, path, None if body is None else json.dumps(body), given)
        answer = connection.getresponse()
        found = answer.read().decode()
        connection.close()
        return answer.status, found

    def events(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log with an event."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def servers(self) -> list[str]:
        """Names of the servers of the process; broker.xml gives the main one no name."""
        return sorted(each["name"] for each in json.loads(self.text("/api/v1/servers"))["servers"])

    def policy(self) -> str:
        """The HA policy that the node uses."""
        return str(Place.of(self.instance, None, None).ask("/api/v1/node")["ha"]["policy"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    found = Managed(tmp_path_factory.mktemp("configured"))
    found.wait_ready()
    yield found
    found.process.terminate()
    found.process.wait()


def test_the_first_lines_of_the_document_print_its_output_and_count_after_a_reload(node: Managed) -> None:
    before = node.config.read_bytes()
    assert node.line(f"{MASTER}:add") == RELOAD_REQUIRED
    assert node.line(f"{MASTER}:read-resource") == (
        "{\n"
        '    "outcome" => "success",\n'
        '    "result" => {\n'
        '        "check-for-live-server" => false,\n'
        '        "cluster-name" => undefined,\n'
        '        "group-name" => undefined,\n'
        '        "initial-replication-sync-timeout" => 30000L\n'
        "    }\n"
        "}\n"
    )
    assert node.policy() == "primary-only"
    status = json.loads(node.run("status", "--json"))
    assert (status["overrides"], status["pending"], status["pending_count"]) == (1, ["ha-policy"], 1)
    metrics = node.text("/metrics")
    assert "understudy_configuration_overrides 1.0" in metrics
    assert "understudy_configuration_changes_pending 1.0" in metrics
    assert "used after a restart or reload: ha-policy" in node.run("status")
    assert '"result" => "reload-required"' in node.line(":read-attribute(name=server-state)")
    with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        session.producer("kept").send("before the reload")
    assert node.line(":reload") == '{\n    "outcome" => "success",\n    "result" => undefined\n}\n'
    node.wait_ready()
    assert node.policy() == "replication"
    assert '"result" => "running"' in node.line(":read-attribute(name=server-state)")
    with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        consumer = session.consumer("kept")
        message = consumer.receive(timeout_s=60)
        assert message is not None
        assert message.text == "before the reload"
        consumer.acknowledge(message)
    refused = node.line(":reload", code=1)
    assert "a reload would stop the only node that serves: no node takes over" in refused
    node.line(f"{MASTER}:remove")
    node.line(":reload(force=true)")
    node.wait_ready()
    assert node.policy() == "primary-only"
    assert node.config.read_bytes() == before
    node.run("config", "drop", "--all")


def test_a_change_that_applies_at_once_needs_no_reload(node: Managed) -> None:
    assert node.line(f"{SERVER}/address-setting=x:add(max-delivery-attempts=3)") == '{"outcome" => "success"}\n'
    body = {"resource": "broker", "operation": "getAddressSettingsAsJSON", "parameters": ["x"]}
    settings = json.loads(Place.of(node.instance, None, None).ask("/api/v1/invoke", body=body)["result"])
    assert settings["maxDeliveryAttempts"] == 3
    (audit,) = [
        line for line in node.events("configuration changed by the management CLI") if "=x:" in line["operation"]
    ]
    assert audit["user"] == "token@127.0.0.1"
    assert "address-setting=x" in node.run("config", "diff", "--columns", "path,line", code=1)
    node.run("config", "drop", "--all")


def test_a_script_is_carried_out_up_to_its_first_wrong_line(node: Managed, tmp_path: Path) -> None:
    script = tmp_path / "script.cli"
    script.write_text(
        "# a comment\r\n"
        f"if (outcome != success) of {SLAVE}:read-resource\r\n"
        f"{SLAVE}:add\r\n"
        f"{SLAVE}:write-attribute(name=restart-backup, \\\r\n  value=false)\r\n"
        "end-if\r\n"
        f"{SLAVE}:write-attribute(name=colour,value=red)\r\n"
        f"{SLAVE}:remove\r\n"
    )
    output = node.run("cli", "--file", str(script), code=1)
    assert "WFLYCTL0201: Unknown attribute 'colour'" in output
    assert '"result" => false' in node.line(f"{SLAVE}:read-attribute(name=restart-backup)")
    several = f"batch,{SLAVE}:remove,{MASTER}:add,run-batch,{MASTER}:read-attribute(name=group-name)"
    output = node.run("cli", "--commands", several, "--output-json")
    assert output.startswith("The batch executed successfully\n{\n")
    assert output.endswith('    "outcome": "success",\n    "result": null\n}\n')
    node.run("config", "drop", "--all")
    node.run("cli", typed="/a=b\n", code=2)


def test_requests_over_http_have_the_same_answers(node: Managed) -> None:
    address = [{"subsystem": "messaging-activemq"}, {"server": "default"}, {"path": "paging-directory"}]
    path = "/management/subsystem/messaging-activemq/server/default/path/paging-directory"
    written: dict[str, Any] = {
        "operation": "write-attribute",
        "address": address,
        "name": "path",
        "value": "other/paging",
    }
    with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        session.producer("held").send("a message that would stay in the old directory")
    status, answer = node.ask("POST", "/management", written)
    assert status == 500
    assert re.match(r"the store has \d+ messages", answer["failure-description"])
    written["operation-headers"] = {"allow-data-move": True}
    status, answer = node.ask("POST", "/management", written)
    assert (status, answer["outcome"]) == (200, "success")
    assert answer["response-headers"]["process-state"] == "reload-required"
    assert node.ask("GET", f"{path}?operation=attribute&name=path") == (
        200,
        {"outcome": "success", "result": "other/paging"},
    )
    status, answer = node.ask("GET", path)
    assert (status, answer["result"]) == (200, {"path": "other/paging", "relative-to": "jboss.server.data.dir"})
    status, answer = node.ask("POST", "/management", written | {"name": "colour"})
    assert (status, answer["outcome"], answer["rolled-back"]) == (500, "failed", True)
    assert node.ask("GET", f"{path}?operation=write-attribute&name=path&value=x")[0] == 400
    assert node.ask("POST", "/management", [])[0] == 400
    assert node.ask("POST", "/management", written, {"Authorization": "Bearer wrong"})[0] == 401
    assert node.ask("GET", path, None, {"Authorization": ""})[0] == 401
    typed = {"Content-Type": "application/dmr-encoded"}
    assert node.ask("POST", "/management", written, typed)[0] == 415
    assert node.ask("GET", f"{path}?operation=attribute&name=path")[1]["result"] == "other/paging"
    node.run("config", "drop", "--all")


def test_a_second_writer_is_refused_and_the_first_one_is_not_disturbed(node: Managed) -> None:
    with overlay_writer(node.config):
        refused = node.line(f"{SLAVE}:add", code=1)
    assert "another change of the configuration is being made" in refused
    assert not overlay_of(node.config).exists() or read_overlay(node.config) == ()
    node.line(f"{SLAVE}:add")
    assert len(read_overlay(node.config)) == 1
    node.run("config", "drop", "--all")


def test_validated_lines_change_nothing_and_a_summary_has_the_configuration_after_them(node: Managed) -> None:
    reloads = len(node.events("reload requested"))
    script = f"{SLAVE}:add\n{SLAVE}:write-attribute(name=restart-backup,value=false)\n:reload\n"
    found = json.loads(node.run("cli", "--check", "--summary", typed=script))
    assert found["problem"] is None
    assert len(found["answers"]) == 3
    before, after = (
        found[name]["subsystem"]["messaging-activemq"]["server"]["default"] for name in ("before", "after")
    )
    assert "shared-store-slave" not in before.get("ha-policy", {})
    assert after["ha-policy"]["shared-store-slave"]["restart-backup"] is False
    assert read_overlay(node.config) == ()
    wrong = json.loads(node.run("cli", "--check", "--summary", typed=f"{SLAVE}:add\n{SLAVE}:add\n", code=1))
    assert "WFLYCTL0212" in wrong["problem"]
    assert node.run("cli", "--check", "--if-needed", typed=f"{SLAVE}:add\n{SLAVE}:add\n").count("success") == 2
    unreadable = node.run("cli", "--summary", typed=f"{SLAVE}:add(\n", code=2)
    assert "column" in json.loads(unreadable)["problem"]
    assert read_overlay(node.config) == ()
    assert len(node.events("reload requested")) == reloads


def test_our_client_connects_by_the_name_of_a_connection_factory(node: Managed, tmp_path: Path) -> None:
    factory = f"{SERVER}/connection-factory=RemoteConnectionFactory"
    settings = 'ha=true, reconnect-attempts=-1, entries=["java:jboss/exported/jms/Remote"]'
    node.line(f"{factory}:add(connectors=[http-connector], {settings})")
    file = tmp_path / "jndi.properties"
    file.write_text(
        json.loads(node.run("operation", "invoke", "broker", "getJndiProperties", "RemoteConnectionFactory"))
    )
    url = profile_url(file, "jms/Remote")
    assert url == f"(tcp://127.0.0.1:{node.port})?ha=true&reconnectAttempts=-1"
    with sync.connect(url) as connection, connection.session() as session:
        session.producer("by-name").send("through a connection factory")
        message = session.consumer("by-name").receive(timeout_s=60)
        assert message is not None
        assert message.text == "through a connection factory"
    node.run("config", "drop", "--all")


def test_a_reload_is_refused_while_a_line_waits(node: Managed) -> None:
    late = f"{SERVER}/remote-acceptor=late"
    assert "there is no socket-binding 'messaging'" in node.line(f"{late}:add(socket-binding=messaging)")
    started = node.line(":read-attribute(name=start-id)")
    for reload in (":reload", ":reload(force=true)"):
        assert "there is no socket-binding 'messaging'" in node.line(reload, code=1)
    assert node.line(":read-attribute(name=start-id)") == started
    assert "there is no socket-binding" not in node.line(f"{late}:remove")
    assert waiting(read_overlay(node.config)) == ()
    node.run("config", "drop", "--all")


def test_a_server_is_added_and_removed_by_a_reload_and_its_messages_stay(node: Managed) -> None:
    other = "/subsystem=messaging-activemq/server=other"
    # the management of the other server listens on the port after that of the node
    free_port()
    port = free_port()

    def added() -> None:
        node.run("cli", typed=f'{other}:add\n{other}/acceptor=core:add(url="tcp://127.0.0.1:{port}")\n:reload\n')
        node.wait_ready()
        assert node.servers() == ["localhost", "other"]

    # the process is ready with its main server; the other one opens its port after that
    url = f"tcp://127.0.0.1:{port}?initialConnectAttempts=600&retryInterval=100"
    added()
    with sync.connect(url) as connection, connection.session() as session:
        session.producer("kept").send("in the store of the other server")
    node.line(f"{other}:remove")
    # until the reload the server goes on
    assert node.servers() == ["localhost", "other"]
    node.line(":reload")
    node.wait_ready()
    assert node.servers() == ["localhost"]
    with pytest.raises(Unreachable):
        sync.connect(f"tcp://127.0.0.1:{port}")
    added()
    with sync.connect(url) as connection, connection.session() as session:
        message = session.consumer("kept").receive(timeout_s=60)
        assert message is not None
        assert message.text == "in the store of the other server"
    node.line(f"{other}:remove")
    node.line(":reload")
    node.wait_ready()
    node.run("config", "drop", "--all")
