"""Every table of every command, and the figures of a node, at 80 and 200 columns and without a terminal.

Goal: no command has a table that cuts a number, is wider than the terminal, or folds a row where a program reads it.
Method: the commands are found by walking the command line, and each table is drawn with a row of long and hostile
values. A table without an entry in ``ROWS`` fails, so a new one cannot be left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import Any, Final

import pytest
from rich.cells import cell_len

from support.command_tree import leaves
from understudy.cli.main import cli
from understudy.cli.managing.ha import sentence_of
from understudy.cli.node.status import node_figures
from understudy.cli.tables import Column, Kind, Page, Table, View
from understudy.management.doors.http import node_json
from understudy.testing.fake_node import fake_node

NUMBER: Final = 1_234_567
LONG: Final = "orders." + "ä注" * 80 + "\x1b[2J\r\n.europe"
SENTENCE: Final = "the broker has refused it because the address is full " * 6
LINE_MS: Final = 1_234_567_890

#: Values of a row by command and table, where a column makes its value from others; the rest follows from the kinds.
ROWS: Final[dict[str, dict[str, Any]]] = {
    "address list: addresses": {},
    "bridge list: bridges": {},
    "browse: messages": {"timestamp": LINE_MS},
    "channel list: channels": {},
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
    "exchange bindings: exchange-bindings": {"arguments": {"x-match": LONG}},
    "exchange list: exchanges": {},
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
    Kind.ID: NUMBER,
    Kind.BYTES: NUMBER**2,
    Kind.DURATION: LINE_MS,
    Kind.NAME: LONG,
    Kind.TEXT: SENTENCE,
}


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


READY: Final = {
    "ready": False,
    "reason": SENTENCE,
    "state": "active",
    "protection": SENTENCE,
    "overrides": 0,
    "pending_count": 0,
}


def hostile_node() -> dict[str, Any]:
    """The answer of a node with long values everywhere."""
    pair = {"policy": "replication", "waiting_because": SENTENCE}
    pair["without_lock_manager"] = {"manager": LONG, "for_ms": LINE_MS, "reason": SENTENCE}
    node = node_json(fake_node(name=LONG))
    certificate = {"subject": LONG, "days_until_expiration": NUMBER}
    return node | {
        "ha": node["ha"] | pair,
        "node_id": LONG,
        "epoch": NUMBER,
        "peer": {"role": "backup", "connector": LONG, "name": LONG},
        "promotion": {"before": NUMBER, "sequence": NUMBER, "newest_known": None},
        "earlier_data": {
            "records": NUMBER, "messages": NUMBER, "epoch": NUMBER, "sequence": NUMBER, "directory": LONG,
        },
        "activation": {
            "step": LONG, "undoing": False, "took_ms": NUMBER, "steps": [{"name": LONG, "took_ms": NUMBER}] * 9,
        },
        "following": {"caught_up": False, "lag_bytes": NUMBER**2},
        "store": {"directory": LONG, "segments": NUMBER, "bytes": NUMBER**2, "full": True},
        "scrub": {"age_ms": LINE_MS, "running": True, "pass_bytes": NUMBER**2, "damaged": NUMBER, "repaired": NUMBER},
        "acceptors": [{"name": LONG, "url": LONG, "certificate": certificate}] * 4,
        "overrides": NUMBER,
        "pending": [LONG, LONG],
        "connections": NUMBER,
        "sessions": NUMBER,
        "queues": [{"message_count": NUMBER}] * 3,
        "pid": NUMBER,
    }  # fmt: skip


def draw_status(page: Page) -> None:
    page.figures(node_figures(hostile_node(), READY), title=LONG)


def draw_ha(page: Page) -> None:
    page.sentence(sentence_of(READY))


def figures_of(draw: Callable[[Page], None], width: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    output: StringIO = StringIO() if width is None else Terminal()
    monkeypatch.setenv("COLUMNS", "33" if width is None else str(width))
    monkeypatch.setenv("TERM", "xterm")
    draw(Page(output))
    return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue()).split("\n")[:-1]


def words_of(lines: list[str]) -> str:
    """The text of all lines without spaces: a value may be continued on the next line."""
    return re.sub(r"\s+", "", "".join(lines))


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("draw", [draw_status, draw_ha])
def test_figures_fit_a_terminal_and_lose_nothing(
    draw: Callable[[Page], None], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = figures_of(draw, width, monkeypatch)
    assert max(map(cell_len, lines)) <= width, lines
    assert all(line.isprintable() for line in lines)
    assert words_of(lines) == words_of(figures_of(draw, None, monkeypatch))


def test_a_long_sentence_is_divided_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = figures_of(draw_ha, 80, monkeypatch)
    assert len(lines) > 1
    assert " ".join(lines) == sentence_of(READY).strip()


def test_without_a_terminal_a_figure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures_of(draw_ha, None, monkeypatch) == [sentence_of(READY)]
    assert len(figures_of(draw_status, None, monkeypatch)) == 1 + len(node_figures(hostile_node(), READY))
