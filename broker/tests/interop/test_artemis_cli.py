"""The commands of the Artemis distribution, unmodified, against a real broker: their output and their effect."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.nodes import Nodes
from support.processes import Node, Pair

pytestmark = [pytest.mark.maven, pytest.mark.long]

Cli = Callable[..., str]


@pytest.fixture(scope="module")
def running(nodes_of_module: Nodes) -> Pair:
    """One pair for all: a command takes seconds to start, and each test has names of its own."""
    return nodes_of_module.pair().start()


@pytest.fixture
def node(running: Pair) -> Node:
    return running.primary


@pytest.fixture
def cli(artemis: Path, node: Node) -> Cli:
    """Run a command against the active node; fails unless it ends with the code that is expected."""

    def run(*arguments: str, code: int = 0, connection: bool = True) -> str:
        url = f"tcp://127.0.0.1:{node.port}"
        options = ["--url", url, "--user", "u", "--password", "p"] if connection else []
        result = subprocess.run(
            [str(artemis), *(argument.replace("URL", url) for argument in arguments), *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        output = result.stdout + result.stderr
        assert result.returncode == code, output
        return output

    return run


def stat(cli: Cli, name: str) -> dict[str, str]:
    """One queue as ``queue stat`` has it."""
    answer = json.loads(cli("queue", "stat", "--queueName", name, "--json"))
    (found,) = [row for row in answer["data"] if row["name"] == name]
    assert all(isinstance(value, str) for value in found.values())
    return dict(found)


@pytest.mark.feature("artemis address")
def test_addresses_are_made_shown_changed_and_deleted(cli: Cli, node: Node) -> None:
    made = cli("address", "create", "--name", "cli.a", "--anycast", "--no-multicast")
    assert "Address [name=cli.a, routingTypes={ANYCAST}, autoCreated=false] created successfully." in made
    assert "AMQ229204: address 'cli.a' already exists" in cli(
        "address", "create", "--name", "cli.a", "--anycast", "--no-multicast"
    )
    assert "cli.a" in cli("address", "show").splitlines()
    assert "Address [name=cli.a, routingTypes={ANYCAST}, autoCreated=false]" in cli(
        "address", "show", "--name", "cli.a"
    )
    changed = cli("address", "update", "--name", "cli.a", "--anycast", "--multicast")
    assert "routingTypes={MULTICAST,ANYCAST}" in changed
    assert "updated successfully" in changed
    assert "deleted successfully" in cli("address", "delete", "--name", "cli.a")
    assert "no address 'cli.a'" in cli("address", "show", "--name", "cli.a")


@pytest.mark.feature("artemis queue")
def test_queues_are_made_counted_purged_and_deleted(cli: Cli, node: Node) -> None:
    made = cli(
        "queue", "create", "--name", "cli.q", "--address", "cli.q", "--anycast", "--durable",
        "--preserve-on-no-consumers", "--auto-create-address", "--filter", "color = 'red' OR color IS NULL",
    )  # fmt: skip
    assert "Queue [name=cli.q, address=cli.q, routingType=ANYCAST, filter=color = 'red' OR color IS NULL" in made
    assert "created successfully" in made
    found = node.queue("cli.q")
    assert found is not None
    assert found["durable"]
    cli("producer", "--destination", "queue://cli.q", "--message-count", "7", "--protocol", "core")
    row = stat(cli, "cli.q")
    assert (row["messageCount"], row["messagesAdded"], row["routingType"]) == ("7", "7", "ANYCAST")
    table = cli("queue", "stat", "--field", "MESSAGE_COUNT", "--operation", "GREATER_THAN", "--value", "6")
    assert re.search(r"\|cli\.q *\|cli\.q *\| *0 *\| *7 *\| *7 *\|", table), table
    changed = cli("queue", "update", "--name", "cli.q", "--max-consumers", "3", "--anycast")
    assert "maxConsumers=3" in changed
    assert "purged successfully" in cli("queue", "purge", "--name", "cli.q")
    assert stat(cli, "cli.q")["messageCount"] == "0"
    assert "LocalQueueBinding [address=cli.q" in cli("address", "show", "--name", "cli.q", "--bindings")
    assert "has 1 queue" in cli("address", "delete", "--name", "cli.q")
    deleted = cli("queue", "delete", "--name", "cli.q", "--autoDeleteAddress")
    assert "deleted successfully" in deleted
    assert node.queue("cli.q") is None
    assert "cli.q" not in cli("address", "show").splitlines()
    assert "no queue 'cli.q'" in cli("queue", "delete", "--name", "cli.q")


@pytest.mark.feature("artemis check")
def test_a_node_is_checked(cli: Cli) -> None:
    checked = cli(
        "check", "node", "--up", "--primary", "--backup", "--peers", "2", "--diskUsage", "-1", "--memoryUsage", "90"
    )
    assert checked.count("success") == 6, checked
    assert "Failures: 0" in checked
    failed = cli("check", "node", "--peers", "3", code=1)
    assert "Insufficient peers" in failed


@pytest.mark.feature("artemis check")
def test_a_queue_is_checked(cli: Cli) -> None:
    cli(
        "queue", "create", "--name", "cli.checked", "--address", "cli.checked", "--anycast", "--durable",
        "--preserve-on-no-consumers", "--auto-create-address",
    )  # fmt: skip
    checked = cli(
        "check", "queue", "--name", "cli.checked", "--up", "--produce", "5", "--browse", "5", "--consume", "5"
    )
    assert checked.count("success") == 4, checked
    assert stat(cli, "cli.checked")["messagesAcked"] == "5"
    assert "no queue 'cli.missing'" in cli("check", "queue", "--name", "cli.missing", code=1)


@pytest.mark.feature("artemis producer, browser, transfer, consumer")
def test_messages_are_produced_browsed_transferred_and_consumed(cli: Cli, node: Node) -> None:
    cli("producer", "--destination", "queue://cli.from", "--message-count", "20", "--protocol", "core")
    browsed = cli("browser", "--destination", "queue://cli.from", "--protocol", "core")
    assert "browsed: 20 messages" in browsed
    moved = cli(
        "transfer", "--source-queue", "cli.from", "--target-queue", "cli.to", "--message-count", "20",
        "--source-protocol", "core", "--target-protocol", "core", "--source-url", "URL", "--target-url", "URL",
        "--receive-timeout", "5000", connection=False,
    )  # fmt: skip
    assert "Transferred a total of 20 messages" in moved
    left = node.queue("cli.from")
    assert left is None or left["message_count"] == 0
    consumed = cli(
        "consumer", "--destination", "queue://cli.to", "--message-count", "20", "--protocol", "core",
        "--break-on-null", "--receive-timeout", "10000",
    )  # fmt: skip
    assert "Consumed: 20 messages" in consumed


@pytest.mark.feature("artemis perf")
def test_perf_client_runs_unmodified(cli: Cli) -> None:
    """The command needs ``--duration``: with ``--message-count`` it never ends, with Artemis 2.44 neither."""
    report = cli("perf", "client", "--duration", "3", "--max-pending", "50", "--persistent", "queue://cli.perf")
    assert "result:              success" in report, report
    sent, received = (int(re.search(rf"total {what}: +(\d+)", report)[1]) for what in ("sent", "received"))  # type: ignore[index]
    assert sent == received > 100


@pytest.mark.feature("artemis perf")
def test_perf_producer_and_consumer_run_unmodified(cli: Cli) -> None:
    produced = cli("perf", "producer", "--message-count", "500", "--tx-size", "50", "queue://cli.perf2")
    assert re.search(r"total completed: +500\b", produced), produced
    consumed = cli("perf", "consumer", "--duration", "3", "queue://cli.perf2")
    assert re.search(r"total received: +500\b", consumed), consumed
