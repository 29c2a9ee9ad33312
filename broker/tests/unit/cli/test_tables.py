"""The one renderer of tables: widths at 80 and 200 columns and without a terminal, options, hostile names."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from understudy.cli.tables import Column, Kind, Page, Table, View, drawing, view_options
from understudy.cli.tables.layout import shortened
from understudy.errors import Unreachable

HUGE = 9_223_372_036_854_775_807
LONG = "orders." + "a" * 286 + ".europe"
WIDE = "注文" * 40
HOSTILE = "q\x1b]0;title\x07\x1b[2J\x9b31m\u202egnp\r\n"

QUEUES = Table(
    "queues",
    (
        Column("name", Kind.NAME, "Name of the queue.", title="queue"),
        Column("messages", Kind.NUMBER, "Messages in it."),
        Column("held", Kind.BYTES, "Bytes."),
        Column("age", Kind.DURATION, "Age of the oldest message.", optional=True),
        Column("error", Kind.TEXT, "Last error."),
        Column("killed", Kind.NUMBER, "Dead letters.", optional=True),
    ),
    title="queues of a",
)


def a_row(name: str, messages: int | None = 1, error: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "messages": messages, "held": 1536, "age": 12_345, "error": error, "killed": 0, **more}


class Terminal(StringIO):
    """A terminal of a width."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prints a table at a width, None without a terminal; the lines, without codes of colours."""

    def render(rows: list[dict[str, Any]], width: int | None, **options: Any) -> list[str]:
        output: StringIO = StringIO() if width is None else Terminal()
        monkeypatch.setenv("COLUMNS", "33" if width is None else str(width))
        monkeypatch.setenv("TERM", "xterm")
        Page(output).table(QUEUES.columns, rows, **options)
        return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue()).split("\n")[:-1]

    return render


@pytest.mark.parametrize("width", [80, 200])
def test_numbers_are_whole_and_lines_fit_a_terminal(shown: Any, width: int) -> None:
    lines = shown([a_row(LONG, HUGE), a_row(WIDE, 0), a_row("short", 20_000)], width)
    assert max(map(cell_len, lines)) <= width
    assert f"{HUGE:,}" in lines[1]
    assert lines[1].startswith("orders.aa"), "the beginning of a name stays"
    assert ".europe  " in lines[1], "and its end"
    assert "…" in lines[1]
    assert len(lines) == 4, "no name is continued on another line"


def test_without_a_terminal_a_row_is_one_line_with_everything_whole(shown: Any) -> None:
    lines = shown([a_row(LONG, HUGE, "a long error " * 30), a_row(WIDE, 20_000)], None)
    assert len(lines) == 3
    assert lines[1].split()[:2] == [LONG, str(HUGE)]
    assert WIDE in lines[2]
    assert " 20000 " in lines[2]
    assert ("a long error " * 30).strip() in lines[1]
    assert all(line == line.rstrip() for line in lines)


def test_columns_stand_below_their_headings_with_wide_characters(shown: Any) -> None:
    for width in (80, 200, None):
        lines = shown([a_row("注文", 5), a_row("plain", 123_456)], width)
        ends = {
            cell_len(line[: line.index(text) + len(text)])
            for line, text in zip(lines, ("messages", " 5", "456"), strict=True)
        }
        assert len(ends) == 1, lines


def test_a_sentence_is_continued_between_words_on_a_terminal(shown: Any) -> None:
    sentence = "the broker at the other end has refused the login of this user, because its password has expired"
    lines = shown([a_row("q", HUGE, sentence)], 80)
    assert len(lines) > 2
    assert max(map(cell_len, lines)) <= 80
    column = lines[0].index("error")
    assert " ".join(line[column:].strip() for line in lines[1:]) == sentence
    assert lines[1].startswith("q  ")
    assert lines[2].startswith("   ")


