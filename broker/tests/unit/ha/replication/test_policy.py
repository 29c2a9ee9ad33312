"""The policy of a replicated node after it gave its role back."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import create_autospec

import pytest

from understudy.ha.life.policy import Decisions, NodeState, Role, WithoutManager
from understudy.ha.replication.policy import ReplicationOptions, ReplicationPolicy
from understudy.ha.replication.ports import Authority, Replication
from understudy.ha.replication.standby_life import StandbyLife
from understudy.ports import Timers
from understudy.testing.manual_time import ManualTime


@pytest.mark.parametrize(("restart_backup", "decision"), [(True, "queue_again"), (False, "stop")])
def test_a_backup_that_gave_its_role_back_goes_on_or_ends(restart_backup: bool, decision: str) -> None:
    life, authority = create_autospec(Decisions, instance=True), create_autospec(Authority, instance=True)
    life.state = NodeState.YIELDED

    def hand_over(then: Callable[[], None]) -> None:
        then()

    authority.hand_over.side_effect = hand_over
    policy = ReplicationPolicy(
        ReplicationOptions(Role.BACKUP, restart_backup=restart_backup),
        life,
        create_autospec(StandbyLife, instance=True),
        authority,
        create_autospec(Replication, instance=True),
        create_autospec(Timers, instance=True),
        ManualTime(),
    )
    policy.give_back()
    assert {name for name, *_ in life.method_calls} == {decision}


def test_after_a_failback_that_failed_the_primary_waits_longer_each_time() -> None:
    life, time = create_autospec(Decisions, instance=True), ManualTime()
    authority = create_autospec(Authority, instance=True)
    authority.without_manager = None
    replication = create_autospec(Replication, instance=True)
    life.state = NodeState.ACTIVE
    policy = ReplicationPolicy(
        ReplicationOptions(Role.BACKUP),
        life,
        create_autospec(StandbyLife, instance=True),
        authority,
        replication,
        time,
        time,
    )
    policy.serve()
    (asks,) = replication.watch.call_args.args
    for pause_ms in (0, 30_000, 60_000, 120_000):
        asks()
        time.advance(max(0, pause_ms - 1))
        assert life.fail_back.call_count == (pause_ms == 0)
        time.advance(1)
        assert life.fail_back.call_count == 1
        life.fail_back.reset_mock()
        policy.give_back()
        time.advance(5_000)
        policy.serve()
    asks()
    replication.wants_failback.return_value = False
    time.advance(600_000)
    assert life.fail_back.call_count == 0, "that replica has gone"
    policy.give_back()
    time.advance(600_000)
    policy.serve()
    asks()
    assert life.fail_back.call_count == 1, "the other node has served in between"


def test_a_failback_waits_while_the_promise_of_the_replica_stands_in_for_the_lock() -> None:
    life, authority = create_autospec(Decisions, instance=True), create_autospec(Authority, instance=True)
    replication = create_autospec(Replication, instance=True)
    life.state = NodeState.ACTIVE
    policy = ReplicationPolicy(
        ReplicationOptions(Role.BACKUP),
        life,
        create_autospec(StandbyLife, instance=True),
        authority,
        replication,
        create_autospec(Timers, instance=True),
        ManualTime(),
    )
    policy.serve()
    (_, proved), (asks,) = authority.watch.call_args.args, replication.watch.call_args.args
    authority.without_manager = WithoutManager("witness w:1", 3_000, "no answer")
    asks()
    assert "witness w:1 does not answer" in str(policy.refuse_failback())
    life.fail_back.assert_not_called()
    authority.without_manager = None
    replication.has_replica.return_value = False
    proved()
    life.fail_back.assert_not_called()
    replication.has_replica.return_value = True
    proved()
    life.fail_back.assert_called_once_with()
    proved()
    life.fail_back.assert_called_once_with()
