"""Rows of the table of faults and rolls by name, and the page that shows their results."""

from __future__ import annotations

import pytest
from understudy_lab.errors import LabError
from understudy_lab.rows import ROWS
from understudy_lab.table import BEGIN, END, PAGE, chosen, table

RESULT = {
    "ok": True,
    "gaps_s": {"east": 12.25, "west": 6.0},
    "confirmed": 12345,
    "lost": 0,
    "doubled": 0,
    "seconds": 90.4,
    "at": "2026-11-29 18:00",
    "load_average": 4.0,
}


def test_rows_are_chosen_by_their_names_or_the_begin_of_them_in_the_order_of_the_table() -> None:
    assert chosen([]) == list(ROWS)
    assert [row.key for row in chosen(["reboot", "power-cut"])] == ["power-cut", "reboot"]
    assert [row.key for row in chosen(["killed"])] == ["killed-restart", "killed-update", "killed-rollback"]


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(LabError, match="no row is named powercut; tests/lab/lab faults --list shows them"):
        chosen(["power-cut", "powercut"])


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row.key for row in ROWS}) == len({row.name for row in ROWS}) == len(ROWS)


def test_the_table_has_a_line_for_each_row_also_without_a_result() -> None:
    shown = table({"power-cut": RESULT, "reboot": {**RESULT, "ok": False, "gaps_s": {}, "lost": 2}}).splitlines()
    assert len(shown) == 2 + len(ROWS)
    lines = {line.split("`")[1]: line for line in shown[2:]}
    assert lines["power-cut"].endswith("| 12.2 s | 6.0 s | 12,345 | 0 | 0 | 90 s | 2026-11-29 18:00, 4.0 |")
    assert "**not ok** |  |  | 12,345 | 2 | 0 |" in lines["reboot"]
    assert "| not run |" in lines["kill"]


def test_results_of_another_release_have_a_line_of_their_own() -> None:
    shown = table({"reboot": RESULT, "reboot, Debian 13": RESULT}).splitlines()
    assert [line.split("`")[1] for line in shown if "reboot" in line] == ["reboot", "reboot, Debian 13"]
    assert len(shown) == 3 + len(ROWS)


def test_lines_of_rows_that_this_machine_has_not_run_stay() -> None:
    former = table({"kill": RESULT, "reboot": RESULT, "reboot, Debian 13": RESULT})
    shown = table({"reboot": {**RESULT, "confirmed": 7}}, former)
    changed = [one for one, other in zip(former.splitlines(), shown.splitlines(), strict=True) if one != other]
    assert [line.split("`")[1] for line in changed] == ["reboot"]


def test_the_page_shows_every_row() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert [row.key for row in ROWS if f"| `{row.key}` | {row.name}" not in shown] == []
