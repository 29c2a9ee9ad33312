"""Goal: a replicated pair with a witness loses nothing and serves again by itself, whichever host or cable fails.

Method: as in test_shared_store.py; the pair has no common storage, and the first host runs the witness.
"""

from __future__ import annotations

import re

import pytest
from understudy_lab.faults import Fault, cut_from, cut_power, endure, heal, kill, pause, power_on, resume, shut_down
from understudy_lab.hosts import Lab
from understudy_lab.pair import BACKUP, CLIENT, PRIMARY, UNITS, deploy, make_ready, play, record
from understudy_lab.traffic import record_idle_traffic

TABLE = "quorum"
WITNESS = "h1"


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the witness and the pair deployed."""
    return deploy(lab, "quorum", TABLE, "playbooks/witness.yml", "playbooks/clients.yml", "playbooks/site.yml")


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    make_ready(pair)
    played = play(pair, "quorum", "playbooks/witness.yml", "playbooks/site.yml")
    assert played.code == 0, played.output[-3000:]
    # two playbooks show the host of the witness twice
    recaps = set(re.findall(r"^(\w+) +: ok=\d+ +changed=(\d+)", played.output, re.MULTILINE))
    assert recaps == {("witness", "0"), ("a1", "0"), ("a2", "0")}, played.output[-600:]
    record(TABLE, {"play": "witness and site again", "seconds": round(played.seconds, 1)})


def test_traffic_of_the_idle_pair(pair: Lab) -> None:
    rates = record_idle_traffic(pair, TABLE, {WITNESS: "witness"})
    # The passive node asks the witness only when it misses the active one.
    assert all(rates[between][0] > 0 for between in ("active passive", "active witness")), rates


def test_the_pair_starts_without_a_warning(pair: Lab) -> None:
    make_ready(pair)
    for host, unit in UNITS.items():
        log = pair.output(host, f"journalctl --unit {unit} --output cat")
        assert "ha state" in log or "active" in log, log[-2000:]
        warnings = [line for line in log.splitlines() if re.search(r'"level": "(warning|error)"|WARN|ERROR', line)]
        assert warnings == [], "\n".join(warnings)


def processes(lab: Lab) -> list[str]:
    """The processes of both brokers."""
    return [lab.output(host, f"systemctl show -p MainPID --value {unit}") for host, unit in UNITS.items()]


def test_another_secret_is_refused_before_a_node_is_stopped(pair: Lab) -> None:
    make_ready(pair)
    before, wrong = processes(pair), ("--extra-vars", "broker_witness_secret=another-secret-of-a-test-0123456789")
    for playbook in ("preflight", "site", "rolling_update"):
        played = play(pair, "quorum", f"playbooks/{playbook}.yml", options=wrong)
        assert played.code != 0, playbook
        assert "10.77.0.11:61619: the client does not know the secret of the witness" in played.output, played.output
    assert processes(pair) == before


def test_a_missing_witness_is_refused_before_a_node_is_stopped(pair: Lab) -> None:
    make_ready(pair)
    before = processes(pair)
    pair.output(WITNESS, "systemctl stop understudy-witness")
    try:
        for playbook in ("preflight", "rolling_restart"):
            played = play(pair, "quorum", f"playbooks/{playbook}.yml")
            assert played.code != 0, playbook
            assert "10.77.0.11:61619: Connection refused" in played.output, played.output
        # a node that is ready takes changes meanwhile
        played = play(pair, "quorum", "playbooks/site.yml")
        assert played.code == 0, played.output[-3000:]
    finally:
        pair.output(WITNESS, "systemctl start understudy-witness")
    assert processes(pair) == before


def test_clocks_of_the_pair_that_differ_are_refused(pair: Lab) -> None:
    make_ready(pair)
    pair.output(BACKUP, "date -s '+70 seconds'")
    try:
        played = play(pair, "quorum", "playbooks/preflight.yml")
    finally:
        pair.output(BACKUP, "date -s '-70 seconds'")
    assert played.code != 0
    # Setting a clock takes a moment, in which it goes on.
    (behind_s,) = map(float, set(re.findall(r"the clock of a1 is ([0-9.]+) s behind that of a2", played.output)))
    assert 68.0 < behind_s < 72.0, played.output[-3000:]


FAULTS = [
    Fault("the broker is killed", kill),
    Fault("power cut of the active host", cut_power, 20.0, power_on, taken_over=True),
    Fault("shutdown of the active host", shut_down, 30.0, power_on, taken_over=True),
    Fault("the pair is cut, both see the witness", cut_from(PRIMARY, BACKUP), 15.0, heal),
    Fault(
        "the active host is cut from its backup and the witness",
        cut_from(WITNESS, PRIMARY, BACKUP),
        30.0,
        heal,
        taken_over=True,
    ),
    Fault(
        "the active host is cut from all hosts", cut_from(WITNESS, PRIMARY, BACKUP, CLIENT), 30.0, heal, taken_over=True
    ),
    Fault("the active host pauses beyond the lease", pause, 30.0, resume, taken_over=True),
    Fault("power cut of the witness", lambda lab, _: lab.cut_power(WITNESS), 15.0, lambda lab, _: lab.start([WITNESS])),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    endure(pair, fault, TABLE)
