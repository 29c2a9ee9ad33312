"""Names with control characters in the output of commands: replaced in lines, tables and pages."""

from __future__ import annotations

import ast
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table

import understudy.cli
from understudy.cli.pipeline import flow as pipeline_flow
from understudy.cli.tables import View, console
from understudy.cli.terminal import echo
from understudy.spark.base.pages import page, plot, table

HOSTILE = "q\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp\r"
COMMANDS = Path(understudy.cli.__path__[0])
#: The two modules through which everything is shown.
OUTPUT = {"terminal.py", "console.py"}


def test_a_line_has_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    echo(f"first {HOSTILE}\nsecond")
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert out.splitlines()[-1] == "second"


def test_a_table_has_no_control_character_and_takes_no_markup() -> None:
    output = StringIO()
    shown = Table("name", title=HOSTILE)
    shown.add_row(HOSTILE)
    made = console(file=output)
    made.print(shown)
    made.print(f"[red]{HOSTILE}[/red]")
    assert all(line.isprintable() for line in output.getvalue().split("\n"))
    assert "[red]" in output.getvalue()


def test_the_flow_of_messages_has_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    """Names with line ends, too: a name must not make a line of its own."""
    name = f"{HOSTILE}\nqueue forged: 1"
    bytes_of = dict.fromkeys(("log_bytes", "pinned_bytes", "live_bytes"), 1)
    report = {
        "messages": 1, "message_bytes": 1, "addresses_in_all": 1, "begin_ms": 0, "end_ms": 1000, "depth": 1,
        "queues_in_all": 1,
        "addresses": [{"address": name, "messages": 1, "messages_per_s": 1.0, "highest_per_s": 1.0, "share": 1.0}],
        "queues": [{"queue": name, "came": 1, "acknowledged": 0, "depth": 1, "depth_highest": 1}],
        "redistribution": {"messages": 0, "again": 0},
        "amplification": {"factor": 1.0, **bytes_of},
        "segments": {
            "pinned": 1, "in_all": 1, **bytes_of,
            "list": [
                {"file": "s", "live_messages": 1, "bytes": 1, "oldest_message_id": 1, "oldest_queue": name, **bytes_of}
            ],
        },
        "forecasts": [
            {
                "directory": name,
                "disk": {"free_bytes": 1, "full_in_s": None, "full_in_s_at_least": None},
                "take_over": {"tail_bytes": 1, "seconds": 1.0},
            }
        ],
    }  # fmt: skip
    pipeline_flow._print(report, View())
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("queue forged") for line in lines)
    assert len(lines) == 4 + 4 * 3, "sentences, and four tables of one row with title and heading"


def test_a_page_has_no_control_character() -> None:
    text = page(HOSTILE, [table([HOSTILE], [[HOSTILE]]), plot({HOSTILE: [(1, 1.0)]}, [])])
    assert all(line.isprintable() for line in text.splitlines())
    assert "<b>" not in table(["<b>"], [["<b>"]])


@pytest.mark.parametrize("path", sorted(COMMANDS.rglob("*.py")), ids=lambda path: str(path.relative_to(COMMANDS)))
def test_commands_print_through_one_function(path: Path) -> None:
    if path.name in OUTPUT:
        return
    calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    assert not calls & {"click.echo", "click.secho", "print", "Console", "sys.stdout.write", "sys.stderr.write"}
