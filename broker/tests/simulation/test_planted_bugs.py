"""Goal: a broker or client that breaks a promise is found. Each planted bug is found by its own checks
within its seeds, and the classes are unchanged afterwards.
"""

from __future__ import annotations

import pytest

from planted.bugs import BUGS
from understudy.ledger import Reason
from understudy.session.session import ServerSession
from understudy.testing.scenarios.scenarios import SCENARIOS, SHARED_STORE
from understudy.testing.simulate import quiet_logging


@pytest.fixture(autouse=True)
def quiet():
    with quiet_logging():
        yield


def every_bug():
    """Each bug in each of its scenarios; those of the scenarios after the first are long."""
    for name, bug in BUGS.items():
        for scenario in bug.seeds:
            marks = [] if scenario == next(iter(bug.seeds)) else [pytest.mark.long]
            yield pytest.param(name, scenario, id=f"{name}-{scenario}", marks=marks)


@pytest.mark.parametrize(("name", "scenario"), list(every_bug()))
def test_a_planted_bug_is_found(name, scenario):
    bug = BUGS[name]
    outcome = bug.find(scenario)
    assert outcome is not None, f"{bug.text} Not found by {sorted(bug.checks)} in seeds {bug.seeds[scenario]}"


def test_the_last_message_a_failed_consumer_held_is_missed_after_its_delivery():
    """Lost after the application had received it: only the acknowledgement that is missing shows it."""
    with BUGS["last-held-acknowledged"].planted() as run_class:
        texts = [str(violation) for violation in SHARED_STORE.run_seed(17, run_class=run_class).violations]
    assert any(Reason.NEVER_ACKNOWLEDGED.value in text for text in texts), texts


@pytest.mark.parametrize("seed", range(2))
def test_a_cut_off_decision_about_a_branch_that_has_moved_takes_effect(seed):
    """The directed run of ``moved-branch-forgotten``, without the bug."""
    bug = BUGS["moved-branch-forgotten"]
    with bug.planted() as run_class:
        pass
    outcome = SCENARIOS["members"].run_seed(seed, run_class=run_class)
    assert outcome.violations == ()
    assert outcome.branches >= 20


def test_a_run_ends_when_a_check_has_found_the_bug():
    bug = BUGS["epoch-not-raised"]
    with bug.planted() as run_class:
        whole = SHARED_STORE.run_seed(0, run_class=run_class)
        until = SHARED_STORE.run_seed(0, run_class=run_class, until=bug.checks)
        other = SHARED_STORE.run_seed(0, run_class=run_class, until={"crossed"})
    assert {violation.check for violation in until.violations} >= bug.checks
    assert until.virtual_s < whole.virtual_s
    assert other == whole


def test_a_planted_bug_ends_with_its_context():
    close = ServerSession.close
    with BUGS["last-held-acknowledged"].planted():
        assert ServerSession.close is not close
    assert ServerSession.close is close
