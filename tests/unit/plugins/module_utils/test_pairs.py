"""Goal: a partner with a store of the pair is named, and one that cannot be asked is never taken for an empty one."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.pairs import stores_of_partners


def answer(state: str, *, begun: bool, node_id: str = "") -> dict[str, Any]:
    node = {"node_id": node_id} if node_id else {}
    return {"store": {"begun": begun}, "broker": {"ready": True, "state": state, "node": node}}


def test_a_partner_that_serves_is_named_with_its_node_id() -> None:
    begun, unknown = stores_of_partners({"a2": answer("active", begun=True, node_id="n1")})
    assert begun == ["a2 has a store of node n1, and is active"]
    assert unknown == []


def test_a_stopped_partner_has_its_store_as_well() -> None:
    begun, unknown = stores_of_partners({"a2": answer("stopped", begun=True)})
    assert begun == ["a2 has a store, and is stopped"]
    assert unknown == []


def test_the_partner_of_a_new_pair_has_none() -> None:
    assert stores_of_partners({"a2": answer("not deployed", begun=False)}) == ([], [])
    assert stores_of_partners({}) == ([], [])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"unreachable": True, "msg": "Failed to connect:\n timed out"}, "a2 (Failed to connect: timed out)"),
        ({"failed": True, "msg": "service.json is no JSON", "store": {"begun": False}}, "a2 (service.json is no JSON)"),
        ({"store": {}, "broker": {}}, "a2 (its store cannot be read)"),
        ({}, "a2 (no answer)"),
    ],
)
def test_a_partner_without_an_answer_is_not_known(given: dict[str, Any], text: str) -> None:
    assert stores_of_partners({"a2": given}) == ([], [text])
