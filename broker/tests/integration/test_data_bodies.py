"""Large messages and prepared transactions through ``data export`` and ``data import``, with real brokers.

Goal: bodies arrive to the byte, compressed or not; prepared messages are left out unless they are asked for; an
import done twice is done once, also when the broker remembers fewer duplicate ids than there are messages.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes import Node, Pair

from support import forked
from understudy.cli.messages.sending import _NOTE_EVERY, _WINDOW
from understudy.client.sync import connect
from understudy.ids import Xid
from understudy.message import Message

COMMAND = [str(forked.COMMAND)]
#: Fewer than the messages of the import.
ID_CACHE_SIZE = 1_000
EXTRA = f"<id-cache-size>{ID_CACHE_SIZE}</id-cache-size>"
BODY_BYTES = 3_000_000
XID = Xid(7, b"in doubt", b"\1\2")


def run(*arguments: str, code: int = 0, memory_bytes: int = 0) -> dict[str, object]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))

    ended = forked.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=200, check=False,
        preexec_fn=limit if memory_bytes else None,
    )  # fmt: skip
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    result: dict[str, object] = json.loads(ended.stdout)
    return result


def url(node: Node, parameters: str = "") -> str:
    return f"tcp://127.0.0.1:{node.port}{parameters}"


def body(seed: int, size_bytes: int = BODY_BYTES) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def texts(node: Node, queue: str) -> list[bytes]:
    found = []
    with connect(url(node)) as connection, connection.session() as session:
        session.start()
        for received in session.browser(queue):
            assert "_AMQ_LARGE_COMPRESSED" not in received.message.properties
            found.append(received.read_body())
    return found


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node, Path]]:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = Pair(tmp_path / "one", extra=EXTRA), Pair(tmp_path / "two", extra=EXTRA)
    try:
        one.primary.start().wait_ready("active")
        two.primary.start().wait_ready("active")
        yield one.primary, two.primary, one.store
    finally:
        one.end()
        two.end()


@pytest.mark.long
def test_large_messages_travel_in_pieces(nodes: tuple[Node, Node, Path], tmp_path: Path) -> None:
    one, two, store = nodes
    compressible = b"the same again and again " * 40_000 + body(3, 400_000)
    with connect(url(one)) as connection, connection.session() as session:
        header = Message(address="large", properties={"name": "first"})
        session.producer("large").send_large_nowait(header, [body(1)[:1_000_000], body(1)[1_000_000:]]).result(20)
        session.producer("large").send(b"small")
        session.producer("large").send(body(2, 256 * 1024))
    with connect(url(one, "?compressLargeMessage=true")) as connection, connection.session() as session:
        session.producer("large").send(compressible)
    assert one.terminate() == 0

    file = tmp_path / "export.jsonl"
    summary = run("data", "export", str(store / "journal"), "-o", str(file), "--json")
    assert (summary["messages"], summary["large_messages"], summary["left_out"]) == (4, 3, 0)
    assert max(map(len, file.read_bytes().splitlines())) < 400_000
    arguments = ["data", "import", str(file), "--url", url(two), "--json"]
    for skipped in (0, 4):
        assert run(*arguments)["skipped"] == skipped
        assert texts(two, "large") == [body(1), b"small", body(2, 256 * 1024), compressible]
    assert run(*arguments, "--again")["confirmed"] == 4
    assert len(texts(two, "large")) == 4

    # a body that differs from the stored one is not exported, and is reported
    victim = max((store / "large-messages").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[1_000_000] ^= 1
    victim.write_bytes(content)
    summary = run("data", "export", str(store / "journal"), "-o", str(file), "--json", code=1)
    assert (summary["messages"], summary["left_out"]) == (3, 1)


@pytest.mark.long
def test_neither_side_holds_a_body_in_memory(nodes: tuple[Node, Node, Path], tmp_path: Path) -> None:
    one, two, store = nodes
    path = tmp_path / "body"
    with path.open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    with connect(url(one)) as connection, connection.session() as session:
        session.producer("large").send(path)
    assert one.terminate() == 0
    export = tmp_path / "export.jsonl"
    limit = 200 * 1024 * 1024
    assert (
        run("data", "export", str(store / "journal"), "-o", str(export), "--json", memory_bytes=limit)["messages"] == 1
    )
    arguments = ["data", "import", str(export), "--url", url(two), "--json"]
    assert run(*arguments, memory_bytes=limit)["confirmed"] == 1
    assert (two.directory.parent / "store" / "large-messages").exists()
    (stored,) = (two.directory.parent / "store" / "large-messages").glob("*.large")
    assert stored.stat().st_size == path.stat().st_size


@pytest.mark.long
def test_prepared_messages_only_when_asked_for(nodes: tuple[Node, Node, Path], tmp_path: Path) -> None:
    one, two, store = nodes
    with connect(url(one)) as connection:
        with connection.session() as plain:
            plain.producer("q").send(b"waits")
            plain.producer("q").send(b"taken in the transaction")
        session = connection.session(xa=True)
        session.xa.start(XID)
        session.producer("q").send(b"promised")
        session.producer("q").send(body(5))
        session.xa.end(XID)
        session.xa.prepare(XID)
        one.kill()
    file = tmp_path / "export.jsonl"
    summary = run("data", "export", str(store / "journal"), "-o", str(file), "--json")
    assert (summary["messages"], summary["prepared_messages"], summary["prepared_transactions"]) == (4, 2, 1)
    (line,) = (each for each in map(json.loads, file.read_text().splitlines()) if "transaction" in each)
    assert line["transaction"]["xid"] == {
        "format_id": 7, "global_transaction_id": b"in doubt".hex(), "branch_qualifier": "0102",
    }  # fmt: skip
    assert line["transaction"]["outcome"] == "prepared"

    arguments = ["data", "import", str(file), "--url", url(two), "--json"]
    assert run(*arguments)["confirmed"] == 2
    assert texts(two, "q") == [b"waits", b"taken in the transaction"]
    assert run(*arguments, "--prepared", "include")["confirmed"] == 2
    everything = [b"waits", b"taken in the transaction", b"promised", body(5)]
    assert texts(two, "q") == everything
    # with and without, in any order, once
    assert run(*arguments)["confirmed"] == 0
    assert run(*arguments, "--prepared", "include")["confirmed"] == 0
    assert texts(two, "q") == everything


@pytest.mark.long
def test_twice_is_once_with_more_messages_than_the_broker_remembers(
    nodes: tuple[Node, Node, Path], tmp_path: Path
) -> None:
    one, two, store = nodes
    count = 3 * ID_CACHE_SIZE
    with connect(url(one)) as connection, connection.session() as session:
        producer = session.producer("q")
        for sent in [producer.send_nowait(str(number).encode()) for number in range(count)]:
            sent.result(30)
    assert one.terminate() == 0
    file = tmp_path / "export.jsonl"
    run("data", "export", str(store / "journal"), "-o", str(file), "--json")
    arguments = [*COMMAND, "data", "import", str(file), "--url", url(two), "--json"]
    # killed without a word in the middle, as often as it takes, then finished, then once more
    stages = (500, 1_200, 1_900)
    for stage in stages:
        # slowly enough not to be through before it is killed
        importing = forked.Popen([*arguments, "--rate", "500"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while (waiting := two.queue("q")) is None or int(str(waiting["message_count"])) < stage:
            assert importing.poll() is None
        importing.kill()
        importing.wait()
    # messages in transit, or confirmed and not noted yet, are sent again and recognised
    assert run(*arguments[len(COMMAND) :])["confirmed"] <= count - stages[-1] + _WINDOW + _NOTE_EVERY
    renamed = file.rename(tmp_path / "renamed.jsonl")
    Path(f"{file}.progress").rename(f"{renamed}.progress")
    again = run("data", "import", str(renamed), "--url", url(two), "--json")
    assert (again["skipped"], again["sent"]) == (count, 0)
    assert texts(two, "q") == [str(number).encode() for number in range(count)]
