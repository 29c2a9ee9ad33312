"""The policy of a replicated node after it gave its role back."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import create_autospec

import pytest

from understudy.ha.policy import Decisions, NodeState, Role, Standby
from understudy.ha.replication.policy import ReplicationOptions, ReplicationPolicy
from understudy.ha.replication.ports import Authority, Replication
from understudy.ports import Timers


@pytest.mark.parametrize(("hosted", "decision"), [(False, "queue_again"), (True, "stop")])
def test_a_backup_that_gave_its_role_back_goes_on_and_one_that_is_hosted_ends(hosted: bool, decision: str) -> None:
    life, authority = create_autospec(Decisions, instance=True), create_autospec(Authority, instance=True)
    life.state = NodeState.YIELDED

    def hand_over(then: Callable[[], None]) -> None:
        then()

    authority.hand_over.side_effect = hand_over
    policy = ReplicationPolicy(
        ReplicationOptions(Role.BACKUP, hosted=hosted),
        life,
        create_autospec(Standby, instance=True),
        authority,
        create_autospec(Replication, instance=True),
        create_autospec(Timers, instance=True),
    )
    policy.give_back()
    assert {name for name, *_ in life.method_calls} == {decision}
