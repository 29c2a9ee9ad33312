"""A primary and two backups as real processes over one store: order of takeovers, stops of processes, restarts.

The ledgers of the clients judge, with the epochs that the nodes stated to them (ADR 0058).
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, PAIR_XML, READY_S, Node
from support.replicated import wait_until
from understudy.ha.shared.policy import IN_LINE

NAMES = ("a", "b", "c")

_CONNECTORS = """<connector name="primary">tcp://127.0.0.1:{primary_port}{connector}</connector>
      <connector name="backup">tcp://127.0.0.1:{backup_port}{connector}</connector>"""


class Group:
    """A primary ``a`` and the backups ``b`` and ``c``."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "store"
        self.nodes = {
            name: Node(directory / name, "primary" if name == "a" else "backup", free_port()) for name in NAMES
        }
        assert _CONNECTORS in PAIR_XML
        for name, node in self.nodes.items():
            connectors = "".join(
                f'<connector name="{each}">tcp://127.0.0.1:{other.port}</connector>'
                for each, other in self.nodes.items()
            )
            peers = "".join(f"<connector-ref>{each}</connector-ref>" for each in NAMES if each != name)
            text = (
                PAIR_XML.replace(_CONNECTORS, connectors)
                .replace("<connector-ref>{role}</connector-ref>", f"<connector-ref>{name}</connector-ref>")
                .replace("<connector-ref>{other}</connector-ref>", peers)
            )
            node.config.parent.mkdir(parents=True)
            node.config.write_text(
                text.format(
                    name=name, store=self.store, port=node.port, acceptor="", role=node.role,
                    failover_on_shutdown="false", security="false", extra="",
                )
            )  # fmt: skip

    @property
    def url(self) -> str:
        places = ",".join(f"tcp://127.0.0.1:{node.port}" for node in self.nodes.values())
        return f"({places})?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"

    def start(self) -> Group:
        self.nodes["a"].start().wait_ready("active")
        self.nodes["b"].start().wait_ready("passive")
        self.nodes["c"].start()
        self.wait_passive("c")
        return self

    def wait_active(self, *names: str) -> str:
        """Wait until one of the nodes is active; its name."""
        began = time.monotonic()
        while time.monotonic() - began < READY_S:
            for name in names:
                if self.nodes[name].get("/health/ready")[1].get("state") == "active":
                    return name
            time.sleep(0.02)
        raise AssertionError("\n".join(f"{name}: {self.nodes[name].tail()}" for name in names))

    def wait_passive(self, name: str) -> None:
        """Wait until a node is passive and ready: it follows the log, or is in line."""
        self.nodes[name].wait_ready("passive")

    def end(self) -> None:
        for node in self.nodes.values():
            node.end()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path)
    yield group
    group.end()


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [str(COMMAND), *map(str, arguments)]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], timeout_s: float = 120) -> str:
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, out + err
    return out


def wait_rows(ledger: Path, rows: int, process: subprocess.Popen[str]) -> None:
    """Wait until a client has written so many rows more."""
    wanted = rows + (ledger.read_bytes().count(b"\n") if ledger.exists() else 0)
    while not ledger.exists() or ledger.read_bytes().count(b"\n") < wanted:
        assert process.poll() is None, finish(process)
        time.sleep(0.02)


def test_each_backup_takes_over_in_turn_and_the_primary_gets_its_place_back(group: Group, tmp_path: Path) -> None:
    """Kill the active node, stop the next one with SIGSTOP for three seconds, kill it, and start all of them again."""
    group.start()
    produced, consumed = tmp_path / "produced.jsonl", tmp_path / "consumed.jsonl"
    stop = tmp_path / "stop"
    consumer = start("consume", "--url", group.url, "--queue", "q", "--ack", "transacted", "--batch", 20,
                     "--follow", "--ledger", consumed)  # fmt: skip
    producer = start("produce", "--url", group.url, "--queue", "q", "--count", 100, "--until", stop, "--size", 200,
                     "--rate", 300, "--ledger", produced)  # fmt: skip
    wait_rows(produced, 200, producer)
    group.nodes["a"].kill()
    second = group.wait_active("b", "c")
    wait_rows(produced, 200, producer)
    group.nodes[second].pause()
    time.sleep(3)  # how long the process is stopped, not a wait for anything
    group.nodes[second].resume()
    wait_rows(produced, 200, producer)
    group.nodes[second].kill()
    third = group.wait_active(*({"b", "c"} - {second}))
    wait_rows(produced, 200, producer)
    group.nodes[second].start()
    group.nodes["a"].start().wait_ready("active")
    group.wait_passive(third)
    wait_rows(produced, 200, producer)
    stop.touch()
    finish(producer)
    while (queue := group.nodes["a"].queue("q")) is None or queue["message_count"] != 0:
        assert consumer.poll() is None, finish(consumer)
        time.sleep(0.05)
    consumer.send_signal(signal.SIGINT)
    finish(consumer)
    report = json.loads(finish(start("ledger", "check", "--json", produced, consumed)))
    assert report["ok"], report
    places = {f"127.0.0.1:{node.port}": name for name, node in group.nodes.items()}
    confirmed_by = report["confirmed_by"]
    assert confirmed_by["ok"], confirmed_by
    assert [[places[node] for node in epoch["nodes"]] for epoch in confirmed_by["epochs"]] == [
        ["a"], [second], [third], ["a"],
    ]  # fmt: skip
    assert len({epoch["node_id"] for epoch in confirmed_by["epochs"]}) == 1


def readiness(node: Node) -> tuple[object, ...]:
    """Whether a node is ready, its state, and the reason."""
    report = node.get("/health/ready")[1]
    return report["ready"], report["state"], report["reason"]


def test_a_backup_that_is_not_the_next_one_is_ready_and_says_why(group: Group) -> None:
    group.start()
    assert readiness(group.nodes["b"]) == (True, "passive", None)
    assert readiness(group.nodes["c"]) == (True, "passive", IN_LINE)
    group.nodes["b"].kill()

    def follows() -> bool:
        return readiness(group.nodes["c"]) == (True, "passive", None)

    wait_until(follows, group.nodes["c"])


@pytest.mark.long
@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)), ids="".join)
def test_after_all_were_killed_they_serve_again_in_every_order_of_restarts(
    group: Group, order: tuple[str, ...]
) -> None:
    group.start()
    finish(start("produce", "--url", group.url, "--queue", "q", "--count", 100, "--size", 100))
    for node in group.nodes.values():
        node.kill()
    for name in order:
        group.nodes[name].start()
        group.wait_active(*NAMES)
    # the primary gets its place back
    group.wait_active("a")
    out = json.loads(finish(start("consume", "--url", group.url, "--queue", "q", "--count", 100, "--json")))
    assert out["acknowledged"] == 100


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_each_node_alone_serves_after_all_were_killed(group: Group, name: str) -> None:
    group.start()
    finish(start("produce", "--url", group.url, "--queue", "q", "--count", 100, "--size", 100))
    for node in group.nodes.values():
        node.kill()
    group.nodes[name].start().wait_ready("active")
    queue = group.nodes[name].queue("q")
    assert queue is not None
    assert queue["message_count"] == 100
