"""Goal: every wanted state is reached from every present one, within its time, or fails and says why.

Method: a service and a broker in miniature on a clock that only moves when the code waits.
"""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.lifecycle import Instance
from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceStatus
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


class World:
    """One process with its broker; each pause moves time and what was begun."""

    def __init__(self, *, running: bool, state: str = "active") -> None:
        self.running = self.kept = running
        self.now_s = 0.0
        self.acts: list[str] = []
        self.log: list[str] = []
        self.becomes = state
        self.boot_s = 2.0
        self.stop_s = 1.0
        self.ready_at_s = 0.0
        self.ends_at_s: float | None = None
        self.refuses_to_start = False
        self.crashes_every_s = 0.0
        self.clock = Clock(now_s=lambda: self.now_s, pause=self.pause, wall_ms=lambda: round(self.now_s * 1000))

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds
        if self.ends_at_s is not None and self.now_s >= self.ends_at_s:
            self.running = self.kept = False

    def status(self) -> ServiceStatus:
        restarts = round(self.now_s // self.crashes_every_s) if self.crashes_every_s else 0
        ending = "exited with 2" if restarts or not self.running else ""
        return ServiceStatus("process", self.running, self.kept, restarts=restarts, last_exit=ending)

    def start(self) -> None:
        self.acts.append("start")
        self.ends_at_s = None
        if not self.refuses_to_start:
            self.running = self.kept = True
            self.ready_at_s = self.now_s + self.boot_s

    def stop(self) -> None:
        self.acts.append("stop")
        self.ends_at_s = self.now_s + self.stop_s

    def kill(self) -> None:
        self.acts.append("kill")
        self.ends_at_s = self.now_s

    def last_lines(self, count: int) -> list[str]:
        return self.log[-count:]

    def ask(self) -> NodeState:
        if self.now_s < self.ready_at_s:
            return NodeState(False, False, "unreachable", reason="refused")
        following = {"caught_up": True} if self.becomes == "passive" else None
        return NodeState(True, True, self.becomes, node={"following": following})

    def instance(self) -> Instance:
        return Instance(self, self.ask, self.clock)


@pytest.mark.parametrize(
    ("state", "running", "gate", "acts"),
    [
        ("started", False, "active", ["start"]),
        ("started", True, "active", []),
        ("stopped", True, "stopped", ["stop"]),
        ("stopped", False, "stopped", []),
        ("killed", True, "stopped", ["kill"]),
        ("killed", False, "stopped", []),
        ("restarted", True, "ready", ["stop", "start"]),
        ("restarted", False, "ready", ["start"]),
    ],
)
def test_every_state_from_every_state(state: str, running: bool, gate: str, acts: list[str]) -> None:
    world = World(running=running)
    outcome = world.instance().reach(state, gate, 30, dry_run=False)
    assert not outcome.failed, outcome.message
    assert world.acts == acts
    assert outcome.changed is bool(acts)
    assert (outcome.acted_at_ms is not None) is bool(acts)
    again = world.instance().reach("started" if state == "restarted" else state, gate, 30, dry_run=False)
    assert not again.changed


@pytest.mark.parametrize("state", ["started", "stopped", "killed", "restarted"])
@pytest.mark.parametrize("running", [True, False])
def test_check_mode_tells_and_does_nothing(state: str, running: bool) -> None:
    dry = World(running=running)
    told = dry.instance().reach(state, "ready", 30, dry_run=True)
    wet = World(running=running)
    done = wet.instance().reach(state, "ready" if state.endswith("started") else "stopped", 30, dry_run=False)
    assert told.changed is done.changed
    assert dry.acts == []
    assert dry.now_s == 0


def test_the_gate_waits_for_the_state_that_was_asked_for() -> None:
    world = World(running=False, state="passive")
    assert not world.instance().reach("started", "passive", 30, dry_run=False).failed
    late = world.instance().reach("started", "active", 5, dry_run=False)
    assert late.failed
    assert late.message == "not active within 5 s: the broker says passive"


def test_a_slow_broker_runs_out_of_time() -> None:
    world = World(running=False)
    world.boot_s = 100
    outcome = world.instance().reach("started", "active", 10, dry_run=False)
    assert outcome.failed
    assert "not active within 10 s: the broker says unreachable (refused)" in outcome.message
    assert world.now_s < 11


def test_a_broker_that_dies_is_not_waited_for() -> None:
    world = World(running=False)
    world.refuses_to_start = True
    outcome = world.instance().reach("started", "active", 600, dry_run=False)
    assert outcome.failed
    assert "nothing will start it again: exited with 2" in outcome.message
    assert world.now_s < 10


def test_a_failed_start_ends_with_the_last_lines_of_the_log() -> None:
    world = World(running=False)
    world.refuses_to_start = True
    world.log = [f"line {number}" for number in range(100)]
    message = world.instance().reach("started", "active", 600, dry_run=False).message
    assert "exited with 2\nThe last lines of log/understudy.log:\nline 80\n" in message
    assert message.endswith("\nline 99")


def test_a_start_that_takes_too_long_shows_the_log_as_well() -> None:
    world = World(running=False)
    world.boot_s, world.log = 100, ["waiting for the lock"]
    message = world.instance().reach("started", "active", 10, dry_run=False).message
    assert message.endswith("The last lines of log/understudy.log:\nwaiting for the lock")


def test_a_stop_that_takes_too_long_fails_and_never_kills() -> None:
    world = World(running=True)
    world.stop_s = 100
    outcome = world.instance().reach("restarted", "ready", 10, dry_run=False)
    assert outcome.failed
    assert outcome.message == "did not stop within 10 s"
    assert world.acts == ["stop"]


def test_a_keeper_between_two_tries_counts_as_started() -> None:
    world = World(running=False)
    world.kept = True
    outcome = world.instance().reach("started", "active", 1, dry_run=False)
    assert world.acts == []
    assert outcome.failed


def test_a_broker_that_crashes_again_and_again_is_not_waited_for_until_the_end() -> None:
    world = World(running=False)
    world.boot_s, world.crashes_every_s = 1000.0, 5.0
    outcome = Instance(world, world.ask, world.clock).reach("started", "active", 90.0, dry_run=False)
    assert outcome.failed
    assert "has ended 3 times since its start: exited with 2" in outcome.message
    assert world.now_s < 20.0


def test_crashes_from_before_are_no_reason_not_to_wait() -> None:
    world = World(running=True)
    world.ready_at_s, world.now_s, world.crashes_every_s = 130.0, 100.0, 10.0
    outcome = Instance(world, world.ask, world.clock).reach("started", "active", 90.0, dry_run=False)
    assert not outcome.failed


@pytest.mark.parametrize(
    "reason",
    [
        "witness 10.0.0.3:61619: 10.0.0.3:61619: the witness refuses: the client does not know the secret",
        "witness 10.0.0.3:61619: 10.0.0.3:61619: the witness does not know the secret",
        "witness 10.0.0.3:61619: the id 00, and 01 is expected: it is another witness, or has lost its state",
    ],
)
def test_a_refusal_of_the_lock_manager_ends_the_waiting_at_once(reason: str) -> None:
    world = World(running=False)
    world.boot_s = 0.0
    refused = NodeState(True, False, "passive", reason=reason)
    outcome = Instance(world, lambda: refused, world.clock).reach("started", "active", 90, dry_run=False)
    assert outcome.failed
    assert world.now_s < 1.0
    assert reason in outcome.message
    assert "broker_witness_secret" in outcome.message
