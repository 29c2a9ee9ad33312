"""Commands that manage a node, on a node that runs: one test for each group, from the first command to the last."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from support.ports import free_port
from support.processes import COMMAND
from understudy.cli.main import cli, exit_code_of
from understudy.cli.managing.places import invoke
from understudy.cli.node.status import Place
from understudy.client import sync
from understudy.errors import AuthenticationFailed, BrokerError, Unreachable


class Node:
    """A node without login, and commands on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.http = free_port(), free_port()
        self.url = f"tcp://127.0.0.1:{self.port}"
        options = ["--port", str(self.port), "--user", "admin", "--password-file", str(directory / "password")]
        (directory / "password").write_text("secret\n")
        subprocess.run([COMMAND, "create", directory / "node", *options], check=True, stdout=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [COMMAND, "run", "--instance", directory / "node", "--http", f"127.0.0.1:{self.http}"],
            stderr=(directory / "log").open("w"),
        )

    def run(self, *arguments: str, code: int = 0, typed: str | None = None) -> str:
        """The output of a command that ends with a code."""
        found = self.result(*arguments, typed=typed)
        assert found.exit_code == code, (arguments, found.output, found.exception)
        return found.output

    def result(self, *arguments: str, typed: str | None = None) -> Result:
        """A command, whose errors are exit codes as in the process."""
        given = [*arguments, "--instance", str(self.directory / "node")]
        found = CliRunner().invoke(cli, given, input=typed)
        if isinstance(found.exception, BrokerError):
            found.exit_code = exit_code_of(found.exception)
        return found

    def json(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.run(*arguments, "--json"))

    def client(self, *arguments: str, code: int = 0, typed: str | None = None) -> str:
        """The output of a command that is a client."""
        environment = {"UNDERSTUDY_URL": self.url, "UNDERSTUDY_USER": "admin", "UNDERSTUDY_PASSWORD": "secret"}
        found = CliRunner(env=environment).invoke(cli, list(arguments), input=typed)
        assert found.exit_code == code or isinstance(found.exception, BrokerError), (arguments, found.output)
        if isinstance(found.exception, BrokerError):
            assert exit_code_of(found.exception) == code, found.exception
        return found.output

    def invoke(self, operation: str, *parameters: object) -> Any:
        """The result of an operation of the broker."""
        return invoke(Place.of(self.directory / "node", None, None), "broker", operation, *parameters)

    def connect(self) -> sync.Connection:
        """A connection of the client."""
        return sync.connect(self.url, "admin", "secret")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    found = Node(tmp_path_factory.mktemp("managed"))
    while True:
        try:
            if Place.of(found.directory / "node", None, None).ask("/health/ready")["ready"]:
                break
        except (Unreachable, BrokerError):
            assert found.process.poll() is None, (found.directory / "log").read_text()
            time.sleep(0.05)
    yield found
    found.process.terminate()
    found.process.wait()


def until(holds: Callable[[], bool]) -> None:
    """Wait until the node says so; a test that hangs is ended by its timeout."""
    while not holds():
        time.sleep(0.02)


def test_queues(node: Node) -> None:
    assert "created" in node.run("queue", "create", "q1", "--max-consumers", "3")
    node.run("queue", "create", "q1", code=1)
    same = node.run(
        "queue", "create", "q1", "--max-consumers", "3", "--filter", "", "--ring-size", "-1", "--if-missing"
    )
    assert same == "queue q1 is there already and stays as it is\n"
    other = node.run("queue", "create", "q1", "--max-consumers", "5", "--multicast", "--if-missing")
    assert other.endswith(": routing-type is ANYCAST, not MULTICAST, max-consumers is 3, not 5\n")
    assert node.json("queue", "show", "q1")["max_consumers"] == 3
    node.run("queue", "update", "q1", code=2)
    node.run("queue", "update", "q1", "--max-consumers", "7", "--exclusive")
    shown = node.json("queue", "show", "q1")
    assert (shown["max_consumers"], shown["exclusive"]) == (7, True)
    assert "max consumers" in node.run("queue", "show", "q1")
    node.client("send", "q1", "hello", "--count", "3")
    node.run("queue", "pause", "q1", "--persist")
    assert node.json("queue", "show", "q1")["persisted_pause"]
    node.run("queue", "resume", "q1")
    assert node.run("queue", "purge", "q1", "--dry-run") == "3 messages would be removed\n"
    node.run("queue", "purge", "q1", code=2)
    assert node.run("queue", "purge", "q1", "--yes") == "3 messages removed\n"
    node.client("send", "q1", "hello")
    node.run("queue", "delete", "q1", code=2)
    assert "1 message with it" in node.run("queue", "delete", "q1", "--yes")
    node.run("queue", "show", "q1", code=1)
    assert [each["name"] for each in node.json("queue", "list")] == ["DLQ", "ExpiryQueue"]


