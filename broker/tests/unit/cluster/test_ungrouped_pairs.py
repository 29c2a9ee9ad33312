"""Replicated pairs of one cluster without a group-name are named, once each."""

from __future__ import annotations

import pytest

from understudy.cluster.membership.ungrouped_pairs import OwnPair, UngroupedPairs


def test_another_pair_without_a_group_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    pairs = UngroupedPairs(OwnPair(replicated=True))
    for _ in range(3):
        pairs.announced("b", "a", "tcp://192.0.2.3:61616", None)
    pairs.announced("a", "a", "tcp://192.0.2.2:61616", None)
    assert pairs.node_ids == {"b"}
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_a_pair_that_has_a_group_name_later_is_not_shown_any_more() -> None:
    pairs = UngroupedPairs(OwnPair(replicated=True))
    pairs.announced("b", "a", "tcp://192.0.2.3:61616", None)
    pairs.announced("b", "a", "tcp://192.0.2.3:61616", "west")
    assert pairs.node_ids == set()


@pytest.mark.parametrize("own", [None, OwnPair(), OwnPair(replicated=True, group="east")])
def test_a_node_that_takes_no_such_backup_warns_of_nothing(own: OwnPair | None) -> None:
    pairs = UngroupedPairs(own)
    pairs.announced("b", "a", "tcp://192.0.2.3:61616", None)
    assert pairs.node_ids == set()
