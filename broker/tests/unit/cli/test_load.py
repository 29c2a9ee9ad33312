"""Common parts of the client commands: ledger files, counting, passwords; and their pure parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from understudy.cli.messages import load
from understudy.cli.messages.browse import describe
from understudy.cli.messages.consume import Intake
from understudy.cli.messages.load import LEDGER_NUMBER, LEDGER_PRODUCER, LedgerFile, Meter, print_summary, read_password
from understudy.cli.messages.produce import Load
from understudy.client.core.consumer.state import ConsumerState, ReceivedMessage
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.errors import ConfigError
from understudy.ledger import Kind, read
from understudy.message import Message


def test_rows_are_in_the_file_after_a_flush_and_appended(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for number in range(2):
        with LedgerFile(path) as ledger:
            assert ledger.rows is not None
            ledger.rows.sent("p", number, "q", 1)
            ledger.flush()
            assert f'"number":{number}' in path.read_text()
            ledger.rows.confirmed("p", number, "q", 2)
    assert [row.kind for row in read(path.read_text().splitlines())] == [Kind.SENT, Kind.CONFIRMED] * 2


def test_without_a_file_there_are_no_rows(tmp_path: Path) -> None:
    with LedgerFile(None) as ledger:
        assert ledger.rows is None
        ledger.flush()
    with pytest.raises(ConfigError):
        LedgerFile(tmp_path)


def test_meter_finds_the_longest_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 1.0, 1.5, 4.5, 5.0, 6.0])
    monkeypatch.setattr(load.time, "monotonic", lambda: next(moments))
    meter = Meter("done", None, quiet=True)
    meter.add()
    meter.add(2)
    meter.add()
    meter.add()
    assert meter.count == 5
    assert meter.longest_gap_ms == 3000.0, "waiting for the first is no gap"
    assert meter.rate == 1.0


def test_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    path.write_text("s3cret\nignored\n")
    assert read_password(path) == "s3cret"
    monkeypatch.setenv("UNDERSTUDY_PASSWORD", "other")
    assert read_password(None) == "other"
    monkeypatch.delenv("UNDERSTUDY_PASSWORD")
    assert read_password(None) is None


def test_summary_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary("x", {"sent": 1234, "ok": True}, as_json=True)
    assert capsys.readouterr().out == '{"sent": 1234, "ok": true}\n'
    print_summary("x", {"sent": 1234, "longest_gap_ms": 1.5}, as_json=False)
    shown = capsys.readouterr().out
    assert "1,234" in shown
    assert "longest gap ms" in shown
    print_summary("x", {"rate": 2.5, "latency_p99_9_ms": 1.5, "age_p99_ms": None, "error": None}, as_json=False)
    assert [line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["messages per second", "2.5"], ["latency p99.9 ms", "1.5"], ["error", "none"],
    ]  # fmt: skip


def make_load(**fields: object) -> Load:
    values: dict[str, object] = {
        "address": "q",
        "routing": "anycast",
        "count": None,
        "until": None,
        "rate": None,
        "producer": "p",
        "start_number": 0,
        "window": 5,
        "blocking": False,
        "durable": True,
        "size_bytes": 200,
        "file": None,
        "repeat": False,
    }
    return Load(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 95, 200])
def test_bodies_have_the_size_asked_for(size: int) -> None:
    assert len(next(make_load(size_bytes=size).bodies())) == size


def test_bodies_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\r\nb\n\nc")
    assert list(make_load(file=path).bodies()) == [b"a", b"b", b"", b"c"]
    endless = make_load(file=path, repeat=True).bodies()
    assert [next(endless) for _ in range(6)] == [b"a", b"b", b"", b"c", b"a", b"b"]


@pytest.mark.parametrize(
    ("ack", "mode"),
    [
        ("auto", AcknowledgeMode.CLIENT),
        ("client", AcknowledgeMode.CLIENT),
        ("transacted", AcknowledgeMode.TRANSACTED),
    ],
)
def test_every_acknowledgement_is_answered(ack: str, mode: AcknowledgeMode) -> None:
    assert Intake("q", None, None, None, None, ack, 1, "c").mode is mode


class Channel:
    """The part of a channel that a received message looks at."""

    generation = 0


def received(message: Message) -> ReceivedMessage:
    consumer = ConsumerState.__new__(ConsumerState)
    consumer.channel = Channel()  # type: ignore[assignment]
    return ReceivedMessage(message, 1, 10, consumer)


def test_browsed_messages_name_their_ledger_row() -> None:
    message = Message(b"a\x1bb", address="q", properties={LEDGER_PRODUCER: "p", LEDGER_NUMBER: 3, "raw": b"\xff"})
    found = describe(received(message))
    assert (found["producer"], found["number"], found["type"]) == ("p", 3, "bytes")
    assert found["preview"] == "a.b", "nothing a terminal would obey"
    assert found["properties"]["raw"] == "ff"
    other = describe(received(Message(b"\x01", address="q", type=3)))
    assert "producer" not in other
    assert other["preview"] == "01", "a text message without a text"
    assert describe(received(Message(type=99)))["type"] == "99"
