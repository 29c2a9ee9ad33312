"""Goal: the right node of each pair is copied, and a newer store beside a restored copy is named."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.store_copies import Holder, Refused, newer_than, sources


def holder(name: str, state: str = "", **values: object) -> Holder:
    given = {"pair": "east", "deployed": True, "running": bool(state), "ready": bool(state), **values}
    return Holder.of({"name": name, "state": state, **given})


def test_the_replica_in_sync_is_copied() -> None:
    assert sources([holder("a1", "active"), holder("a2", "passive")]) == ["a2"]


def test_a_replica_that_is_not_in_sync_is_not_copied() -> None:
    assert sources([holder("a1", "active"), holder("a2", "passive", ready=False)]) == ["a1"]


def test_the_active_node_of_a_shared_store_is_copied() -> None:
    assert sources([holder("a1", "passive", shared=True), holder("a2", "active", shared=True)]) == ["a2"]


def test_every_stopped_store_of_a_replicated_pair_is_copied_and_a_shared_one_once() -> None:
    assert sources([holder("a2"), holder("a1")]) == ["a1", "a2"]
    assert sources([holder("a2", shared=True), holder("a1", shared=True)]) == ["a1"]


def test_each_pair_and_each_node_alone_is_copied_or_only_those_that_are_named() -> None:
    nodes = [holder("a1", "active"), holder("b1", "active", pair="west"), holder("c", "active", pair="")]
    assert sources(nodes) == ["c", "a1", "b1"]
    assert sources(nodes, ["west", "c"]) == ["c", "b1"]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([holder("a1", deployed=False)], "nothing is deployed on a1"),
        ([holder("a1", "starting", ready=False), holder("a2")], "a1 is starting"),
    ],
)
def test_a_pair_without_a_store_that_can_be_copied_is_refused(nodes: list[Holder], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        sources(nodes)


def test_an_unknown_pair_is_refused() -> None:
    with pytest.raises(Refused, match="north is no pair and no node without one; there are: east"):
        sources([holder("a1", "active")], ["north"])


COPY = {"node_id": "n", "epoch": 3, "sequence": 900}


def test_older_and_equal_and_missing_stores_may_stay() -> None:
    others = {"a2": {"node_id": "n", "epoch": 3, "sequence": 900}, "a3": {"node_id": None}, "a4": {}}
    assert newer_than(COPY, others) == []


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"node_id": "n", "epoch": 3, "sequence": 901}, "the store of a2 is newer: it ends at epoch 3, sequence 901"),
        ({"node_id": "n", "epoch": 4, "sequence": 10}, "the store of a2 is newer: it ends at epoch 4"),
        ({"node_id": "m", "epoch": 1, "sequence": 1}, "a2 has the store of node m"),
    ],
)
def test_a_newer_store_and_one_of_another_node_are_named(other: dict[str, object], reason: str) -> None:
    (found,) = newer_than(COPY, {"a2": other})
    assert found.startswith(reason)
