"""``understudy pipeline replay`` into a real broker: every message once, however often it runs or is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from zlib import compress, crc32

import pytest
from tests.support.copies import write_out
from tests.support.processes import Node
from tests.support.store import StoreHarness

from support import forked
from support.nodes import Nodes
from understudy.client.sync import connect
from understudy.message import LARGE_COMPRESSED, LARGE_SIZE, ROUTING_TYPE, LargeBody, LargeMessage, Message
from understudy.properties import BYTE, Properties
from understudy.spark.archive.archives import archive

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

NOW_MS = 1_763_900_000_123
LARGE = random.Random(7).randbytes(1_500_000)
COMPRESSIBLE = b"again and again " * 50_000
_PATIENCE_S = 120


@pytest.fixture
def node(nodes: Nodes) -> Node:
    """A broker that remembers few duplicate ids."""
    return nodes.active(extra="<id-cache-size>1000</id-cache-size>").primary


def to_a_queue(**values: int | bool) -> Properties:
    """Properties of a message of a client that sends to a queue, which the broker then makes."""
    properties = Properties(values)
    properties.set_typed(ROUTING_TYPE, BYTE, 1)
    return properties


def archived(spark: Any, directory: Path, messages: int, *, with_large: bool = False) -> Path:
    """An archive of some messages to two addresses."""
    rig = StoreHarness(random.Random(3))
    rig.activate("a")
    rig.address()
    rig.queue()
    assert rig.store is not None

    def store(message: Message, *, large: bool = False) -> None:
        assert rig.store is not None
        message.assign_id(rig.store.next_id())
        rig.store.store_message(message, 4711, (rig.queue_ids[0],), large=large)

    for number in range(messages):
        store(
            Message(
                b"%d" % number,
                address="even" if number % 2 == 0 else "odd",
                timestamp=NOW_MS + number,
                expiration=NOW_MS + 1000,
                properties=to_a_queue(n=number),
            )
        )
    if with_large:
        store(Message(b"to subscribers", address="topic"))
        bodies = directory / "large-messages"
        bodies.mkdir()
        for file_id, body, properties in (
            (1, LARGE, to_a_queue(**{LARGE_SIZE: len(LARGE)})),
            (2, compress(COMPRESSIBLE), to_a_queue(**{LARGE_SIZE: len(COMPRESSIBLE), LARGE_COMPRESSED: True})),
        ):
            properties["n"] = file_id
            header = Message(b"", address="large", properties=properties)
            large = LargeBody(file_id, len(body), crc32(body))
            (bodies / f"{file_id}.large").write_bytes(body)
            store(LargeMessage.of(header, large, len(body)), large=True)
    rig.settle()
    archive(spark, [str(write_out(rig, directory / "journal"))], directory / "archive")
    return directory / "archive"


def command(archive: Path, node: Node, *options: str) -> list[str]:
    program = [str(Path(sys.executable).with_name("understudy")), "pipeline", "replay", str(archive)]
    return [*program, "--url", f"tcp://127.0.0.1:{node.port}", "--master", "local[1]", "--json", *options]


def run(archive: Path, node: Node, *options: str) -> dict[str, Any]:
    ended = forked.run(command(archive, node, *options), capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def bodies(node: Node, queue: str) -> list[bytes]:
    with connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        session.start()
        return [received.read_body() for received in session.browser(queue)]


def count(node: Node, queue: str) -> int:
    found = node.queue(queue)
    return 0 if found is None else int(str(found["message_count"]))


@pytest.mark.long
def test_a_replay_sends_each_message_once_with_its_contents(spark: Any, node: Node, tmp_path: Path) -> None:
    made = archived(spark, tmp_path, 40, with_large=True)
    summary = run(made, node, "--filter", "n > -1")
    assert (summary["messages"], summary["confirmed"], summary["addresses"]) == (
        42, 42, {"even": 20, "large": 2, "odd": 20}
    )  # fmt: skip
    # sent twice is there once
    assert run(made, node, "--filter", "n >= 0")["confirmed"] == 42
    assert bodies(node, "even") == [b"%d" % number for number in range(0, 40, 2)]
    assert bodies(node, "odd") == [b"%d" % number for number in range(1, 40, 2)]
    assert bodies(node, "large") == [LARGE, COMPRESSIBLE]
    # another address is another message, and a rate is kept
    summary = run(made, node, "--address", "odd", "--filter", "n > 30", "--to-address", "again", "--rate", "2")
    assert (summary["confirmed"], count(node, "again")) == (5, 5)
    assert summary["seconds"] >= 4 / 2
    # a broker confirms a message that it routes to no queue, unless it is asked not to
    ended = forked.run(command(made, node, "--address", "topic"), capture_output=True, text=True, check=False)
    summary = json.loads(ended.stdout)
    assert (ended.returncode, summary["confirmed"], summary["without_queue"]) == (1, 0, ["topic"])
    assert summary["unrouted"] == {"topic": 1}
    assert "note: address 'topic' has no queue" in ended.stderr
    progress = tmp_path / "progress"
    for skipped in (0, 20):
        summary = run(made, node, "--address", "even", "--to-address", "resumed", "--resume", str(progress))
        assert (summary["skipped"], summary["sent"]) == (skipped, 20 - skipped)
    assert count(node, "resumed") == 20


@pytest.mark.long
def test_a_killed_replay_that_starts_again_sends_each_message_once(spark: Any, node: Node, tmp_path: Path) -> None:
    """Six times more messages than the broker remembers duplicate ids."""
    made = archived(spark, tmp_path, 6000)
    stream, progress = random.Random(11), tmp_path / "progress"
    # slow enough that four runs of up to two seconds each leave some for the last one
    options = ["--to-address", "all", "--rate", "600", "--resume", str(progress)]
    killed = 0
    for _ in range(4):
        process = forked.Popen(command(made, node, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        before, deadline = count(node, "all"), time.monotonic() + _PATIENCE_S
        while process.poll() is None and count(node, "all") <= before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        try:
            process.wait(stream.random() * 1.2)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
    assert killed == 4
    # confirmed in the killed runs, and not sent again
    noted = json.loads(progress.read_text())["confirmed"]
    assert 0 < noted <= count(node, "all") < 6000
    summary = run(made, node, *options[:2], *options[4:])
    assert (summary["skipped"], summary["sent"]) == (noted, 6000 - noted)
    assert bodies(node, "all") == [b"%d" % number for number in range(6000)]
