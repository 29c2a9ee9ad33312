"""Random work on one queue against a model that only counts.

Goal: whatever producers, consumers and transactions do, in whatever order the log becomes durable,

* no message is lost or made up: each accepted message is in the queue, delivered and settled,
  expired, a dead letter, or in an open transaction; and the log would give a restart exactly the
  durable part of the unsettled messages;
* each producer's messages are first delivered in its order;
* nothing settled is delivered again;
* the delivery count is one more than the number of failed deliveries that count (artemis-core s. 6.4);
* every answer is given once and in the order of the requests of its session.

Method: Hypothesis draws a list of steps; each step is carried out and the invariants are checked;
at the end everything is drained.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.routing import Answers, FakeCallback, World, text
from understudy.routing.queues import level
from understudy.routing.queues.queue import Queue
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession
from understudy.store.messages.pages import Pages
from understudy.testing.sim.disk import SimVolume

PRODUCERS = 2
CONSUMERS = 3
FRAME_BYTES = 10
ATTEMPTS = 2

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, PRODUCERS), st.booleans()),
        st.tuples(st.just("send expiring"), st.integers(0, PRODUCERS - 1), st.integers(1, 3)),
        st.tuples(st.just("sync")),
        st.tuples(st.just("turn")),
        st.tuples(st.just("time")),
        st.tuples(st.just("commit sends"), st.booleans()),
        st.tuples(st.just("credits"), st.integers(0, CONSUMERS - 1), st.sampled_from([-1, 0, 5, 25])),
        st.tuples(st.just("acknowledge"), st.integers(0, CONSUMERS - 1), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("commit"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("roll back"), st.integers(0, CONSUMERS - 1), st.booleans()),
        st.tuples(st.just("close"), st.integers(0, CONSUMERS - 1), st.booleans()),
        st.tuples(st.just("slow"), st.integers(0, CONSUMERS - 1), st.booleans()),
        st.tuples(st.just("fail"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("round")),
    ),
    max_size=60,
)


class Reader:
    """A consumer's session and what its client remembers. Number 0 commits alone, the others in
    transactions, the last of them with a selector.
    """

    def __init__(self, model: Model, number: int) -> None:
        self.model = model
        self.number = number
        self.open()

    def open(self) -> None:
        self.callback = Recording(self.model, self)
        self.session: ServerSession = self.model.world.session(callback=self.callback, transacted=self.number > 0)
        self.session.consumers.create(0, "q", "odd = 1" if self.number == CONSUMERS - 1 else None)
        self.outstanding: list[int] = []
        self.acknowledged: list[int] = []


class Recording(FakeCallback):
    def __init__(self, model: Model, reader: Reader) -> None:
        super().__init__(frame_bytes=FRAME_BYTES)
        self.model = model
        self.reader = reader

    def sent(self, consumer_id: int, message, delivery_count: int) -> int:  # type: ignore[no-untyped-def]
        model, number = self.model, int(message.body)
        assert number in model.visible, f"{number} was never released"
        assert number not in model.settled, f"{number} was settled and came again"
        assert not 0 < message.expiration <= model.world.clock.now_ms, f"{number} was delivered after its time"
        assert number not in model.out, f"{number} is with two consumers"
        assert delivery_count == model.failures[number] + 1
        if self.reader.number == CONSUMERS - 1:
            assert number % 2 == 1, "outside the selector"
        model.out.add(number)
        model.delivered_first.setdefault(number, len(model.delivered_first))
        self.reader.outstanding.append(number)
        model.id_of[number] = message.message_id
        return super().sent(consumer_id, message, delivery_count)


class Model:
    def __init__(self, limit: int, scan_ms: int) -> None:
        self.world = World(
            {
                "#": {"dead_letter_address": "DLQ", "max_delivery_attempts": ATTEMPTS, "expiry_address": "EXP"},
                "q": {"max_size_bytes": limit},
            },
            automatic=False,
            message_expiry_scan_period_ms=scan_ms,
            pages=Pages(SimVolume().disk("a"), "/paging", 1),
        )
        self.queue: Queue = self.world.queue()
        self.dead, self.expired = self.world.queue("DLQ"), self.world.queue("EXP")
        self.world.store.sync()
        self.visible: set[int] = set()
        self.settled: set[int] = set()
        self.out: set[int] = set()
        self.failures: defaultdict[int, int] = defaultdict(int)
        self.delivered_first: dict[int, int] = {}
        self.id_of: dict[int, int] = {}
        self.owner: dict[int, int] = {}
        self.durable: set[int] = set()
        self.staged: list[int] = []
        self.committing = 0
        """Acknowledged in commits that the log does not have on the medium yet."""
        self.lost: set[int] = set()
        """Sent in a transaction that was rolled back."""
        self.answers = [Answers() for _ in range(PRODUCERS + 1)]
        self.asked: list[list[str]] = [[] for _ in range(PRODUCERS + 1)]
        self.producers = [self.world.session() for _ in range(PRODUCERS)]
        self.producers.append(self.world.session(transacted=True))
        self.readers = [Reader(self, number) for number in range(CONSUMERS)]

    # -- steps ----------------------------------------------------------------------------------

    def step(self, kind: str, *arguments: int) -> None:
        getattr(self, kind.replace(" ", "_"))(*arguments)
        self.check()

    def send(self, producer: int, durable: bool, expiration: int = 0) -> None:
        number = len(self.owner)
        self.owner[number] = producer
        if durable:
            self.durable.add(number)
        name = str(number)
        self.asked[producer].append(name)
        message = text(name, durable=durable, expiration=expiration, properties={"odd": number % 2})
        answer = self.answers[producer].of(name)

        def done(error: object) -> None:
            assert error is None
            answer(None)
            if producer < PRODUCERS:
                self.visible.add(number)

        if producer == PRODUCERS:
            self.staged.append(number)
        self.producers[producer].sends.send(message, done)

    def send_expiring(self, producer: int, after_ms: int) -> None:
        self.send(producer, True, self.world.clock.now_ms + after_ms)

    def sync(self) -> None:
        # Messages released now become visible before anything is delivered.
        self.world.sync()

    def turn(self) -> None:
        self.world.turn()

    def time(self) -> None:
        self.world.clock.advance(2)

    def commit_sends(self, commit: bool) -> None:
        staged, self.staged = self.staged, []
        name = f"end {len(self.asked[PRODUCERS])}"
        self.asked[PRODUCERS].append(name)
        answer = self.answers[PRODUCERS].of(name)
        if commit:

            def done(error: object) -> None:
                assert error is None
                answer(None)
                self.visible.update(staged)

            self.producers[PRODUCERS].commit(done)
        else:
            self.lost.update(staged)
            self.producers[PRODUCERS].rollback(done=answer)

    def credits(self, reader: int, credit_bytes: int) -> None:
        self.readers[reader].session.consumers.receive_credits(0, credit_bytes)

    def round(self) -> None:
        """Some messages, and credits for every consumer."""
        for producer in range(PRODUCERS):
            self.send(producer, True)
        self.world.sync()
        for reader in range(CONSUMERS):
            self.credits(reader, 15)
        self.world.turn()

    def fail(self, reader: int) -> None:
        """The client takes everything it has and fails with it."""
        each = self.readers[reader]
        self.acknowledge(reader, len(each.outstanding) - 1 if each.outstanding else 0, False)
        self.roll_back(reader, False)

    def slow(self, reader: int, slow: bool) -> None:
        self.readers[reader].callback.slow = slow
        if not slow:
            self.readers[reader].session.consumers.resume_deliveries()

    def acknowledge(self, reader: int, index: int, individual: bool) -> None:
        each = self.readers[reader]
        if index >= len(each.outstanding):
            return
        message_id = self.id_of[each.outstanding[index]]
        if individual:
            taken = [each.outstanding.pop(index)]
            each.session.settle(0, message_id, ACCEPTED)
        else:
            taken, each.outstanding = each.outstanding[: index + 1], each.outstanding[index + 1 :]
            each.session.acknowledge(0, message_id)
        if each.number == 0:
            self.settle(taken)
        else:
            each.acknowledged += taken

    def commit(self, reader: int) -> None:
        each = self.readers[reader]
        numbers, each.acknowledged = each.acknowledged, []
        self.committing += len(numbers)

        def done(error: object) -> None:
            assert error is None
            self.committing -= len(numbers)

        each.session.commit(done)
        self.settle(numbers)

    def settle(self, numbers: list[int]) -> None:
        self.settled.update(numbers)
        self.out.difference_update(numbers)

    def roll_back(self, reader: int, keep_first: bool) -> None:
        each = self.readers[reader]
        failed = [*each.acknowledged, *(each.outstanding[:1] if keep_first else [])]
        self.give_back(each, failed)
        each.session.rollback(keep_first)

    def close(self, reader: int, failed: bool) -> None:
        each = self.readers[reader]
        self.give_back(each, [*each.acknowledged, *(each.outstanding if failed else [])])
        each.session.close(failed=failed)
        each.open()

    def give_back(self, each: Reader, failed: list[int]) -> None:
        for number in failed:
            self.failures[number] += 1
        self.out.difference_update(each.acknowledged, each.outstanding)
        each.acknowledged, each.outstanding = [], []

    # -- invariants -----------------------------------------------------------------------------

    def check(self) -> None:
        queue = self.queue
        assert queue.delivering_count == len(self.out) + self.committing
        assert queue.message_count == len(queue.pending) + queue.delivering_count
        for asked, answers in zip(self.asked, self.answers, strict=True):
            assert answers.names == asked[: len(answers.names)]
        taken = queue.messages_added
        left = queue.messages_acknowledged + queue.messages_expired + queue.messages_killed
        assert taken == left + queue.message_count
        dead = self.dead.messages_added + self.dead.incoming
        assert dead == queue.messages_killed == sum(count >= ATTEMPTS for count in self.failures.values())
        assert self.expired.messages_added + self.expired.incoming == queue.messages_expired
        assert self.world.office.memory.held_bytes >= 0
        in_queue, elsewhere = self.after_a_crash(queue), self.after_a_crash(self.dead, self.expired)
        assert not in_queue & self.settled
        assert not in_queue & elsewhere, "moved and still there"
        assert (self.durable & self.visible) - self.settled <= in_queue | elsewhere

    def after_a_crash(self, *queues: Queue) -> set[int]:
        """Messages that a restart would find in these queues if every write had reached the medium."""
        store = self.world.store
        return {int(store.recorded[message_id].body) for queue in queues for message_id in store.live(queue)}

    def drain(self) -> None:
        """Everything ends: each message is delivered to a last reader, and the books must close."""
        self.commit_sends(True)
        for number in range(CONSUMERS):
            self.close(number, True)
        self.world.sync()
        last = Reader(self, 0)
        last.session.consumers.receive_credits(0, -1)
        self.world.sync()
        while last.outstanding:
            self.acknowledge_all(last)
            self.world.sync()
        self.world.sync()
        self.check()
        everything = set(self.owner) - self.lost
        assert [answers.names for answers in self.answers] == self.asked
        gone = self.queue.messages_expired + self.queue.messages_killed
        assert len(self.settled) + gone == len(everything)
        assert self.settled <= everything
        assert (self.queue.message_count, self.queue.delivering_count, self.queue.incoming) == (0, 0, 0)
        assert self.world.store.survivors(self.queue) == []
        assert len(self.world.store.survivors(self.dead)) <= self.dead.message_count
        for queue in (self.dead, self.expired):
            queue.purge()
        assert self.world.office.memory.held_bytes == 0
        assert [address.size_bytes for address in self.world.office.directory.addresses.values()] == [0, 0, 0]

    def acknowledge_all(self, each: Reader) -> None:
        taken, each.outstanding = each.outstanding, []
        each.session.acknowledge(0, self.id_of[taken[-1]])
        self.settle(taken)

    def order(self) -> None:
        """First deliveries follow each producer's order: durable and other alike, the selector's
        reader and transactions apart, which may overtake by design.
        """
        for parity in (0, 1):
            for producer in range(PRODUCERS):
                seen = [
                    number for number in self.delivered_first if self.owner[number] == producer and number % 2 == parity
                ]
                assert seen == sorted(seen)


@pytest.fixture(autouse=True)
def _cut_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken entries are cut off, and waiting ones leave memory, at once, as in long queues only."""
    monkeypatch.setattr(level, "_BLOCK", 2)
    monkeypatch.setattr(level, "_SHORT_BLOCKS", 3)
    monkeypatch.setattr(level, "_OPEN_BLOCKS", 1)
    monkeypatch.setattr(level, "_MEMORY_BLOCKS", 2)


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 6), STEPS, st.sampled_from([-1, 0, 150]), st.sampled_from([1, -1]))
def test_random_work_keeps_the_books(rounds: int, steps: list[tuple[str, ...]], limit: int, scan_ms: int) -> None:
    model = Model(limit, scan_ms)
    for step in [("round",)] * rounds + steps:
        model.step(*step)  # type: ignore[arg-type]
    model.drain()
    model.order()
