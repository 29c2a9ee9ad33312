"""Every table of every command at 80 and 200 columns and without a terminal.

Goal: no command has a table that cuts a number, is wider than the terminal, or folds a row where a program reads it.
Method: the commands are found by walking the command line, and each table is drawn with a row of long and hostile
values. A table without an entry in ``ROWS`` fails, so a new one cannot be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO
from typing import Any, Final

import click
import pytest
from rich.cells import cell_len

from understudy.cli.main import cli
from understudy.cli.tables import Column, Kind, Page, Table, View

NUMBER: Final = 1_234_567
LONG: Final = "orders." + "ä注" * 80 + "\x1b[2J\r\n.europe"
SENTENCE: Final = "the broker has refused it because the address is full " * 6
LINE_MS: Final = 1_234_567_890

#: Values of a row by command and table, where a column makes its value from others; the rest follows from the kinds.
ROWS: Final[dict[str, dict[str, Any]]] = {
    "address list: addresses": {},
    "bridge list: bridges": {},
    "browse: messages": {"timestamp": LINE_MS},
    "cluster show: bridges": {},
    "cluster show: broadcasts": {},
    "cluster show: colocated": {},
    "cluster show: connections": {"address": LONG, "nodes": [LONG, LONG]},
    "cluster show: discovered": {},
    "cluster show: discovery": {"outcomes": {"new": NUMBER}},
    "cluster show: grouping": {},
    "cluster show: links": {},
    "cluster show: members": {},
    "cluster show: redistribution": {},
    "cluster show: remote-queues": {},
    "cluster show: unreached": {},
    "config diff: overrides": {},
    "connection list: connections": {},
    "consumer list: consumers": {},
    "context list: contexts": {},
    "data compare: copies": {},
    "data verify: segments": {"state": "damaged", "part_of_log": False},
    "definitions diff: differences": {},
    "definitions import: differences": {},
    "dlq list: groups": {},
    "events: events": {"fields": {"queue": LONG}},
    "message list: messages": {"type": 3, "properties": {"_AMQ_ORIG_QUEUE": LONG}},
    "migrate check: findings": {},
    "migrate convert: findings": {},
    "operation list: operations": {"parameters": [{"type": "String", "name": LONG, "nullable": True}]},
    "pipeline flow: addresses": {},
    "pipeline flow: forecasts": {
        "disk": {"free_bytes": NUMBER**2, "full_in_s": NUMBER, "full_in_s_at_least": NUMBER},
        "take_over": {"tail_bytes": NUMBER**2, "seconds": NUMBER},
    },
    "pipeline flow: queues": {},
    "pipeline flow: segments": {},
    "queue list: queues": {"routing_type": "ANYCAST", "durable": False},
    "queue stat: queues": {"routing_type": "ANYCAST", "durable": True},
    "reader list: readers": {"dropped": SENTENCE},
    "session list: sessions": {},
    "top: consumers": {},
    "top: queues": {},
    "transaction list: transactions": {},
    "user list: users": {"roles": [LONG, LONG]},
    "witness status: locks": {},
    "witness status: sequences": {},
}
_VALUES: Final = {
    Kind.NUMBER: NUMBER,
    Kind.BYTES: NUMBER**2,
    Kind.DURATION: LINE_MS,
    Kind.NAME: LONG,
    Kind.TEXT: SENTENCE,
}


def leaves(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Each command with the words that call it."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}".strip())


def all_tables() -> dict[str, Table]:
    """The tables of all commands."""
    return {
        f"{path}: {table.name}": table
        for path, command in leaves(cli)
        for table in getattr(command.callback, "tables", ())
    }


TABLES: Final = all_tables()


def row_of(name: str) -> dict[str, Any]:
    return {column.name: _VALUES[column.kind] for column in TABLES[name].columns} | ROWS[name]


class Terminal(StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def lines_of(table: Table, rows: list[dict[str, Any]], width: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    output: StringIO = StringIO() if width is None else Terminal()
    monkeypatch.setenv("COLUMNS", "33" if width is None else str(width))
    monkeypatch.setenv("TERM", "xterm")
    View(output=Page(output)).rows(table, rows, title="")
    return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue()).split("\n")[:-1]


def columns_of(table: Table) -> list[Column]:
    return [column for column in table.columns if column.shown]


def test_every_table_of_every_command_is_drawn_here() -> None:
    assert sorted(TABLES) == sorted(ROWS), "a table of a command has no row in ROWS, or one has no table any more"
    with_options = {
        path for path, command in leaves(cli) if {"columns", "order"} & {each.name for each in command.params}
    }
    assert with_options <= {name.partition(":")[0] for name in TABLES}, "a table that is not declared by view_options"


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", ROWS)
def test_a_table_fits_a_terminal(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table, row = TABLES[name], row_of(name)
    lines = lines_of(table, [row, row], width, monkeypatch)
    assert max(map(cell_len, lines)) <= width, lines
    assert all(line.isprintable() for line in lines)
    heading = re.sub(r"\s+", " ", lines[0])
    numbers = [each for each in columns_of(table) if each.kind.is_number and each.heading in heading]
    for column in numbers:
        text = column.text(row, grouped=True)
        assert sum(text in line for line in lines) >= 2, f"{column.name} is cut"


@pytest.mark.parametrize("name", ROWS)
def test_without_a_terminal_a_row_is_one_line_with_whole_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, row = TABLES[name], row_of(name)
    lines = lines_of(table, [row, row], None, monkeypatch)
    assert len(lines) == 3
    for column in columns_of(table):
        assert column.text(row, grouped=False).strip() in lines[1], column.name
        assert column.heading in lines[0]
