"""Goal: the report of health has every node, also one that cannot be reached, and one sentence for each pair."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.health import drift, report
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Phase, Record

TOPOLOGY: dict[str, Any] = {
    "a1": {"pair": "east", "ha_role": "primary", "ha_policy": "shared_store", "instance_directory": "/i"},
    "a2": {"pair": "east", "ha_role": "backup", "ha_policy": "shared_store", "instance_directory": "/i"},
}
MAY = "NO NODE MAY TAKE OVER."
LOST_TOLD = "cannot be reached by Ansible (Failed to connect: timed out): repair the host or the way to it."
WAITS = (
    "It does so by itself when the lock of the store is free. After a clean stop of the primary it waits: "
    "`understudy activate --instance /i` on a2 lets it serve."
)
MIGHT = "It may still serve: look at it before another node is activated."
HALF = "a1 is stopped in an unfinished roll (applied): resume or undo it as said above."
TWO = "a1, a2 serve at the same time. Stop all but one at once (docs/build/reliability.md)."
SILENT = (
    "From a2 these members do not answer at the address that they advertise: a1 core. "
    "Check broker_advertise_address, broker_interfaces and the firewalls."
)
LOST = {"unreachable": True, "msg": "Failed to connect:\n timed out"}


def node(state: str, *, ready: bool = True, **more: Any) -> dict[str, Any]:
    own = {
        "node_id": "n1",
        "peer": {"connector": ""},
        "following": {"caught_up": ready} if state == "passive" else None,
    }
    broker = {"reachable": True, "ready": ready, "state": state, "reason": "", "node": own}
    return {"deployed": True, "release": "1", "running_release": "1", "broker": broker, **more}


def stopped(reason: str = "") -> dict[str, Any]:
    broker = {"reachable": False, "ready": False, "state": "stopped", "reason": reason, "node": {}}
    return {"deployed": True, "release": "1", "running_release": "", "broker": broker}


def in_roll(phase: str, *, running: bool) -> dict[str, Any]:
    """What a killed roll leaves in a result: the record as it was written last, and whether the broker runs."""
    record = Record("20260101T000000Z", "restart", "", "east", Phase(phase), served=True)
    return {"rollout": {"record": record.as_dict()}, "service": {"running": running, "kept": running}}


def made(a1: dict[str, Any], a2: dict[str, Any], **rolls: list[str]) -> dict[str, Any]:
    return report({"a1": a1, "a2": a2}, TOPOLOGY, rolls).as_dict()


def test_a_pair_in_order_needs_nothing() -> None:
    told = made(node("active"), node("passive"))
    assert told["healthy"] is True
    assert told["lines"][-1] == "Pair east: a1 serves, and a2 may take over. Nothing is to be done."
    assert told["pairs"][0]["may_take_over"] == ["a2"]


@pytest.mark.parametrize(
    ("a1", "a2", "sentence"),
    [
        (node("active"), LOST, f"a1 serves, and {MAY} a2 {LOST_TOLD}"),
        (LOST, node("active"), f"a2 serves, and {MAY} a1 {LOST_TOLD}"),
        (
            LOST,
            node("passive"),
            f"NO NODE SERVES; a2 may take over. {WAITS} a1 {LOST_TOLD} {MIGHT}",
        ),
        (
            stopped("exited with 0"),
            node("active"),
            f"a2 serves, and {MAY} a1 is stopped (exited with 0): failback starts it and gives the service back.",
        ),
        (
            node("active"),
            stopped("exited with 1"),
            f"a1 serves, and {MAY} a2 is stopped (exited with 1): start it with site.",
        ),
        (
            node("active"),
            {"deployed": False, "broker": {"state": "not deployed", "node": {}}},
            f"a1 serves, and {MAY} Nothing is deployed on a2: run site.",
        ),
        (
            node("active"),
            node("active"),
            "a1, a2 serve at the same time. Stop all but one at once (docs/build/reliability.md).",
        ),
        (
            {**stopped(), **in_roll("applied", running=False)},
            node("passive", ready=False),
            f"NO NODE SERVES, and none may take over. {HALF} a2 is not in sync: wait, or look at its log.",
        ),
        (
            node("active"),
            {"failed": True, "deployed": False, "msg": "record.json is no record"},
            f"a1 serves, and {MAY} The state of a2 cannot be read (record.json is no record).",
        ),
    ],
)
def test_one_sentence_says_who_may_take_over_and_what_to_do(
    a1: dict[str, Any], a2: dict[str, Any], sentence: str
) -> None:
    told = made(a1, a2)
    assert told["healthy"] is False
    assert told["pairs"][0]["sentence"] == f"Pair east: {sentence}"
    assert [each["name"] for each in told["nodes"]] == ["a1", "a2"]


def test_rolls_releases_witnesses_and_members_are_problems_of_a_whole_pair() -> None:
    active = node("active", running_release="2", witness={"rc": 3, "stderr": "witness: no\nanswer"})
    passive = node("passive", endpoints={"refused": ["a1 core"], "silent": []})
    active["broker"]["node"]["ha"] = {"without_lock_manager": {"reason": "the witness is away"}}
    told = made(active, passive, unfinished=["The update to 2 has not finished."])
    assert told["healthy"] is False
    assert all(each["whole"] for each in told["pairs"])
    assert told["problems"] == [
        "The update to 2 has not finished.",
        "The nodes have different releases (1: a2; 2: a1).",
        "a1 runs the release 2, and 1 is in place for its next start.",
        "a1 runs without its lock manager: the witness is away.",
        "a1 gets no answer from its witness: witness: no answer.",
        SILENT,
    ]
    assert told["roll_unfinished"] == ["The update to 2 has not finished."]


@pytest.mark.parametrize(("apart_ms", "told"), [(8_000, True), (-8_000, True), (5_500, False), (0, False)])
def test_clocks_are_reported_when_the_times_of_the_question_cannot_explain_the_difference(
    apart_ms: int, told: bool
) -> None:
    times = {"asked_ms": "1000000", "answered_ms": 1005000}
    a1, a2 = node("active", clock_ms=1_002_000, **times), node("passive", clock_ms=1_002_000 + apart_ms, **times)
    problems = made(a1, a2)["problems"]
    assert problems == (
        ["The clocks of a1 and a2 differ by at least 3.0 s: let both follow the same time server."] if told else []
    )


def test_a_whole_pair_in_an_unfinished_roll_is_not_done() -> None:
    told = made(node("active", **in_roll("begun", running=True)), node("passive"))
    assert told["pairs"][0]["sentence"].endswith("a2 may take over. Resume or undo the roll as said above.")


@pytest.mark.parametrize(
    ("written", "running", "phase"),
    [
        ("begun", True, "begun"),
        ("begun", False, "stopped"),
        ("stopped", True, "begun"),
        ("applied", False, "applied"),
        ("applied", True, "started"),
        ("started", False, "applied"),
        ("restoring", True, "restoring"),
        ("done", True, ""),
        ("done", False, ""),
    ],
)
def test_the_phase_of_a_roll_is_that_of_the_record_and_of_the_process(written: str, running: bool, phase: str) -> None:
    seen = node("active") if running else stopped()
    told = made({**seen, **in_roll(written, running=running)}, node("passive"))
    assert told["nodes"][0]["roll_phase"] == phase


def test_a_node_without_a_pair_has_a_sentence_too() -> None:
    told = report({"c1": node("active")}, {"c1": {"ha_role": "primary"}}, {}).as_dict()
    assert told["healthy"] is True
    assert told["lines"][-1] == "Node c1: c1 serves; it has no partner that takes over."


def test_releases_of_nodes_that_are_down_count_by_what_is_in_place() -> None:
    assert drift({"a1": node("active"), "a2": stopped(), "a3": LOST}) == []
    assert drift({"a1": node("active"), "a2": {**stopped(), "release": "2"}}) == [
        "The nodes have different releases (1: a1; 2: a2)"
    ]


def test_changes_of_the_management_cli_are_told_and_are_no_problem() -> None:
    changed = node("active")
    changed["broker"]["node"] |= {"overrides": 2, "pending": ["ha-policy", "name"]}
    told = made(changed, node("passive"))
    assert told["healthy"] is True
    assert (told["nodes"][0]["overrides"], told["nodes"][0]["pending"]) == (2, ["ha-policy", "name"])
    assert (told["nodes"][1]["overrides"], told["nodes"][1]["pending"]) == (0, [])
    assert "changes of the management CLI override broker.xml (2)" in told["lines"][0]
    assert "used after a restart or reload: ha-policy, name" in told["lines"][0]
    assert "override" not in told["lines"][1]
