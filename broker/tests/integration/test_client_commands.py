"""``produce``, ``browse`` and ``consume`` as processes against a fake broker, judged by the ledger."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from support import forked
from support.fake_broker import FakeBroker, Store
from understudy.ledger import Kind, Reason, Report, check, encode, read
from understudy.wire.core.packets import Commit, Packet, SessionSend

COMMAND = [str(forked.COMMAND)]


@dataclass
class Place:
    broker: FakeBroker
    url: str

    def run(self, *arguments: str, code: int = 0) -> str:
        ended = forked.run(
            [*COMMAND, *arguments[:1], "--url", self.url, *arguments[1:]],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout


@pytest.fixture
def place() -> Iterator[Place]:
    ready, loops = threading.Event(), []
    broker = FakeBroker(Store())

    def serve() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(broker.start())
        loops.append(loop)
        ready.set()
        loop.run_forever()
        broker.stop()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    yield Place(broker, f"tcp://127.0.0.1:{broker.port}?reconnectAttempts=-1&retryInterval=20")
    loops[0].call_soon_threadsafe(loops[0].stop)
    thread.join()


def findings(*ledgers: Path) -> Report:
    report = check([row for ledger in ledgers for row in read(ledger.read_text().splitlines())])
    assert report.ok, report
    return report


@pytest.mark.parametrize("ack", ["auto", "client", "transacted"])
def test_every_message_once(place: Place, tmp_path: Path, ack: str) -> None:
    sent, received = tmp_path / "p.jsonl", tmp_path / "c.jsonl"
    summary = json.loads(
        place.run("produce", "--queue", "q", "--count", "250", "--producer", "p", "--ledger", str(sent), "--json")
    )
    assert (summary["sent"], summary["confirmed"], summary["failovers"]) == (250, 250, 0)
    lines = [json.loads(line) for line in place.run("browse", "--queue", "q", "--json").splitlines()]
    assert [(each["producer"], each["number"]) for each in lines] == [("p", number) for number in range(250)]
    options = ["--queue", "q", "--ack", ack, "--batch", "40", "--ledger", str(received), "--consumer", "c"]
    first = json.loads(place.run("consume", *options, "--count", "100", "--json"))
    assert (first["acknowledged"], first["delivered"]) == (100, 100)
    rest = json.loads(place.run("consume", *options, "--count", "150", "--json"))
    assert rest["acknowledged"] == 150
    assert findings(sent, received).order_not_judged == ()
    kinds = [row.kind for row in read(received.read_text().splitlines())]
    assert kinds.count(Kind.DELIVERED) == kinds.count(Kind.ACKNOWLEDGING) == kinds.count(Kind.ACKNOWLEDGED) == 250
    assert kinds[0] is Kind.OPENED
    assert kinds[-2:] == [Kind.CLOSED, Kind.DRAINED]
    assert kinds.count(Kind.OPENED) == kinds.count(Kind.CLOSED) == 2
    assert kinds.count(Kind.DRAINED) == 1


def test_a_message_that_vanishes_after_its_delivery_is_lost(place: Place, tmp_path: Path) -> None:
    ledger, seen = tmp_path / "p.jsonl", tmp_path / "b.jsonl"
    options = ["--queue", "q", "--ledger", str(ledger)]
    place.run("produce", *options, "--count", "3", "--producer", "p")
    place.run("browse", "--queue", "q", "--ledger", str(seen))
    assert [row.kind for row in read(seen.read_text().splitlines())] == [Kind.REMAINING] * 3 + [Kind.DRAINED]
    findings(ledger, seen)
    delivered = [
        replace(row, kind=Kind.DELIVERED, consumer="c")
        for row in read(seen.read_text().splitlines())
        if row.kind is Kind.REMAINING
    ]
    ledger.write_text(ledger.read_text() + "".join(map(encode, delivered)))
    del place.broker.store.queues["q"][2]
    seen.unlink()
    place.run("browse", "--queue", "q", "--ledger", str(seen))
    report = check([row for file in (ledger, seen) for row in read(file.read_text().splitlines())])
    assert [(one.number, one.reason) for one in report.lost] == [(2, Reason.NEVER_ACKNOWLEDGED)]
    assert (report.counts.findings, report.counts.remaining) == (1, 2)


def test_promises_hold_through_cut_connections(place: Place, tmp_path: Path) -> None:
    sent, received = tmp_path / "p.jsonl", tmp_path / "c.jsonl"
    sends = 0

    def cut_now_and_then(packet: Packet) -> bool:
        nonlocal sends
        sends += isinstance(packet, SessionSend)
        return not isinstance(packet, SessionSend) or sends % 97 != 0

    place.broker.after = cut_now_and_then
    summary = json.loads(
        place.run("produce", "--queue", "q", "--count", "300", "--window", "50", "--ledger", str(sent), "--json")
    )
    assert summary["confirmed"] == 300
    assert summary["failovers"] >= 3
    commits = 0

    def cut_commits(packet: Packet) -> bool:
        nonlocal commits
        commits += isinstance(packet, Commit)
        return not isinstance(packet, Commit) or commits % 3 != 0

    place.broker.before, place.broker.after = cut_commits, None
    options = ["--queue", "q", "--ack", "transacted", "--batch", "30", "--ledger", str(received)]
    summary = json.loads(place.run("consume", *options, "--count", "300", "--json"))
    assert summary["unknown_batches"] >= 3
    assert summary["acknowledged"] == 300
    findings(sent, received)


def test_lines_of_a_file_over_and_over(place: Place, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\n")
    place.run("produce", "--queue", "q", "--file", str(lines), "--repeat-to", "5", "--blocking")
    assert [each.message.body for each in place.broker.store.queues["q"]] == [b"one", b"two", b"one", b"two", b"one"]
    assert "5 messages" in place.run("browse", "--queue", "q")
    assert len(place.run("browse", "--queue", "q", "--limit", "2", "--json").splitlines()) == 2


def test_interrupt_waits_for_confirmations_and_ends_well(place: Place) -> None:
    arguments = ["produce", "--url", place.url, "--queue", "q", "--rate", "200", "--json"]
    process = forked.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    while not place.broker.store.queues.get("q"):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    summary = json.loads(output)
    assert summary["sent"] == summary["confirmed"] == len(place.broker.store.queues["q"])


def test_without_an_option_that_ends_it_a_consumer_takes_a_thousand_messages(place: Place) -> None:
    place.run("produce", "--queue", "q", "--count", "1005", "--size", "1")
    assert json.loads(place.run("consume", "--queue", "q", "--json"))["acknowledged"] == 1_000
    summary = json.loads(place.run("consume", "--queue", "q", "--idle-timeout", "0.5", "--json"))
    assert summary["acknowledged"] == 5


@pytest.mark.parametrize("option", ["--count", "--idle-timeout"])
def test_a_consumer_that_follows_has_no_other_end(place: Place, option: str) -> None:
    place.run("consume", "--queue", "q", "--follow", option, "1", code=2)


def test_an_interrupted_consumer_writes_that_it_is_closed(place: Place, tmp_path: Path) -> None:
    ledger = tmp_path / "c.jsonl"
    place.run("produce", "--queue", "q", "--count", "5")
    arguments = ["consume", "--url", place.url, "--queue", "q", "--follow", "--ledger", str(ledger)]
    process = forked.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL)
    while not ledger.exists() or ledger.read_text().count(Kind.ACKNOWLEDGED.value) < 5:
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    kinds = [row.kind for row in read(ledger.read_text().splitlines())]
    assert (kinds[0], kinds[-1]) == (Kind.OPENED, Kind.CLOSED)
    assert Kind.DRAINED not in kinds


def test_a_load_with_an_ending_file_sends_at_least_the_count_and_ends_with_the_file(
    place: Place, tmp_path: Path
) -> None:
    ending = tmp_path / "end"
    arguments = ["produce", "--url", place.url, "--queue", "q", "--count", "5", "--until", str(ending), "--json"]
    process = forked.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    while len(place.broker.store.queues.get("q", ())) <= 5:
        assert process.poll() is None
    ending.touch()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(output)["confirmed"] == len(place.broker.store.queues["q"]) > 5
    place.run("produce", "--queue", "r", "--count", "5", "--until", str(ending))
    assert len(place.broker.store.queues["r"]) == 5


def test_silence_ends_a_consumer_only_once_its_ending_file_exists(place: Place, tmp_path: Path) -> None:
    ending = tmp_path / "end"
    place.run("produce", "--queue", "q", "--count", "5")
    options = ["--idle-timeout", "0.5", "--until", str(ending), "--json"]
    arguments = ["consume", "--url", place.url, "--queue", "q", *options]
    process = forked.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    while place.broker.store.queues["q"]:
        assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)  # three times the idle timeout
    ending.touch()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(output)["acknowledged"] == 5
    place.run("consume", "--queue", "q", "--until", str(ending), code=2)


def test_non_durable_messages_are_confirmed_too(place: Place, tmp_path: Path) -> None:
    ledger = tmp_path / "p.jsonl"
    place.run("produce", "--queue", "q", "--count", "3", "--non-durable", "--ledger", str(ledger))
    rows = list(read(ledger.read_text().splitlines()))
    assert [(row.kind, row.durable) for row in rows if row.kind is Kind.CONFIRMED] == [(Kind.CONFIRMED, False)] * 3
    assert not any(each.message.durable for each in place.broker.store.queues["q"])


def test_exit_codes(place: Place, tmp_path: Path) -> None:
    place.run("consume", "--queue", "q", "--count", "1", "--idle-timeout", "0.1", code=1)
    place.run("browse", "--queue", "missing", code=1)
    place.run("produce", "--count", "1", code=2)
    place.run("produce", "--queue", "q", "--repeat-to", "1", code=2)
    place.run("produce", "--queue", "q", "--ledger", str(tmp_path / "no" / "such.jsonl"), code=2)
    empty = tmp_path / "empty"
    empty.touch()
    place.run("produce", "--queue", "q", "--file", str(empty), "--repeat-to", "1", code=2)
    Place(place.broker, "tcp://127.0.0.1:1").run("consume", "--queue", "q", code=3)
    Place(place.broker, "tcp://127.0.0.1:1?nope=1").run("consume", "--queue", "q", code=2)
