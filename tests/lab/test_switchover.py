"""Goal: a roll by switchover loses nothing, and no client of the pair waits longer than a second.

Method: a replicated pair with a witness goes between two releases under load, with and without failback. The longest
time without a confirmation is that of the ledger. Releases that do not link with each other are refused.
"""

from __future__ import annotations

import json

import pytest
from understudy_lab.hosts import Lab
from understudy_lab.pair import ROOT, Load, assert_kept, deploy, longest_window_s, make_ready, play, record
from understudy_lab.rolls import FORMER_VERSION, PRESENT_VERSION, Generation, generations

TABLE = "switchover"
INVENTORY = "quorum"
SIBLING_VERSION = f"{PRESENT_VERSION}.1"
"""Version of the same generation of links as the present release."""
STRANGER_VERSION = FORMER_VERSION if tuple(map(int, PRESENT_VERSION.split("."))) >= (0, 2) else "0.2.0"
"""Version of another generation of links."""
GAP_MAX_S = 1.0


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the witness and the pair deployed."""
    return deploy(lab, INVENTORY, TABLE, "playbooks/witness.yml", "playbooks/clients.yml", "playbooks/site.yml")


def options(generation: Generation, **variables: object) -> tuple[str, ...]:
    given = {**json.loads(generation.options[1]), "broker_roll_order": "switchover", **variables}
    return ("--extra-vars", json.dumps(given))


@pytest.mark.parametrize("failback", [False, True], ids=["roles-change", "failback"])
def test_an_update_hands_the_service_over(pair: Lab, failback: bool) -> None:
    sibling, present = generations(ROOT / ".scratch" / "lab-switchover", SIBLING_VERSION)
    wanted = present if failback else sibling
    make_ready(pair)
    load = Load(pair)
    load.await_progress(500)
    given = options(wanted, broker_failback=failback)
    planned = play(pair, INVENTORY, "playbooks/plan.yml", options=given)
    assert "at most 1 s" in planned.output, planned.output[-3000:]
    assert planned.output.count("changed=0") == planned.output.count("changed="), planned.output[-600:]
    rolled = play(pair, INVENTORY, "playbooks/rolling_update.yml", options=given)
    assert rolled.code == 0, rolled.output[-4000:]
    make_ready(pair)
    load.await_progress(500)
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    gap_s = longest_window_s(report)
    kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "unresolved")}
    record(
        TABLE,
        {"roll": wanted.version, "failback": failback, "seconds": round(rolled.seconds, 1), "gap_s": gap_s, **kept},
    )
    assert_kept(report)
    assert gap_s <= GAP_MAX_S


def test_releases_that_do_not_link_are_refused_and_nothing_is_stopped(pair: Lab) -> None:
    make_ready(pair)
    former, _present = generations(ROOT / ".scratch" / "lab-switchover", STRANGER_VERSION)
    refused = play(pair, INVENTORY, "playbooks/rolling_update.yml", options=options(former))
    assert refused.code != 0
    assert "do not link" in refused.output, refused.output[-3000:]
    make_ready(pair)
