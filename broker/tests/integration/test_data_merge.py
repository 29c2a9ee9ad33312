"""Two copies of a real broker's store that went different ways are compared, and merged by export and import.

Goal: what an operator does when both nodes were up on copies of one store ends with every message
once. Method: a real broker fills a store and stops; the store is copied; each copy is served by a
broker of its own, which gets and gives messages; then the shipped commands do the rest.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.support.processes import Node, Pair

from support import forked
from understudy.client.sync import connect
from understudy.message import DUPLICATE_ID, Message, MessageType
from understudy.properties import BYTE, FLOAT, Properties

COMMAND = [str(forked.COMMAND)]
QUEUES = ("orders", "bills")


def run(*arguments: str, code: int = 0) -> dict[str, object]:
    ended = forked.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    result: dict[str, object] = json.loads(ended.stdout)
    return result


def url(node: Node) -> str:
    return f"tcp://127.0.0.1:{node.port}"


def send(node: Node, *texts: str) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        for queue in QUEUES:
            producer = session.producer(queue)
            for text in texts:
                properties = Properties({"text": text})
                properties.set_typed("byte", BYTE, 7)
                properties.set_typed("float", FLOAT, 0.5)
                producer.send(f"{queue} {text}", properties=properties, priority=len(text) % 10)


def take(node: Node, count: int) -> None:
    with connect(url(node)) as connection, connection.session() as session:
        session.start()
        consumer = session.consumer(QUEUES[0])
        for _ in range(count):
            received = consumer.receive(10)
            assert received is not None
            consumer.acknowledge(received)


def texts(node: Node) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    with connect(url(node)) as connection, connection.session() as session:
        session.start()
        for queue in QUEUES:
            for received in session.browser(queue):
                properties = received.message.properties
                assert properties.tag("byte") == BYTE
                assert properties.tag("float") == FLOAT
                assert received.message.type == MessageType.TEXT
                found[queue, str(properties["text"])] += 1
    return found


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node, Path, Path]:
    """A store that exists twice, each with its broker, neither running."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Pair(tmp_path / "one"), Pair(tmp_path / "two")
    one.primary.start().wait_ready("active")
    send(one.primary, "common 1", "common 2", "common 3")
    assert one.primary.terminate() == 0
    shutil.copytree(one.store, two.store)
    return one.primary, two.primary, one.store / "journal", two.store / "journal"


@pytest.mark.long
def test_two_copies_become_one(nodes: tuple[Node, Node, Path, Path], tmp_path: Path) -> None:
    one, two, left, right = nodes
    try:
        assert run("data", "compare", str(left), str(right), "--json")["pairs"][0]["relation"] == "identical"  # type: ignore[index]
        one.start().wait_ready("active")
        two.start().wait_ready("active")
        send(one, "left 1", "left 2")
        take(one, 1)
        send(two, "right 1", "right 2", "right 3")
        take(two, 2)
        expected = texts(one) + Counter({(queue, f"right {n}"): 1 for queue in QUEUES for n in (1, 2, 3)})
        two.kill()
        assert one.terminate() == 0

        verdict = run("data", "compare", str(left), str(right), "--json", code=1)
        (pair,) = verdict["pairs"]  # type: ignore[misc]
        assert pair["relation"] == "diverged"
        assert pair["right_only"]["replay_messages"] == 6
        assert pair["left_only"]["replay_messages"] == 4
        assert pair["left_only"]["settled"] == 1
        assert pair["right_place"]["epoch"] == 2

        file = tmp_path / "right.jsonl"
        summary = run("data", "export", str(right), "--only-in-not", str(left), "-o", str(file), "--json")
        assert summary["messages"] == 6

        one.start().wait_ready("active")
        arguments = ["data", "import", str(file), "--url", url(one), "--json"]
        assert run(*arguments, "--dry-run")["sent"] == 0
        assert texts(one) + Counter({(queue, f"right {n}"): 1 for queue in QUEUES for n in (1, 2, 3)}) == expected
        assert run(*arguments)["confirmed"] == 6
        assert texts(one) == expected
        # noted as done
        assert run(*arguments)["skipped"] == 6
        # and without the note known to the broker
        Path(f"{file}.progress").unlink()
        assert run(*arguments)["confirmed"] == 6
        assert texts(one) == expected
        assert one.terminate() == 0
        one.start().wait_ready("active")
        assert run(*arguments, "--again")["confirmed"] == 6
        assert texts(one) == expected
    finally:
        one.end()
        two.end()


@pytest.mark.long
def test_an_interrupted_import_goes_on_where_it_was(nodes: tuple[Node, Node, Path, Path], tmp_path: Path) -> None:
    one, _, left, _ = nodes
    try:
        one.start().wait_ready("active")
        with connect(url(one)) as connection, connection.session() as session:
            producer = session.producer("many")
            for sent in [producer.send_nowait(str(number)) for number in range(300)]:
                sent.result(20)
        assert one.terminate() == 0
        file = tmp_path / "all.jsonl"
        assert run("data", "export", str(left), "--queue", "many", "-o", str(file), "--json")["messages"] == 300
        two = Pair(tmp_path / "three").primary
        try:
            two.start().wait_ready("active")
            arguments = [*COMMAND, "data", "import", str(file), "--url", url(two), "--json"]
            importing = forked.Popen([*arguments, "--rate", "20"], stdout=subprocess.PIPE)
            with connect(url(two)) as connection, connection.session() as session:
                session.start()
                consumer = session.consumer("many")
                first = consumer.receive(20)
                assert first is not None
                importing.send_signal(signal.SIGINT)
                output, _ = importing.communicate(timeout=60)
                assert importing.returncode == 1
                confirmed = json.loads(output)["confirmed"]
                assert 0 < confirmed < 300
                assert json.loads(Path(f"{file}.progress").read_text())["confirmed"] == confirmed
                rest = run(*arguments[len(COMMAND) :])
                assert (rest["skipped"], rest["confirmed"]) == (confirmed, 300 - confirmed)
                bodies = [first]
                # asks the broker, which says when there is no more
                while (received := consumer.receive_nowait()) is not None:
                    bodies.append(received)
                assert [message.message.properties[DUPLICATE_ID] for message in bodies] == list(
                    dict.fromkeys(message.message.properties[DUPLICATE_ID] for message in bodies)
                )
                assert len(bodies) == 300
                assert isinstance(first.message, Message)
        finally:
            two.end()
    finally:
        one.end()