def test_exchanges(node: Node, tmp_path: Path) -> None:
    node.run("queue", "create", "audit")
    node.run("exchange", "create", "logs", "--type", "topic", "--alternate", "rest")
    node.run("exchange", "create", "logs", "--type", "fanout", code=1)
    node.run("exchange", "bind", "logs", "audit", "--key", "a.#")
    node.run("exchange", "bind", "logs", "audit", "--key", "a.#", "--arguments", '{"x": 1}')
    node.run("exchange", "bind", "logs", "audit", "--arguments", "[]", code=2)
    bindings = node.json("exchange", "bindings", "--destination", "audit")
    assert [each["arguments"] for each in bindings] == [{}, {"x": 1}]
    assert node.json("exchange", "show", "logs")["binding_count"] == 2
    assert "queue audit key a.#" in node.run("exchange", "show", "logs")
    assert "give --id" in str(node.result("exchange", "unbind", "logs", "audit", "--key", "a.#").exception)
    node.run("exchange", "unbind", "logs", "audit", "--key", "a.#", "--id", bindings[1]["id"])
    file = tmp_path / "definitions.json"
    node.run("definitions", "export", "--output", str(file))
    node.run("exchange", "delete", "logs", code=2)
    node.run("exchange", "delete", "logs", "--yes")
    assert node.json("exchange", "list") == []
    node.run("definitions", "import", str(file), "--yes")
    assert [each["alternate"] for each in node.json("exchange", "list")] == ["rest"]
    (binding,) = node.json("exchange", "bindings")
    assert (binding["source"], binding["routing_key"], binding["arguments"]) == ("logs", "a.#", {})
    assert node.json("channel", "list") == []
    node.run("exchange", "delete", "logs", "--yes")
    node.run("queue", "delete", "audit", "--yes")


def test_users(node: Node) -> None:
    by_node = (
        "--url",
        f"http://127.0.0.1:{node.http}",
        "--token-file",
        str(node.directory / "node/etc/management-token"),
    )

    def on_node(*arguments: str, code: int = 0, typed: str | None = None) -> str:
        found = CliRunner().invoke(cli, [*arguments, *by_node], input=typed)
        ended = exit_code_of(found.exception) if isinstance(found.exception, BrokerError) else found.exit_code
        assert ended == code, (arguments, found.output, found.exception)
        return found.output

    def logs_in(name: str, password: str) -> bool:
        try:
            sync.connect(node.url, name, password).close()
        except AuthenticationFailed:
            return False
        return True

    assert "it is in force" in on_node("user", "add", "alice", "--role", "amq", "--role", "extra", typed="first-word\n")
    assert logs_in("alice", "first-word"), "at once"
    on_node("user", "add", "alice", "--role", "amq", code=1, typed="other-word\n")
    on_node("user", "add", "bert", "--role", "amq", code=2, typed="\n")
    assert json.loads(on_node("user", "list", "--json", "--filter", "name=alice")) == [
        {"name": "alice", "roles": ["amq", "extra"]}
    ]
    on_node("user", "password", "alice", typed="second-word\n")
    assert (logs_in("alice", "first-word"), logs_in("alice", "second-word")) == (False, True)
    on_node("user", "roles", "alice", "--role", "extra")
    # the same by the files of the instance, whatever the node does
    assert [each for each in node.json("user", "list") if each["name"] == "alice"] == [
        {"name": "alice", "roles": ["extra"]}
    ]
    node.run("user", "add", "carl", "--role", "amq", typed="third-word\n")
    until(lambda: logs_in("carl", "third-word"))
    node.run("user", "remove", "carl", code=2)
    node.run("user", "rm", "carl", "--yes")
    until(lambda: "carl" not in on_node("user", "list"))
    on_node("user", "remove", "alice", "--yes")
    assert not logs_in("alice", "second-word")
    on_node("user", "remove", "alice", "--yes", code=1)
    for answer in (("addUser", "dora", "fourth-word", "amq", True), ("resetUser", "admin", None, None, True)):
        with pytest.raises(BrokerError, match="hashes only"):
            node.invoke(*answer)
    assert json.loads(node.invoke("listUser", "admin")) == [{"username": "admin", "roles": ["amq"]}]
    log = (node.directory / "log").read_text()
    files = "".join(each.read_text() for each in (node.directory / "node/etc").glob("artemis-*"))
    assert [each for each in ("first", "second", "third", "fourth") if f"{each}-word" in log + files] == []
    assert '"operation": "addUser"' in log
    assert "password=***" in log


