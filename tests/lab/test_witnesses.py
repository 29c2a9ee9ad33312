"""Goal: a pair that asks three witnesses loses nothing, also while a roll restarts them, and while one of them is away.

Method: the inventory of three witnesses, with the witnesses on three hosts beside those of the pair. A roll under load
restarts the witnesses one after the other, then the pair.
"""

from __future__ import annotations

import pytest
from understudy_lab import ensembles
from understudy_lab.ensembles import Ensemble
from understudy_lab.faults import Fault, cut_power, endure, power_on
from understudy_lab.hosts import Lab

HOSTS = ensembles.HOSTS
WITNESSES = Ensemble("witnesses", "quorum_witnesses", "molecule/booted_quorum/addresses.yml", "understudy-witness")


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the witnesses and the pair deployed."""
    return WITNESSES.deployed(lab)


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    WITNESSES.deploy_again(pair)


def test_a_roll_restarts_one_witness_after_the_other_and_loses_nothing(pair: Lab) -> None:
    WITNESSES.restart_under_load(pair)


FAULTS = [
    Fault("power cut of the active host", cut_power, 30.0, power_on, taken_over=True),
    Fault("power cut of a witness", lambda lab, _: lab.cut_power("h5"), 15.0, lambda lab, _: lab.start(["h5"])),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    endure(pair, fault, WITNESSES.table)
