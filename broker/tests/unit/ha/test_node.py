"""The life of a node under any policy: errors of hooks, and every pair of state and event.

The life under the policy of a shared store is in ``broker/tests/transcripts/ha``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from understudy.errors import BrokerError, DiskFailed, LockLost, MachineError, StoreError
from understudy.ha.life.activation import Step
from understudy.ha.life.node import NodeEvent, NodeLife
from understudy.ha.life.policy import Compose, Decisions, Done, Ending, NodeState, Policy, Role, Standby
from understudy.machine import ILLEGAL
from understudy.ports import Fence

OPENING, SERVING = Step("open", lambda: None), Step("serve", lambda: None)


class Recorder:
    """A policy and its node in one; decides nothing unless ``decides`` names a hook."""

    name = "scripted"
    role = Role.BACKUP

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.raises: dict[str, BrokerError] = {}
        self.release_error: BrokerError | None = None
        self.refusal: str | None = None
        self.done: Done | None = None
        self.life = NodeLife(self._policy, self, self, lambda: self.seen.append(self.life.state.name))

    def _policy(self, life: Decisions) -> Policy:
        policy: Policy = self
        standby: Standby = self
        assert standby is self
        return policy

    def _hook(self, name: str) -> None:
        self.seen.append(name)
        if name in self.raises:
            raise self.raises[name]

    # Policy
    @property
    def fence(self) -> Fence:
        raise NotImplementedError

    def queue(self) -> None:
        self._hook("queue")

    def stand_by(self) -> None:
        self._hook("stand by")

    def activation(self, opening: Sequence[Step], serving: Sequence[Step]) -> Sequence[Step]:
        return (*opening, Step("replicate", lambda: None), *serving)

    def serve(self) -> None:
        self._hook("serve")

    def refuse_failback(self) -> str | None:
        return self.refusal

    def leave(self, *, fail_over: bool) -> None:
        self._hook("leave, fail over" if fail_over else "leave")

    def give_back(self) -> None:
        self._hook("give back")

    def release(self, ending: Ending) -> BrokerError | None:
        served, clean = "active" if ending.served else "passive", "cleanly" if ending.error is None else "failed"
        self._hook(f"release: {served}, {clean}{', fail over' if ending.fail_over else ''}")
        return self.release_error

    # Standby
    def follow(self) -> None: ...

    def announce(self) -> None: ...

    def withdraw(self) -> None:
        self._hook("withdraw")

    def stop_following(self) -> None:
        self._hook("stop following")

    def peer_is_announced(self) -> bool:
        return True

    # NodePort
    def activate(self, compose: Compose, done: Done) -> None:
        self._hook("activate: " + ", ".join(step.name for step in compose([OPENING], [SERVING])))
        self.done = done

    def deactivate(self, done: Done) -> None:
        self._hook("deactivate")
        self.done = done

    def stopped(self, error: BrokerError | None) -> None:
        self._hook(f"stopped: {error}")

    def answer(self, error: BrokerError | None = None) -> None:
        """Report that the request to the node is done."""
        done, self.done = self.done, None
        assert done is not None
        done(error)

    def transcript(self) -> list[str]:
        """Calls and states since the last time."""
        seen, self.seen = self.seen, []
        return seen


def at(state: NodeState) -> Recorder:
    """A node on its way, in the state."""
    node = Recorder()
    way: list[tuple[NodeState, Callable[[], None]]] = [
        (NodeState.QUEUED, node.life.start),
        (NodeState.PASSIVE, node.life.take_place),
        (NodeState.ACTIVATING, node.life.activate),
        (NodeState.ACTIVE, node.answer),
        (NodeState.FAILING_BACK, node.life.fail_back),
        (NodeState.YIELDED, node.answer),
    ]
    for reached, go in way:
        go()
        if reached is state:
            break
    assert node.life.state is state
    node.transcript()
    return node


def test_a_place_that_was_lost_is_looked_for_anew() -> None:
    """A replica whose primary refused it, or a backup whose vote was lost, starts again as a backup."""
    node = at(NodeState.PASSIVE)
    node.life.queue_again()
    assert node.transcript() == ["QUEUED", "withdraw", "stop following", "queue"]


def test_an_error_of_a_hook_of_the_policy_ends_the_node() -> None:
    node = at(NodeState.ACTIVATING)
    node.raises["serve"] = DiskFailed("the state cannot be written")
    node.answer()
    assert node.transcript() == ["ACTIVE", "serve", "STOPPING", "leave", "deactivate"]
    node = at(NodeState.FAILING_BACK)
    node.raises["give back"] = DiskFailed("the lock cannot be released")
    node.answer()
    assert node.transcript()[-1] == "stopped: the lock cannot be released"


def test_the_first_error_is_the_one_that_is_reported() -> None:
    node = at(NodeState.ACTIVE)
    node.life.fail(LockLost("another node activated"))
    node.life.fail(StoreError("later"))
    node.release_error = DiskFailed("later still")
    node.answer(DiskFailed("while closing"))
    assert node.transcript()[-1] == "stopped: another node activated"
    assert isinstance(node.life.error, LockLost)


def test_an_activation_that_ends_while_the_node_stops_changes_nothing() -> None:
    node = at(NodeState.ACTIVATING)
    activated = node.done
    node.life.fail(StoreError("internal error"))
    assert activated is not None
    activated(None)
    assert node.life.state is NodeState.STOPPING


def test_only_an_active_node_that_its_policy_allows_fails_back_on_request() -> None:
    assert at(NodeState.PASSIVE).life.refuse_failback() == "the node is passive, not active"
    node = at(NodeState.ACTIVE)
    assert node.life.refuse_failback() is None
    node.refusal = "alone"
    assert node.life.refuse_failback() == "alone"


@pytest.mark.parametrize("state", [NodeState.QUEUED, NodeState.PASSIVE, NodeState.YIELDED])
def test_a_passive_node_without_network_gives_up_its_locks_and_queues_again_later(state: NodeState) -> None:
    node = at(state)
    node.life.network_checked(True)
    assert node.transcript() == []
    node.life.network_checked(False)
    assert node.transcript() == ["ISOLATED", "withdraw", "stop following", "release: passive, cleanly"]
    node.life.network_checked(False)
    assert node.transcript() == []
    node.life.network_checked(True)
    assert node.transcript() == ["QUEUED", "queue"]


def test_an_active_node_without_network_stops_cleanly_and_starts_again() -> None:
    node = at(NodeState.ACTIVE)
    node.life.network_checked(False)
    assert node.transcript() == ["ISOLATING", "leave", "deactivate"]
    node.life.network_checked(True)
    node.answer()
    assert node.transcript() == ["ISOLATED", "release: active, cleanly"]
    node.life.network_checked(True)
    assert node.transcript() == ["QUEUED", "queue"]


def test_an_isolated_node_can_be_stopped() -> None:
    node = at(NodeState.ACTIVE)
    node.life.network_checked(False)
    node.life.stop()
    node.answer()
    assert node.transcript()[-1] == "stopped: None"
    node = at(NodeState.PASSIVE)
    node.life.network_checked(False)
    node.life.stop()
    assert node.transcript()[-1] == "stopped: None"


def test_an_error_while_isolating_ends_the_node() -> None:
    node = at(NodeState.ACTIVE)
    node.life.network_checked(False)
    node.answer(DiskFailed("while closing"))
    node.answer()
    assert node.transcript()[-1] == "stopped: while closing"


def test_an_activating_node_is_isolated_by_the_next_check() -> None:
    node = at(NodeState.ACTIVATING)
    node.life.network_checked(False)
    assert node.life.state is NodeState.ACTIVATING


@pytest.mark.parametrize("state", NodeState)
@pytest.mark.parametrize("event", NodeEvent)
def test_every_pair_is_a_transition_or_a_written_refusal(state: NodeState, event: NodeEvent) -> None:
    node = Recorder()
    node.life._state = state
    if NodeLife.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            node.life.fire(event)
        assert node.life.state is state
    else:
        node.life.fire(event, *([DiskFailed("x")] if event is NodeEvent.FAILED else []))
        assert node.life.state in NodeState


def test_every_state_has_a_name_for_management() -> None:
    assert {state.shown for state in NodeState} == {"stopped", "passive", "starting", "active", "stopping", "isolated"}