def test_optional_columns_are_left_out_last_first_and_named(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "killed" in shown([a_row("q")], 80)[0]
    narrow = shown([a_row(LONG, HUGE, LONG)], 80)[0]
    assert "killed" not in narrow
    monkeypatch.setenv("COLUMNS", "60")
    assert Page(Terminal()).table(QUEUES.columns, [a_row(LONG, HUGE, LONG)]) == ["age", "killed"]
    assert "killed" in shown([a_row(LONG, HUGE, LONG)], 80, all_columns=True)[0]


def test_a_terminal_that_is_too_narrow_gets_longer_lines_and_no_cut_number(shown: Any) -> None:
    lines = shown([a_row(LONG, HUGE, "x")], 20, all_columns=True)
    assert all(text in lines[1] for text in (f"{HUGE:,}", "1.5 KiB", "12.3 s"))


@pytest.mark.parametrize("width", [80, None])
def test_a_name_cannot_act_on_the_terminal(shown: Any, width: int | None) -> None:
    lines = shown([a_row(HOSTILE), a_row("[red]q[/red]")], width, title=HOSTILE)
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 4
    assert "[red]q[/red]" in lines[3]


@pytest.mark.parametrize("width", range(12))
@pytest.mark.parametrize("text", ["abcdefghij", "注文管理系統", "e\u0301" * 12, ""])
def test_a_shortened_name_fits(text: str, width: int) -> None:
    short = shortened(text, width)
    assert cell_len(short) <= width
    assert (short == text) is (cell_len(text) <= width)


def test_figures_stand_beside_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, terminal = StringIO(), Terminal()
    figures = {"state": "active", "acceptors": f"tcp://127.0.0.1:61616, {LONG}"}
    monkeypatch.setenv("COLUMNS", "80")
    for output in (plain, terminal):
        Page(output).figures(figures, title="node a")
    assert plain.getvalue().split("\n") == [
        "node a",
        "state      active",
        f"acceptors  tcp://127.0.0.1:61616, {LONG}",
        "",
    ]
    assert max(cell_len(re.sub(r"\x1b\[[0-9;]*m", "", each)) for each in terminal.getvalue().split("\n")) <= 80


# --- options ----------------------------------------------------------------------------------------------------------


ROWS = [a_row("b", 10, killed=2), a_row("a", None), a_row("c", 9, "refused", held=3 * 1024**2)]


@click.command("list")
@view_options(QUEUES, watch=True)
def list_(view: View) -> None:
    """List the queues.

    \b
    Example: list
    """
    view.repeat(lambda: view.rows(QUEUES, ROWS))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(list_, arguments)


def names(*arguments: str) -> list[str]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return [line.split()[0] for line in result.output.splitlines()[2:]]


def test_order() -> None:
    assert names() == ["b", "a", "c"], "the order of the node"
    assert names("--sort", "name") == ["a", "b", "c"]
    assert names("--sort", "-messages") == ["b", "c", "a"], "numbers by size, and no value last"
    assert names("--sort", "held,-name") == ["b", "a", "c"]


@pytest.mark.parametrize(("kind", "text"), [(Kind.ID, "4398046511107"), (Kind.NUMBER, "4,398,046,511,107")])
def test_an_id_has_no_separators_on_a_terminal(kind: Kind, text: str) -> None:
    assert Column("message_id", kind, "").text({"message_id": 4_398_046_511_107}, grouped=True) == text


def test_conditions() -> None:
    assert names("--filter", "name=a") == ["a"]
    assert names("--filter", "name!=a", "--filter", "messages<10") == ["c"]
    assert names("--filter", "messages>=10") == ["b"]
    assert names("--filter", "error=ref*") == ["c"]
    assert names("--filter", "held>2MiB") == ["c"]
    assert names("--filter", "age<=10s") == []
    assert names("--filter", "age>10s") == ["b", "a", "c"]
    assert names("--filter", "refus") == ["c"], "any column"
    assert names("--filter", "name=.") == [], "no regular expression"


def test_columns() -> None:
    lines = run("--columns", "killed,name").output.splitlines()
    assert lines[1].split() == ["killed", "queue"]
    assert lines[2].split() == ["2", "b"]


def test_json_has_whole_rows_or_the_wanted_columns() -> None:
    assert json.loads(run("--json").output) == ROWS
    found = json.loads(run("--json", "--columns", "name,messages", "--sort", "name").output)
    assert found == [{"name": "a", "messages": None}, {"name": "b", "messages": 10}, {"name": "c", "messages": 9}]
    assert json.loads(run("--json", "--filter", "name=c").output) == [ROWS[2]]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--columns", "mesages"), "did you mean 'messages'?"),
        (("--sort", "-nothing"), "there are name, messages"),
        (("--filter", "held>much"), "is no size"),
        (("--filter", "messages>much"), "is no number"),
        (("--filter", "nam=x"), "did you mean 'name'?"),
    ],
)
def test_usage(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_help_names_the_columns_after_the_example() -> None:
    text = run("--help").output
    assert "Example: list" in text
    assert re.search(r"^ *messages  Messages in it\.$", text, re.MULTILINE)


def test_watch_repeats_until_it_is_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    answers = iter([ROWS, None, ROWS[:1]])

    def show() -> int:
        found = next(answers)
        if found is None:
            raise Unreachable("no node answers")
        view.rows(QUEUES, found)
        return len(found)

    view = View(as_json=True, watch_s=0.5, pause=pause)
    assert view.repeat(show) == 1
    assert pauses == [0.5, 0.5, 0.5]
    output = capsys.readouterr()
    assert [len(json.loads(line)) for line in output.out.splitlines()] == [3, 1]
    assert output.err == "understudy: no node answers\n"


def test_watch_ends_without_an_error_also_in_the_middle_of_a_question() -> None:
    answers = iter([1])

    def show() -> int:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    assert View(as_json=True, watch_s=1, pause=lambda seconds: None).repeat(show) == 1


def test_watch_has_a_usual_period() -> None:
    @click.command()
    @view_options(QUEUES, watch=True)
    def period(view: View) -> None:
        click.echo(f"period {view.watch_s}")

    for arguments, text in ((["--watch"], "2.0"), (["--watch", "0.5"], "0.5"), ([], "None")):
        assert CliRunner().invoke(period, arguments).output == f"period {text}\n"


def test_a_command_with_several_tables_needs_the_choice_of_one() -> None:
    @click.command()
    @view_options(QUEUES, Table("others", (Column("id", Kind.NUMBER, "Id."),)))
    def several(view: View) -> None:
        click.echo(view.table)

    refused = CliRunner().invoke(several, ["--sort", "name"])
    assert refused.exit_code == 2
    assert "need --table: queues, others" in refused.output
    assert CliRunner().invoke(several, ["--table", "others", "--sort", "id"]).output == "others\n"
    assert "no column 'name'" in CliRunner().invoke(several, ["--table", "others", "--sort", "name"]).output


def test_columns_that_have_no_space_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(drawing, "console", lambda file=None, width=None, made=drawing.console: made(file=output))
    View().rows(QUEUES, [a_row(LONG, HUGE, LONG)])
    assert capsys.readouterr().err == "no space for age, killed: give --columns, or a wider terminal\n"
