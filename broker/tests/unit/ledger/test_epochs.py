"""The judge of epochs: it finds two confirming nodes by the rows of clients alone, and accepts a failover."""

from __future__ import annotations

import random

import pytest

from understudy.ledger import Confirmer, Kind, Row, check_epochs, encode, parse

A1, B1, B2, A3 = (Confirmer(f"{name}:61616", "id", epoch) for name, epoch in (("a", 1), ("b", 1), ("b", 2), ("a", 3)))


def sends(*spans: tuple[int, int, Confirmer], producer: str = "p") -> list[Row]:
    """Messages sent at the first time and confirmed at the second."""
    rows = []
    for number, (sent_ms, confirmed_ms, by) in enumerate(spans):
        rows.append(Row(Kind.SENT, producer, number, "q", sent_ms))
        rows.append(Row(Kind.CONFIRMED, producer, number, "q", confirmed_ms, **by._asdict()))
    return rows


def test_a_failover_and_a_failback_are_in_order():
    rows = sends((0, 1, A1), (2, 8, B2), (9, 10, A3))
    report = check_epochs(rows)
    assert report.ok
    assert [(each.epoch, each.nodes, each.confirmations) for each in report.epochs] == [
        (1, {"a:61616"}, 1),
        (2, {"b:61616"}, 1),
        (3, {"a:61616"}, 1),
    ]


def test_a_confirmation_that_arrives_late_is_no_finding():
    """The late confirmation was requested before the younger epoch confirmed, and may have been made before that epoch
    began.
    """
    assert check_epochs(sends((0, 9, A1)) + sends((5, 6, B2), producer="other")).ok


def test_a_confirmation_after_one_of_a_younger_epoch_is_found():
    rows = sends((0, 1, B2)) + sends((2, 3, A1), producer="other")
    (finding,) = check_epochs(rows).findings
    assert "epoch 1: CONFIRMED other 0 by a:61616 was requested at 2 ms, after epoch 2 (b:61616)" in finding
    assert check_epochs(reversed_files(rows)).findings == (finding,)
    assert check_epochs(rows, clock_skew_ms=1).ok


def reversed_files(rows: list[Row]) -> list[Row]:
    """The same files in another order."""
    return [row for name in ("other", "p") for row in rows if row.producer == name]


def test_two_nodes_that_confirm_in_one_epoch_are_found():
    (finding,) = check_epochs(sends((0, 1, A1), (2, 3, B1))).findings
    assert "2 nodes confirmed in it: a:61616, b:61616" in finding


def test_acknowledgements_are_judged_as_well():
    old = Row(Kind.ACKNOWLEDGING, "p", 0, "q", 7, "c", "q")
    rows = [*sends((0, 1, B2)), old, Row(Kind.ACKNOWLEDGED, "p", 0, "q", 8, "c", "q", **A1._asdict())]
    assert "ACKNOWLEDGED p 0" in check_epochs(rows).findings[0]


def test_node_ids_are_judged_apart_and_rows_without_an_epoch_not_at_all():
    other = Confirmer("c:61616", "another id", 1)
    assert check_epochs(sends((0, 1, B2), (2, 3, other), (4, 5, Confirmer()))).ok


@pytest.mark.parametrize("seed", range(30))
def test_it_agrees_with_the_comparison_of_all_pairs(seed):
    stream = random.Random(seed)
    spans = []
    for _ in range(stream.randint(1, 8)):
        begin = stream.randint(0, 20)
        spans.append((begin, begin + stream.randint(0, 6), stream.choice((A1, B2, A3))))
    wrong = any(one.epoch < other.epoch and begin > end for begin, _, one in spans for _, end, other in spans)
    assert check_epochs(sends(*spans)).ok is not wrong


def test_a_row_with_an_epoch_is_read_back():
    row = sends((0, 1, A1))[1]
    assert parse(encode(row)) == row
    assert '"epoch":1' in encode(row)
    assert "node" not in encode(sends((0, 1, Confirmer()))[1])