def test_definitions(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    node.run("queue", "create", "defined", "--max-consumers", "3")
    node.run("address", "create", "news", "--type", "multicast")
    node.client("send", "made-by-use", "x")
    before = json.loads(node.run("definitions", "export"))
    assert "made-by-use" not in json.dumps(before)
    assert before["users"] == [{"name": "admin", "roles": ["amq"]}]
    node.run("definitions", "export", "--output", str(file))
    assert json.loads(file.read_text()) == before
    assert node.json("definitions", "diff", str(file)) == []
    before["queues"][[each["name"] for each in before["queues"]].index("defined")] |= {"max_consumers": None}
    before["queues"].append({"name": "readers", "address": "news", "routing_type": "MULTICAST", "filter": "a = 1"})
    before["address_settings"].append({"match": "news", "values": {"maxDeliveryAttempts": 4}})
    before["security_settings"].append({"match": "news", "values": {"send": ["amq"], "edit": ["amq"]}})
    before["diverts"].append({"name": "copy", "address": "news", "forwarding_address": "audit", "filter": "b = 2"})
    before["users"].append({"name": "missing", "roles": ["amq"]})
    file.write_text(json.dumps(before))
    assert "5 changes would be made" in node.run("definitions", "import", str(file), "--dry-run", code=1)
    assert node.json("queue", "show", "defined")["max_consumers"] == 3
    node.run("definitions", "import", str(file), code=2)
    told = node.run("definitions", "import", str(file), "--yes", code=1)
    assert "5 changes made" in told
    assert f"{file}:1 user 'missing': the file has no password" in told
    assert node.json("queue", "show", "defined")["max_consumers"] is None
    assert node.json("queue", "show", "readers")["filter"] == "a = 1"
    left = [
        (each["name"], each["action"])
        for each in json.loads(node.result("definitions", "diff", str(file), "--json").output)
    ]
    assert left == [("missing", "impossible")]
    before["users"].pop()
    before["queues"].append({"name": "bad", "address": "bad", "routing_type": "ANYCAST", "filter": "a ="})
    file.write_text(json.dumps(before, indent=1))
    line = next(n for n, each in enumerate(file.read_text().splitlines(), 1) if '"bad"' in each) - 1
    told = node.run("definitions", "import", str(file), "--yes", code=1)
    assert f"{file}:{line} queue 'bad': " in told
    assert "0 changes made" in told
    for name in ("defined", "readers", "made-by-use"):
        node.run("queue", "delete", name, "--yes")
    node.invoke("destroyDivert", "copy")
    node.run("address", "delete", "news", "--queues", "--yes")


def test_events_log_and_top(node: Node) -> None:
    node.run("queue", "create", "seen")
    node.client("send", "seen", "hello")
    found = [each for each in node.json("events", "--limit", "2000") if each["fields"].get("queue") == "seen"]
    assert [(each["event"], each["level"], each["node"]) for each in found] == [("queue created", "debug", "node")]
    texts = [each["event"] for each in node.json("events", "--limit", "2000")]
    assert any(each.startswith("active") for each in texts), texts
    assert "managed" in texts
    assert node.json("events", "--event", "UND000000") == []
    log = CliRunner().invoke(cli, ["log", "--file", str(node.directory / "log"), "--event", found[0]["id"]])
    assert log.output == "", "frequent events are no lines of the log"
    log = CliRunner().invoke(cli, ["log", "--file", str(node.directory / "log"), "--json"])
    assert "managed" in [json.loads(each)["event"] for each in log.output.splitlines()]
    refused = node.result("log")
    assert "standard error of the node" in str(refused.exception)
    shown = json.loads(node.run("top", "--once", "--json"))
    assert [each["message_count"] for each in shown["queues"] if each["name"] == "seen"] == [1]
    assert "seen" in node.run("top", "--once", "--table", "queues", "--filter", "name=seen")
    node.run("queue", "delete", "seen", "--yes")


def test_lines_of_the_log_name_configuration_peers_and_requests(node: Node) -> None:
    lines = [json.loads(each) for each in (node.directory / "log").read_text().splitlines()]
    start = lines[0]
    assert (start["event"].startswith("Understudy "), start["server"], start["policy"]) == (True, "node", "single")
    assert start["configuration"] == str(node.directory / "node/etc/broker.xml")
    assert start["acceptors"] == f"artemis tcp://127.0.0.1:{node.port}"
    assert start["users"] == f"1 user of {node.directory / 'node/etc/artemis-users.properties'}"
    assert start["store"].startswith(str(node.directory / "node"))
    with pytest.raises(AuthenticationFailed):
        sync.connect(node.url, "stranger", "no-password-of-it")
    place = Place.of(node.directory / "node", None, None)
    body = json.dumps({"resource": "broker", "operation": "createAddress", "parameters": ["traced", "ANYCAST"]})
    headers = {"Authorization": f"Bearer {place.token}", "X-Request-Id": "ticket-7", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{place.url}/api/v1/invoke", data=body.encode(), headers=headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["X-Request-Id"] == "ticket-7"
    node.invoke("deleteAddress", "traced")
    text = (node.directory / "log").read_text()
    assert "no-password-of-it" not in text
    lines = [json.loads(each) for each in text.splitlines()]
    (refused,) = [each for each in lines if each["event"] == "login refused" and each["user"] == "stranger"]
    assert (refused["level"], refused["peer"].rpartition(":")[0]) == ("warning", "127.0.0.1")
    assert "unknown or the password is wrong" in refused["reason"]
    managed = [each for each in lines if each["event"] == "managed" and "traced" in each["parameters"]]
    assert managed[0]["request"] == "ticket-7"
    assert managed[1]["request"] not in ("", "ticket-7"), "the node makes an id where the client has none"


def test_the_tour_of_the_page_of_questions(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs/operate/questions.md").read_text()
    block = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    assert block is not None
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "XDG_CONFIG_HOME": str(tmp_path), "UNDERSTUDY_URL": node.url, "UNDERSTUDY_USER": "admin",
        "UNDERSTUDY_PASSWORD": "secret",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    arguments = ["context", "add", "here", "--management", f"http://127.0.0.1:{node.http}"]
    token = str(node.directory / "node/etc/management-token")
    assert CliRunner().invoke(cli, [*arguments, "--token-file", token]).exit_code == 0
    lines = block[1].splitlines()
    assert len(lines) > 15
    for line in lines:
        found = CliRunner().invoke(cli, shlex.split(line)[1:], input="a-password\n")
        assert found.exit_code == 0, (line, found.output, found.exception)


def test_addresses(node: Node) -> None:
    node.run("address", "create", "news", "--type", "multicast")
    node.run("address", "update", "news", "--type", "anycast", "--type", "multicast")
    assert sorted(node.json("address", "show", "news")["routing_types"]) == ["ANYCAST", "MULTICAST"]
    node.run("queue", "create", "readers", "--address", "news", "--multicast")
    assert "queue readers" in node.run("address", "show", "news")
    node.client("send", "news", "first")
    for command in ("pause", "resume", "block", "unblock"):
        node.run("address", command, "news")
    node.run("address", "purge", "news", code=2)
    assert node.run("address", "purge", "news", "--yes") == "1 message removed\n"
    node.run("address", "delete", "news", code=1)
    node.run("address", "delete", "news", "--queues", "--yes")
    assert "news" not in node.run("address", "list")


def test_messages(node: Node) -> None:
    node.run("queue", "create", "from")
    node.run("queue", "create", "to")
    for colour in ("red", "blue", "red"):
        node.client("send", "from", f"a {colour} one", "--property", f"colour={colour}", "--property", "n=1")
    listed = node.json("message", "list", "from")
    assert [each["text"] for each in listed] == ["a red one", "a blue one", "a red one"]
    first = str(listed[0]["message_id"])
    assert "colour = red" in node.run("message", "show", "from", first)
    assert json.loads(node.run("message", "show", "from", first, "--json"))["properties"]["n"] == 1
    node.run("message", "show", "from", "1", code=1)
    node.run("message", "move", "from", "to", code=2)
    red = ("--selector", "colour = 'red'")
    assert node.run("message", "copy", "from", "to", *red, "--dry-run") == "2 messages would be copied to to\n"
    for verb in ("move", "copy"):
        node.run("message", verb, "from", "nowhere", *red, "--dry-run", code=1)
    assert node.run("message", "copy", "from", "to", *red, "--yes") == "2 messages copied to to\n"
    node.run("message", "move", "from", "to", *red, code=2)
    assert node.run("message", "move", "from", "to", *red, "--yes") == "2 messages moved to to\n"
    assert node.run("message", "retry", "to", "--all", "--yes") == "2 messages returned to where they came from\n"
    assert node.json("queue", "show", "from")["message_count"] == 3
    blue = str(node.json("message", "list", "from", "--selector", "colour = 'blue'")[0]["message_id"])
    assert node.run("message", "expire", "from", "--id", blue) == "1 message expired\n"
    node.run("message", "delete", "from", "--id", blue, code=1)
    assert node.run("message", "delete", "from", "--all", "--yes") == "2 messages deleted\n"
    assert node.run("message", "dead-letter", "to", "--all", "--yes") == "2 messages sent to the dead letter address\n"
    groups = {(each["queue"], each["origin"], each["cause"]): each["messages"] for each in node.json("dlq", "list")}
    assert groups == {("DLQ", "to", "undelivered"): 2, ("ExpiryQueue", "from", "expired"): 1}
    node.run("queue", "purge", "DLQ", "--yes")
    node.run("queue", "purge", "ExpiryQueue", "--yes")


def test_dead_letters_without_an_origin_stay(node: Node) -> None:
    """The dry run and the command count them apart, and one whose origin is gone is an error."""
    retry = ("dlq", "retry", "letters")
    for queue in ("letters", "gone"):
        node.run("queue", "create", queue)
    node.client("send", "letters", "of a dead letter exchange, for instance")
    left = ", 1 message without an origin left (see `understudy message move`)\n"
    assert node.run(*retry, "--dry-run") == f"0 messages would be returned{left}"
    assert node.run(*retry, "--yes") == f"0 messages returned{left}"
    node.client("send", "gone", "moved")
    node.run("message", "move", "gone", "letters", "--all", "--yes")
    assert node.run(*retry, "--dry-run") == f"1 message would be returned{left}"
    node.run("queue", "delete", "gone", "--yes")
    node.run("address", "delete", "gone", "--yes")
    node.run(*retry, "--yes", code=1)
    assert node.json("queue", "show", "letters")["message_count"] == 2
    node.run("queue", "delete", "letters", "--yes")


def test_dead_letters_return_and_the_command_stops_when_one_comes_back(node: Node) -> None:
    node.run("queue", "create", "work")
    node.client("send", "work", "poison", "--count", "3")
    node.run("message", "dead-letter", "work", "--all", "--yes")
    retry = ("dlq", "retry", "DLQ", "--origin", "work", "--rate", "1000")
    assert node.run(*retry, "--dry-run") == "3 messages would be returned\n"
    node.run(*retry, code=2)
    assert node.run(*retry, "--limit", "1", "--yes") == "1 message returned\n"
    assert node.json("queue", "show", "work")["message_count"] == 1
    node.run("message", "dead-letter", "work", "--all", "--yes")
    (group,) = node.json("dlq", "list")
    assert (group["messages"], group["retried"]) == (3, 1)
    assert node.run(*retry, "--dry-run") == "2 messages would be returned\n", "the retried one is left out"
    assert node.run(*retry, "--selector", "absent = 1") == "0 messages returned\n"
    with node.connect() as connection, connection.session("individual") as session:
        consumer = session.consumer("work")
        rejecting = threading.Thread(target=consumer.handle, args=(lambda one: one.reject(requeue=False),))
        rejecting.start()
        found = node.result(*retry, "--again", "--rate", "20", "--yes")
        assert found.exit_code == 1
        assert "came back to DLQ (from work)" in str(found.exception)
        until(lambda: node.json("queue", "show", "DLQ")["message_count"] == 3)
        consumer.close()
        rejecting.join()
    node.run("message", "delete", "DLQ", "--all", "--yes")
    node.client("send", "work", "later")
    node.run("message", "dead-letter", "work", "--all", "--yes")
    node.run("dlq", "retry", "--delay", "3600", "--yes")
    assert node.json("queue", "show", "work")["scheduled_count"] == 1


def test_clients(node: Node) -> None:
    node.run("queue", "create", "watched")
    with node.connect() as connection, connection.session() as session:
        session.consumer("watched")
        (consumer,) = node.json("consumer", "list", "--queue", "watched")
        assert consumer["session"] in node.run("session", "list")
        assert consumer["connection"] in node.run("connection", "list")
        node.run("consumer", "close", consumer["session"], str(consumer["id"]))
        until(lambda: node.json("consumer", "list", "--queue", "watched") == [])
        node.run("consumer", "close", consumer["session"], "99", code=1)
        node.run("session", "close", "none", code=1)
        node.run("connection", "close", code=2)
        node.run("connection", "close", "--user", "admin", code=2)
        node.run("connection", "close", "--user", "admin", "--yes")
        until(lambda: node.json("connection", "list") == [])
        node.run("connection", "close", "none", code=1)
    connection = node.connect()
    kept = connection.session()
    node.run("session", "close", node.json("session", "list")[0]["id"])
    until(lambda: node.json("session", "list") == [])
    (left,) = node.json("connection", "list")
    node.run("connection", "close", left["id"])
    until(lambda: node.json("connection", "list") == [])
    connection.abandon()
    del kept


def test_transactions(node: Node) -> None:
    assert node.json("transaction", "list") == []
    node.run("transaction", "commit", "AAAA", code=2)
    node.run("transaction", "commit", "AAAA", "--yes", code=1)
    node.run("transaction", "rollback", "AAAA", "--yes", code=1)


def test_operations_and_permissions(node: Node) -> None:
    assert node.run("operation", "invoke", "broker", "listAddresses", ",").startswith('"')
    node.run("operation", "invoke", "broker", "createQueue", '{"name": "made", "address": "made"}', "true")
    assert node.run("operation", "get", "queue.made", "MessageCount") == "0\n"
    assert json.loads(node.run("operation", "invoke", "broker", "listConnectionsAsJSON")) == []
    node.run("operation", "invoke", "broker", "nope", code=1)
    node.run("operation", "invoke", "broker", "createQueue", '{"name', code=1)
    rows = node.json("operation", "list", "--resource", "address")
    assert {"pause", "purge"} <= {each["name"] for each in rows}
    assert node.run("permission", "check", "admin", "send", "orders") == "admin may send orders: by role amq\n"
    assert node.result("permission", "check", "bob", "send", "orders").exit_code == 1


def test_a_message_is_sent_and_shown(node: Node) -> None:
    node.client("send", "shown", "two chairs", "--property", "region=north", "--priority", "7", "--ttl", "1h")
    node.client("send", "shown", "--type", "json", typed='{"a": [1]}')
    node.client("send", "shown", '{"x": 1}', "--type", "map")
    node.client("send", "shown", "--type", "bytes", "-", typed="raw")
    left = node.client("receive", "shown", "--no-ack")
    assert "priority 7, region=north\n  two chairs\n" in left
    assert "4 messages shown and left" in left
    found = [json.loads(line) for line in node.client("receive", "shown", "--json").splitlines()]
    assert [each["content"] for each in found] == ["two chairs", '{"a":[1]}', {"x": 1}, "cmF3"]
    assert [each["type"] for each in found] == ["text", "text", "map", "bytes"]
    assert found[0]["expires_at"] is not None
    node.client("receive", "nowhere", code=1)
    assert node.client("receive", "shown", "--body", "--count", "1", code=1) == ""
    node.client("send", "shown", "x", "--ttl", "soon", code=2)
    node.client("send", "shown", "{", "--type", "json", code=2)
    node.client("send", "shown", "@/no/such/file", code=2)
    node.client("receive", "shown", "--follow", "--no-ack", code=2)


def test_checks_for_monitors(node: Node) -> None:
    def checked(*arguments: str) -> tuple[int, str]:
        found = node.result("check", *arguments)
        return found.exit_code, found.output

    assert checked("node") == (0, "OK - active\n")
    code, text = checked("pair")
    assert (code, text.startswith("CRITICAL - active: no node takes over")) == (2, True)
    node.run("queue", "create", "checked")
    assert checked("queue", "checked") == (0, "OK - checked: 0 messages, 0 consumers\n")
    node.client("send", "checked", "x", "--count", "2")
    assert checked("queue", "checked", "--warning", "2")[0] == 1
    assert checked("queue", "checked", "--critical", "2")[0] == 2
    assert checked("queue", "checked", "--consumers", "1")[0] == 2
    code, text = checked("queue", "checked", "--warning", "3", "--critical", "2")
    assert (code, "--warning 3 is above --critical 2: it would never be reached" in text) == (3, True)
    assert checked("queue", "nope")[0] == 3
    assert checked("disk", "--warning", "0", "--critical", "101")[0] == 1
    assert "producers are blocked from" in checked("disk")[1]
    assert checked("memory")[0] == 0
    assert checked("certificate") == (0, "OK - no acceptor has TLS\n")
    assert checked("cluster") == (1, "WARNING - the node has no cluster-connection\n")
