"""Goal: faults and rolls lose and double nothing, and both kinds of pairs come back by themselves.

Method: each row of the table of docs/operate/faults-and-rolls.md is one test; ``tests/lab/lab faults`` runs the same
rows without pytest and writes the table.
"""

from __future__ import annotations

import pytest
from understudy_lab.bed import HOSTS, Bed, scratch_of
from understudy_lab.hosts import Lab
from understudy_lab.rows import ROWS, Row
from understudy_lab.table import carry_out

__all__ = ["HOSTS"]


@pytest.fixture(scope="module")
def bed(lab: Lab) -> Bed:
    found = Bed(lab, scratch_of(lab.directory.name))
    if not found.look():
        found.deploy()
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_a_row_of_the_table(bed: Bed, row: Row) -> None:
    (result,) = carry_out(bed, [row], print)
    assert result.ok, result.problem
