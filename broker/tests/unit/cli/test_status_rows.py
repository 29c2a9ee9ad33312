"""Rows of ``understudy status``: state, activation and the scrubber."""

from __future__ import annotations

import pytest

from understudy.cli.node.status import _activation_text, _scrub_text, _state_text

SCRUB = {"running": False, "pass_bytes": 0, "unverified": 0, "passes": 0, "age_ms": None, "damaged": 0, "repaired": 0}


@pytest.mark.parametrize(
    ("scrub", "text"),
    [
        (SCRUB, "no complete pass yet; 0 damaged files found, 0 repaired"),
        (
            SCRUB | {"running": True, "pass_bytes": 2048, "age_ms": 7_200_000, "damaged": 2, "repaired": 1},
            "last complete pass 2.0 h ago; a pass is under way, 2.0 KiB read; 2 damaged files found, 1 repaired",
        ),
    ],
)
def test_the_progress_of_a_node_that_compares_its_files(scrub: dict[str, object], text: str) -> None:
    assert _scrub_text(scrub, {"state": "passive", "policy": "replication"}) == text


def test_a_passive_node_of_a_shared_store_names_the_node_that_compares_the_files() -> None:
    assert _scrub_text(None, {"state": "passive", "policy": "shared-store"}) == (
        "by the active node, which has the same files"
    )
    for state, policy in (("active", "shared-store"), ("passive", "replication")):
        assert _scrub_text(None, {"state": state, "policy": policy}) is None


def test_the_state_of_the_machine_is_shown_where_it_says_more() -> None:
    assert _state_text({"state": "active", "machine_state": "ACTIVE"}) == "active"
    assert _state_text({"state": "passive", "machine_state": "FAILING_BACK"}) == "passive (failing back)"


def test_steps_of_an_activation_that_took_no_time_are_left_out() -> None:
    steps = [{"name": "claim the store", "took_ms": 0}, {"name": "load the broker", "took_ms": 12}]
    activation = {"took_ms": 13, "steps": steps, "step": None, "undoing": False}
    assert _activation_text(activation) == "13 ms: load the broker 12 ms"
    assert _activation_text(activation | {"step": "open acceptors"}) == "doing 'open acceptors': load the broker 12 ms"
    assert _activation_text(activation | {"steps": steps[:1]}) == "13 ms"
