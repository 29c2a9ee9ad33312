"""The file of a large message exists as long as the log has a reference to it, however references come and go.

Goal: at any moment every file that a recovery would need exists, and the node counts at least as many references to it
as the log has; deliveries have the right bytes. When everything is consumed no file is left. Method: random
programs over the real store on a simulated disk, with consolidation: sends (alone, in transactions, in XA branches that
are prepared and decided by another node), acknowledgements likewise, dead letters, expiry, a divert, last-value, ring
and non-destructive queues, operations of management, queues that are deleted, crashes between and within operations.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.test_store_model import RELAXED

from support.large import Node, body_of, header_of, named, seen_by
from support.routing import text
from support.store import Crashed, StoreHarness
from understudy.errors import QueueNotFound
from understudy.ids import Xid
from understudy.management.operations import queue_messages
from understudy.message import LAST_VALUE
from understudy.routing.queues.waiting_messages import act_on
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.terms import DivertDefinition, RoutingType

SETTINGS = {"#": {"dead_letter_address": "DLQ", "expiry_address": "DLQ", "max_delivery_attempts": 2}}
ADDRESSES = ("q", "t", "lvq", "ring", "keep", "gone")
BODY_BYTES = 300


class Program:
    """Random operations on one node after another, on one disk."""

    def __init__(self, seed: int) -> None:
        self.stream = random.Random(seed)
        self.rig = StoreHarness(self.stream, compact_segments_min=1, compact_percent=75)
        self.node = Node(self.rig, "a", SETTINGS)
        self.sent = 0
        self.branches = 0
        self.prepared: list[Xid] = []
        self.sessions: list[ServerSession] = []
        world = self.node.world
        for name in ("q", "copy", "DLQ", "fill"):
            world.queue(name)
        for name in ("t1", "t2"):
            world.queue(name, address="t", routing_type=RoutingType.MULTICAST)
        world.queue("lvq", last_value=True)
        world.queue("ring", ring_size=2)
        world.queue("keep", non_destructive=True)
        world.office.diverts.create(DivertDefinition("d", "q", "copy"))
        self.node.settle()

    # --- operations -----------------------------------------------------------------------------

    def operate(self) -> None:
        operations = {
            self.send: 8,
            self.send_in_transaction: 2,
            self.work_in_branch: 6,
            self.decide: 3,
            self.consume: 8,
            self.browse: 1,
            self.fill: 4,
            self.wait: 1,
            self.delete_queue: 1,
            self.manage: 2,
        }
        (operation,) = self.stream.choices(list(operations), list(operations.values()))
        operation()
        self.node.settle()

    def _send(self, session: ServerSession) -> None:
        address = self.stream.choice(ADDRESSES)
        if address == "gone" and self.node.world.office.directory.find_queue("gone") is None:
            self.node.world.queue("gone")
        self.sent += 1
        properties = {LAST_VALUE: self.stream.choice("ab")} if address == "lvq" else {}
        now_ms = self.node.world.clock.wall_ms()
        expiration = now_ms + self.stream.randrange(1, 5_000) if self.stream.random() < 0.1 else 0
        durable = self.stream.random() > 0.1
        header = header_of(f"m{self.sent}", address, properties, expiration=expiration, durable=durable)
        self.node.send(session, header, body_of(f"m{self.sent}", BODY_BYTES))
        self.node.settle()

    def send(self) -> None:
        self._send(self.node.world.session())

    def send_in_transaction(self) -> None:
        session = self.node.world.session(transacted=True)
        for _ in range(self.stream.randrange(1, 3)):
            self._send(session)
        if self.stream.random() < 0.5:
            session.commit(None)
        else:
            session.rollback()

    def work_in_branch(self) -> None:
        session = self.node.world.session(xa=True, auto_commit_sends=False, auto_commit_acks=False)
        self.branches += 1
        xid = Xid(1, f"{self.branches}".encode(), b"b")
        session.branches.start(xid)
        if self.stream.random() < 0.7:
            self._send(session)
        if self.stream.random() < 0.7:
            self._receive(session, self.stream.randrange(1, 4))
        session.branches.end(xid, failed=False)
        if self.stream.random() < 0.2:
            session.branches.commit(xid, one_phase=True, done=lambda error: None)
        else:
            session.branches.prepare(xid)
            self.prepared.append(xid)
        self.node.settle()
        if self.stream.random() < 0.5:
            session.close(failed=self.stream.random() < 0.5)
        else:
            self.sessions.append(session)

    def decide(self) -> None:
        if not self.prepared:
            return
        xid = self.prepared.pop(self.stream.randrange(len(self.prepared)))
        draw = self.stream.random()
        if draw < 0.3:
            self.node.world.resources.decide(xid, commit=draw < 0.15)
            return
        branches = self.node.world.session(xa=True).branches
        if draw < 0.65:
            branches.commit(xid, one_phase=False, done=lambda error: None)
        else:
            branches.roll_back(xid)

    def _receive(self, session: ServerSession, count: int) -> None:
        """Acknowledge some of what a queue delivers, one by one."""
        queues = sorted(queue.name for queue in self.node.world.office.queues() if queue.name != "fill")
        session.consumers.create(0, self.stream.choice(queues))
        session.consumers.receive_credits(0, self.stream.choice((1, 1_000, -1)))
        self.node.settle()
        seen = seen_by(session)
        whole = seen.large[: len(seen.large_bodies)]
        assert seen.large_bodies == [body_of(named(message), BODY_BYTES) for _, message, _ in whole]
        delivered = [message.message_id for _, message, _ in seen.large]
        for message_id in delivered[:count]:
            session.settle(0, message_id, ACCEPTED)
        self.node.settle()

    def consume(self) -> None:
        session = self.node.world.session(transacted=self.stream.random() < 0.3)
        self._receive(session, self.stream.choice((0, 1, 100)))
        if session.state.transaction is not None and self.stream.random() < 0.6:
            session.commit(None)
        self.node.settle()
        if self.stream.random() < 0.9:
            session.close(failed=self.stream.random() < 0.6)
        else:
            self.sessions.append(session)

    def browse(self) -> None:
        session = self.node.world.session()
        session.consumers.create(0, self.stream.choice(("q", "t1", "keep")), browse_only=True)
        session.consumers.receive_credits(0, 1)
        self.sessions.append(session)

    def fill(self) -> None:
        """Segments for the consolidator, most of whose records are acknowledged."""
        session = self.node.world.session()
        for _ in range(3):
            session.sends.send(text("x" * 15_000, "fill"))
        session.consumers.create(0, "fill")
        session.consumers.receive_credits(0, -1)
        self.node.settle()
        for consumer_id, message, _ in seen_by(session).delivered:
            session.settle(consumer_id, message.message_id, ACCEPTED)
        self.node.settle()
        session.close(failed=False)

    def wait(self) -> None:
        """Time passes: messages expire, files that are needed no more are removed."""
        self.node.world.clock.advance(3_000)
        self.node.outlive()

    def delete_queue(self) -> None:
        try:
            self.node.world.office.directory.delete_queue("gone", disconnect=True)
        except QueueNotFound:
            pass

    def manage(self) -> None:
        office = self.node.world.office
        queue, target = (
            office.directory.find_queue(self.stream.choice(("q", "t1", "DLQ", "ring"))),
            office.directory.find_queue("t2"),
        )
        assert queue is not None
        assert target is not None
        acts = (
            queue_messages.kill(office, queue),
            queue_messages.expire(office, queue),
            queue_messages.move(office, queue, target, lambda address, name: None),
            queue_messages.retry(office, queue, lambda address, name: None),
            queue_messages.change_priority(office, queue, 7),
        )
        for _ in act_on(queue, lambda reference: True, self.stream.choice(acts), 2):
            pass

    def take_over(self, *, power_loss: bool) -> None:
        """The node dies, another one takes its store over."""
        self.rig.die(power_loss=power_loss)
        self.sessions.clear()
        self.node = Node(self.rig, self.stream.choice("ab"), SETTINGS)
        self.prepared = [branch.xid for branch in self.node.world.resources.prepared()]
        self.node.settle()

    # --- checks ---------------------------------------------------------------------------------

    def needed(self) -> dict[int, int]:
        """File id to references in the log."""
        judge = self.rig.follower("judge")
        judge.finish()
        return judge.state.large_files()

    def check(self) -> None:
        """Nothing that the log needs is gone, or about to go."""
        present = self.node.files()
        for file_id, count in self.needed().items():
            assert f"{file_id}.large" in present, "a file that the log needs is gone"
            assert self.node.store.large.references(file_id) >= count, "references to a file are counted too low"
        assert not self.rig.failures

    def check_end(self) -> None:
        """Everything is decided and consumed: no file is left."""
        for xid in self.prepared:
            self.node.world.session(xa=True).branches.commit(xid, one_phase=False, done=lambda error: None)
        for session in self.sessions:
            session.close(failed=False)
        self.node.settle()
        self.node.outlive()
        self.check()
        office = self.node.world.office
        for queue in list(office.queues()):
            for _ in queue_messages.remove(office, queue, lambda reference: True):
                pass
        self.node.outlive()
        assert self.needed() == {}
        assert self.node.files() == []


@settings(max_examples=40, **RELAXED)
@given(st.integers(0, 2**32 - 1))
def test_no_file_goes_before_its_last_reference(seed: int) -> None:
    program = Program(seed)
    for _ in range(2):
        for _ in range(program.stream.randrange(25)):
            program.operate()
            program.check()
        if program.stream.random() < 0.5:
            program.rig.crash_at(program.stream.randrange(1, 60))
            try:
                for _ in range(10):
                    program.operate()
            except Crashed:
                pass
        program.take_over(power_loss=program.stream.random() < 0.5)
        program.check()
    program.check_end()
