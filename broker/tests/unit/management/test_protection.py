"""The node that takes over, the loss, and the action to take: one sentence for each case."""

from __future__ import annotations

from typing import Any

import pytest

from understudy.management.protection import Facts, protection_of


def facts(**changes: Any) -> Facts:
    given: dict[str, Any] = {"policy": "shared-store", "role": "primary", "state": "active"}
    return Facts(**(given | changes))


@pytest.mark.parametrize(
    ("given", "protected", "parts"),
    [
        (facts(peer="b:1"), True, ["b:1 takes over", "same store", "no confirmed durable message is lost"]),
        (facts(peer="b:1", policy="replication"), True, ["b:1 takes over", "its copy has every confirmed record"]),
        (facts(), False, ["no node takes over", "this node is alone", "Start the backup"]),
        (facts(role="backup"), False, ["no node takes over", "Start the primary"]),
        (facts(policy="replication"), False, ["no replica is in sync", "all messages are lost if its store is lost"]),
        (facts(policy="replication", copying=True), False, ["no node takes over yet", "a replica copies"]),
        (
            facts(policy="replication", peer="b:1", manager_fault="zk:2181: timeout"),
            False,
            ["the lock manager does not answer (zk:2181: timeout)", "Start the lock manager"],
        ),
        (
            facts(policy="primary-only", role="primary-only"),
            False,
            ["single server", "its store is whole", "create --partner"],
        ),
        (facts(policy="primary-only", persistent=False), False, ["persistence is off, so all messages are lost"]),
        (facts(state="passive", role="backup", peer="a:1"), True, ["this node takes over when a:1 fails"]),
        (facts(state="passive", peer="a:1", peer_name="a"), True, ["this node takes over when a (a:1) fails"]),
        (facts(peer="b:1", peer_name="b"), True, ["b (b:1) takes over when this node fails"]),
        (facts(state="passive"), True, ["when the active node fails"]),
        (facts(state="passive", peer="a:1", in_line=True), True, ["another backup takes over", "next in line"]),
        (facts(state="passive", peer="a:1", unfit="old data"), False, ["does not take over from a:1: old data"]),
        (facts(state="starting"), False, ["it is starting", "understudy ha --url"]),
        (facts(state="stopped", policy="primary-only"), False, ["it is stopped"]),
    ],
)
def test_the_sentence_of_a_case(given: Facts, protected: bool, parts: list[str]) -> None:
    found = protection_of(given)
    assert found.protected is protected
    assert [part for part in parts if part not in found.sentence] == []
    assert found.sentence.startswith(f"{found.who}; {found.loss}")
    assert (found.successor is not None) is (protected and given.state == "active")
    assert found.advice is None or found.sentence.endswith(f". {found.advice}")
