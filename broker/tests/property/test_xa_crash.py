"""An XA branch with a crash at every disk operation: all of it or nothing, and a prepared branch
is in doubt until it is decided.

Method: one branch acknowledges a message, sends to two addresses (one with two queues) and is
prepared, then committed, rolled back or decided by an operator, over the real store on a simulated
volume that dies at its n-th operation, for every n, with and without a loss of the unsynced writes.
Another node takes over and must find one of the states that the answers given before allow.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from support.routing import World, callback_of, text
from support.store import Crashed, StoreHarness
from understudy.errors import XaError
from understudy.ids import Xid
from understudy.message import DUPLICATE_ID
from understudy.routing.addresses.configuration import QueueConfiguration
from understudy.routing.restore import restore
from understudy.session.branch import Kind
from understudy.session.outcomes import ACCEPTED
from understudy.terms import RoutingType

XID = Xid(1, b"global", b"branch")
UNTOUCHED = {"q": [b"held", b"kept"], "t1": [], "t2": []}
COMMITTED = {"q": [b"kept", b"sent"], "t1": [b"news"], "t2": [b"news"]}
IN_DOUBT = {"q": [b"kept"], "t1": [], "t2": []}
DECISIONS = ["commit", "rollback", "heuristic commit", "heuristic rollback"]


@dataclass
class Life:
    """One activation of the node."""

    rig: StoreHarness
    owner: str
    world: World = field(init=False)

    def __post_init__(self) -> None:
        store = self.rig.activate(self.owner)
        self.world = World(store=store)
        restore(self.world.office, store.state)
        self.world.resources.restore(store.state)

    def settle(self) -> None:
        """Turns until the log is on the medium."""
        store = self.rig.store
        assert store is not None
        while True:
            self.world.turn()
            store.flush()
            if store.context.durable >= store.last_sequence:
                return
            self.rig.time.advance(10)

    def visible(self) -> dict[str, list[bytes]]:
        """Bodies that wait in each queue, in order."""
        found: dict[str, list[bytes]] = {}
        for queue in self.world.office.queues():
            found[queue.name] = [queue.read(reference).body for reference in queue.pending]
        return found

    def counts(self) -> None:
        """Nothing is counted that is not there: all queues are drained and end at zero."""
        self.settle()
        session = self.world.session()
        for number, queue in enumerate(self.world.office.queues()):
            session.consumers.create(number, queue.name)
            session.consumers.receive_credits(number, -1)
        self.settle()
        for consumer_id, message, _ in callback_of(session).delivered:
            session.settle(consumer_id, message.message_id, ACCEPTED)
        self.settle()
        for queue in self.world.office.queues():
            assert (queue.message_count, queue.delivering_count, queue.incoming) == (0, 0, 0)
            address = queue.address
            assert (address.message_count, address.size_bytes, address.memory_bytes) == (0, 0, 0)


def prepare_ground(life: Life) -> None:
    office = life.world.office
    office.directory.create_queue(QueueConfiguration(name="q", routing_type=RoutingType.ANYCAST))
    for name in ("t1", "t2"):
        office.directory.create_queue(QueueConfiguration(name=name, address="t", routing_type=RoutingType.MULTICAST))
    producer = life.world.session()
    producer.sends.send(text("held"))
    producer.sends.send(text("kept"))
    life.settle()


def work(life: Life, answered: list[str], decision: str) -> None:
    """The branch, noting each answer when a client would have it."""
    session = life.world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1)
    life.settle()
    (delivery,) = callback_of(session).delivered
    requests = session.branches
    requests.start(XID)
    session.acknowledge(0, delivery[1].message_id)
    life.settle()
    session.sends.send(text("sent", properties={DUPLICATE_ID: "once"}))
    life.settle()
    session.sends.send(text("news", "t"))
    requests.end(XID, failed=False)
    requests.prepare(XID)
    session.state.when_durable(answered.append, "prepared")
    life.settle()
    decide(life, decision, lambda: answered.append("decided"), answered)
    life.settle()


def decide(life: Life, decision: str, done: Callable[[], None], answered: list[str]) -> None:
    session = life.world.session(xa=True)
    answered.append("asked")
    if decision == "commit":
        session.branches.commit(XID, one_phase=False, done=lambda error: done())
        return
    if decision == "rollback":
        session.branches.roll_back(XID)
    else:
        life.world.resources.decide(XID, commit=decision == "heuristic commit")
    session.state.when_durable(done)


def check_after_crash(life: Life, answered: list[str], decision: str) -> None:
    found = life.visible()
    in_doubt = life.world.resources.in_doubt()
    final = COMMITTED if decision.endswith("commit") else UNTOUCHED
    if "decided" in answered:
        assert found == final
    elif "asked" in answered:
        assert found in (IN_DOUBT, final)
    elif "prepared" in answered:
        assert found == IN_DOUBT
    else:
        assert found in (UNTOUCHED, IN_DOUBT)
    heuristics = [xid for kind in list(Kind)[1:] for xid in life.world.resources.heuristic(kind)]
    if found == IN_DOUBT:
        assert in_doubt == (XID,)
        assert heuristics == []
    else:
        assert list(in_doubt) == heuristics
        assert not heuristics or found == final


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("power_loss", [False, True])
def test_all_or_nothing_wherever_it_dies(decision: str, power_loss: bool) -> None:
    in_doubt = 0
    for seed in range(5):
        steps = 1
        while True:
            finished, undecided = one_death(decision, power_loss, seed, steps)
            in_doubt += undecided
            if finished:
                break
            steps += 1
        assert steps > 6
    assert in_doubt > 0


def one_death(decision: str, power_loss: bool, seed: int, step: int) -> tuple[bool, bool]:
    """Whether the work was finished before it died, and whether it was in doubt afterwards."""
    rig = StoreHarness(random.Random(step * 1000 + seed))
    first = Life(rig, "a")
    prepare_ground(first)
    answered: list[str] = []
    finished = False
    rig.crash_at(step)
    try:
        work(first, answered, decision)
        finished = True
    except Crashed:
        pass
    rig.die(power_loss=power_loss)
    second = Life(rig, "b")
    check_after_crash(second, answered, decision)
    in_doubt = second.visible() == IN_DOUBT
    if in_doubt:
        second = decide_later(rig, second, random.Random(step).choice(DECISIONS), power_loss, wait=step % 2 == 1)
    committed = second.visible() == COMMITTED
    second.world.session().sends.send(text("sent", properties={DUPLICATE_ID: "once"}))
    second.settle()
    assert (len(second.visible()["q"]) == 2) == committed, "the duplicate id counts if and only if it committed"
    for xid in second.world.resources.in_doubt():
        second.world.session(xa=True).branches.forget(xid)
    with pytest.raises(XaError):
        second.world.session(xa=True).branches.roll_back(XID)
    second.counts()
    return finished, in_doubt


def decide_later(rig: StoreHarness, life: Life, decision: str, power_loss: bool, *, wait: bool) -> Life:
    """Decide the branch that the node came up with, perhaps only after another takeover."""
    if wait:
        life.settle()
        rig.die(power_loss=power_loss)
        life = Life(rig, "a")
        assert life.visible() == IN_DOUBT
    decide(life, decision, lambda: None, [])
    life.settle()
    decided = COMMITTED if decision.endswith("commit") else UNTOUCHED
    assert life.visible() == decided
    rig.die(power_loss=power_loss)
    life = Life(rig, "c")
    assert life.visible() == decided
    return life


def test_a_prepared_branch_keeps_its_part_of_the_log() -> None:
    """Records that the branch needs are not truncated, however much is written and acknowledged meanwhile."""
    rig = StoreHarness(random.Random(1))
    life = Life(rig, "a")
    prepare_ground(life)
    session = life.world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
    session.branches.start(XID)
    session.sends.send(text("sent"))
    session.branches.end(XID, failed=False)
    session.branches.prepare(XID)
    life.settle()
    busy = life.world.session()
    busy.consumers.create(0, "q")
    busy.consumers.receive_credits(0, -1)
    for _ in range(400):
        busy.sends.send(text("x" * 5_000))
        life.settle()
        for consumer_id, message, _ in callback_of(busy).delivered:
            busy.settle(consumer_id, message.message_id, ACCEPTED)
        callback_of(busy).delivered.clear()
    life.settle()
    rig.die(power_loss=True)
    life = Life(rig, "b")
    assert life.world.resources.in_doubt() == (XID,)
    life.world.session(xa=True).branches.commit(XID, one_phase=False, done=lambda error: None)
    life.settle()
    assert life.visible()["q"] == [b"sent"]
