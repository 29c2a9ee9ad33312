"""Goal: ``understudy ledger check`` reports its findings, in words and as JSON, and ends with the right code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from understudy.cli.data.ledger import ledger
from understudy.cli.main import exit_code_of
from understudy.errors import BrokerError
from understudy.ledger import Kind, Row, check, encode

SENT = Row(Kind.SENT, "p", 0, "a", 1_000)
CONFIRMED = Row(Kind.CONFIRMED, "p", 0, "a", 1_010)
DELIVERED = Row(Kind.DELIVERED, "p", 0, "a", 1_020, "c", "q", 7, 1)
ACKNOWLEDGED = Row(Kind.ACKNOWLEDGED, "p", 0, "a", 1_030, "c", "q", 7)
DRAINED = Row(Kind.DRAINED, "", 0, "a", 2_000, "c", "q")


def write(path: Path, *rows: Row, tail: str = "") -> str:
    path.write_text("".join(map(encode, rows)) + tail)
    return str(path)


def invoke(*arguments: str) -> tuple[int, Result]:
    """Exit code as ``main`` would make it, and the result."""
    result = CliRunner().invoke(ledger, ["check", *arguments])
    if isinstance(result.exception, BrokerError):
        return exit_code_of(result.exception), result
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result


def test_a_clean_ledger(tmp_path: Path) -> None:
    code, result = invoke(write(tmp_path / "p", SENT, CONFIRMED), write(tmp_path / "c", DELIVERED, ACKNOWLEDGED))
    assert code == 0
    assert "no promise was broken" in result.output


def test_files_without_a_whole_row_prove_nothing(tmp_path: Path) -> None:
    for tail in ("", encode(SENT)[:20]):
        code, result = invoke(write(tmp_path / "p", tail=tail), write(tmp_path / "c"))
        assert code == 2
        assert "nothing can be judged" in str(result.exception)
    assert invoke(write(tmp_path / "p", SENT, CONFIRMED), write(tmp_path / "c"))[0] == 3


def test_unresolved_messages_give_exit_code_3(tmp_path: Path) -> None:
    code, result = invoke(write(tmp_path / "p", SENT, CONFIRMED), write(tmp_path / "c", DELIVERED))
    assert code == 3
    assert "1 messages unresolved" in result.output
    assert "unresolved: p #0 on q: delivered and not acknowledged" in result.output
    code, result = invoke(write(tmp_path / "p", SENT, CONFIRMED), write(tmp_path / "c", DELIVERED, DRAINED))
    assert code == 1
    assert "lost: p #0 on q: delivered, never acknowledged" in result.output


def test_a_loss_is_exit_code_1_and_shown_with_its_rows(tmp_path: Path) -> None:
    code, result = invoke(write(tmp_path / "p", SENT, CONFIRMED, DRAINED))
    assert code == 1
    assert "1 findings" in result.output
    assert "lost: p #0: confirmed, never delivered" in result.output
    assert "CONFIRMED #0 a" in result.output


def test_json_is_the_report(tmp_path: Path) -> None:
    code, result = invoke(write(tmp_path / "p", SENT, CONFIRMED, DRAINED, tail='{"kind"'), "--json", "--window-ms", "9")
    assert code == 1
    torn = {str(tmp_path / "p"): 4}
    assert json.loads(result.stdout) == check([SENT, CONFIRMED, DRAINED], window_ms=9).to_json() | {
        "torn": torn,
        "confirmed_by": {"ok": True, "epochs": [], "findings": []},
    }


def test_an_incomplete_last_line_is_reported(tmp_path: Path) -> None:
    code, result = invoke(write(tmp_path / "p", SENT, tail='{"kind"'))
    assert code == 0
    assert "half-written" in result.output
    assert "p:2" in result.output.replace("\n", "")


@pytest.mark.parametrize("tail", ['{"kind"\n' + encode(SENT), "{}\n", "\xff\n" + encode(SENT)])
def test_a_damaged_file_is_exit_code_2_and_named_with_its_line(tmp_path: Path, tail: str) -> None:
    code, result = invoke(write(tmp_path / "p", SENT, tail=tail))
    assert code == 2
    assert f"{tmp_path / 'p'}:2:" in str(result.exception)


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(encode(SENT).replace("p", "\udcff", 1).encode("utf-8", "surrogateescape") + encode(SENT).encode())
    code, result = invoke(str(path))
    assert code == 2
    assert "UTF-8" in str(result.exception)


def test_remaining_messages_are_not_lost(tmp_path: Path) -> None:
    ledgers = write(tmp_path / "p", SENT, CONFIRMED)
    remaining = tmp_path / "remaining"
    remaining.write_text('\n{"producer":"p","number":0,"queue":"q"}\n')
    assert invoke(ledgers, "--remaining-file", str(remaining))[0] == 0
    remaining.write_text('{"producer":"p","number":0}\n{"producer":"p"}\n')
    code, result = invoke(ledgers, "--remaining-file", str(remaining))
    assert code == 2
    assert "remaining:2" in str(result.exception)


def test_clock_skew_is_passed_on(tmp_path: Path) -> None:
    rows = [SENT, DELIVERED, Row(Kind.ACKNOWLEDGED, "p", 0, "a", 1_030, "c", "q")]
    late = Row(Kind.DELIVERED, "p", 0, "a", 1_040, "d", "q", 7, 2)
    path = write(tmp_path / "p", *rows, late)
    assert invoke(path)[0] == 1
    assert invoke(path, "--clock-skew-ms", "10")[0] == 0


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "p", SENT)
    (tmp_path / "link").symlink_to(path)
    code, result = invoke(path, str(tmp_path / "link"))
    assert code == 2
    assert "twice" in str(result.exception)


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    nasty = Row(Kind.CONFIRMED, "\x1b[2J[bold]", 0, "a", 1)
    code, result = invoke(write(tmp_path / "p", nasty))
    assert code == 1
    assert "\x1b" not in result.output
    assert "[bold]" in result.output


@pytest.mark.parametrize("arguments", [[], ["/no/such/file"], ["--window-ms", "-1", "x"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    assert invoke(*arguments)[0] == 2


def test_two_nodes_that_confirm_are_found(tmp_path):
    """The ledgers of two producers: the second one was confirmed by the node of the epoch before."""
    for name, at_ms, epoch in (("p", 0, 2), ("other", 5, 1)):
        sent = Row(Kind.SENT, name, 0, "q", at_ms)
        confirmed = Row(Kind.CONFIRMED, name, 0, "q", at_ms + 1, node=f"n{epoch}:1", node_id="id", epoch=epoch)
        (tmp_path / name).write_text(encode(sent) + encode(confirmed))
    result = CliRunner().invoke(ledger, ["check", str(tmp_path / "p"), str(tmp_path / "other")])
    assert result.exit_code == 1
    assert "two-confirming: node id id, epoch 1: CONFIRMED other 0 by n1:1 was requested at 5 ms" in result.output


def test_members_between_which_messages_move_are_passed_on(tmp_path: Path) -> None:
    moved = Row(Kind.DELIVERED, "p", 0, "a", 1_025, "d", "q", 8, 1)
    path = write(tmp_path / "p", SENT, CONFIRMED, DELIVERED, moved, ACKNOWLEDGED)
    assert invoke(path)[0] == 1
    assert invoke(path, "--members")[0] == 0
