"""Credits and returned messages, against a model that only counts.

Goal: whatever credits consumers ask for and however their sockets and connections behave,

* nothing is sent to a consumer whose balance is not above zero, and a balance falls below zero by less
  than one frame: the sent bytes never exceed the credits by more than one frame;
* delivered, unacknowledged messages go back exactly once and in order when its consumer or its
  connection ends, so that the next consumer sees the remaining messages in the order of sending, without gaps;
* delivery counts rise with each failed delivery that counts (artemis-core s. 6.4), and never fall below zero.

Method: Hypothesis draws steps for three consumers of one queue; a model keeps the balance of each.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.routing import FakeCallback, World, text
from understudy.session.outcomes import ACCEPTED
from understudy.session.session import ServerSession

CONSUMERS = 3
FRAME_BYTES = 10
INFINITE = 1 << 60

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("credits"), st.integers(0, CONSUMERS - 1), st.sampled_from([-1, 0, 1, 9, 10, 11, 35, -7])),
        st.tuples(st.just("acknowledge"), st.integers(0, CONSUMERS - 1), st.integers(0, 3)),
        st.tuples(st.just("individual"), st.integers(0, CONSUMERS - 1), st.integers(0, 3)),
        st.tuples(st.just("force"), st.integers(0, CONSUMERS - 1), st.integers(0, 9)),
        st.tuples(st.just("slow"), st.integers(0, CONSUMERS - 1), st.booleans()),
        st.tuples(st.just("stop"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("start"), st.integers(0, CONSUMERS - 1)),
        st.tuples(st.just("recover"), st.integers(0, CONSUMERS - 1), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, CONSUMERS - 1), st.booleans()),
    ),
    max_size=80,
)


class Reader:
    """A consumer and the model of its credits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.open()

    def open(self) -> None:
        self.callback = FakeCallback(frame_bytes=FRAME_BYTES)
        self.session: ServerSession = self.world.session(callback=self.callback)
        self.session.consumers.create(0, "q")
        self.balance = 0
        self.seen = 0
        self.markers = 0

    def credit(self, credit_bytes: int) -> None:
        if credit_bytes == -1:
            self.balance = INFINITE
        elif credit_bytes == 0:
            self.balance = 0
        elif credit_bytes > 0 and self.balance < INFINITE // 2:
            self.balance += credit_bytes
        self.session.consumers.receive_credits(0, credit_bytes)

    def check(self) -> None:
        """Charge the model one frame at a time: each must have been covered when it was sent."""
        while self.seen < len(self.callback.delivered):
            assert self.balance > 0, "sent without credits"
            self.balance -= FRAME_BYTES
            self.seen += 1
        assert self.balance > -FRAME_BYTES
        real = self.session.consumers.by_id[0].flow.credits
        if self.balance < INFINITE // 2:
            assert real == self.balance
        assert all(count >= 1 for count in self.callback.counts())

    @property
    def outstanding(self) -> list[int]:
        return list(self.session.consumers.by_id[0].delivering)


@given(STEPS)
def test_credits_and_returned_messages(steps: list[tuple[object, ...]]) -> None:
    world = World({"#": {"max_delivery_attempts": -1}})
    queue = world.queue()
    producer = world.session()
    readers = [Reader(world) for _ in range(CONSUMERS)]
    sent: list[int] = []
    settled: set[int] = set()
    failures: dict[int, int] = {}
    for step in steps:
        _take(world, producer, readers, sent, settled, failures, step)
        world.turn()
        for reader in readers:
            reader.check()
    for reader in readers:
        _lose(reader, failures, failed=False)
    last = Reader(world)
    last.credit(-1)
    world.turn()
    left = [message.message_id for _, message, _ in last.callback.delivered]
    assert left == sorted(set(sent) - settled), "each once, in order, none missing"
    for _, message, count in last.callback.delivered:
        assert count == failures.get(message.message_id, 0) + 1
    assert queue.delivering_count == len(left) == queue.message_count


def _take(
    world: World,
    producer: ServerSession,
    readers: list[Reader],
    sent: list[int],
    settled: set[int],
    failures: dict[int, int],
    step: tuple[object, ...],
) -> None:
    name, number = str(step[0]), int(str(step[1]))
    if name == "send":
        for _ in range(number):
            message = text("m")
            producer.sends.send(message)
            sent.append(message.message_id)
        return
    reader = readers[number]
    outstanding = reader.outstanding
    if name == "credits":
        reader.credit(int(str(step[2])))
    elif name == "acknowledge" and outstanding:
        position = int(str(step[2])) % len(outstanding)
        reader.session.acknowledge(0, outstanding[position])
        settled.update(outstanding[: position + 1])
    elif name == "individual" and outstanding:
        position = int(str(step[2])) % len(outstanding)
        reader.session.settle(0, outstanding[position], ACCEPTED)
        settled.add(outstanding[position])
    elif name == "force":
        reader.session.consumers.force_delivery(0, int(str(step[2])))
        if not reader.callback.slow:
            assert reader.callback.forced[-1][2] == len(reader.callback.delivered)
    elif name == "slow":
        reader.callback.slow = bool(step[2])
        if reader.callback.slow:
            reader.session.consumers.pause_deliveries()
        else:
            reader.session.consumers.resume_deliveries()
    elif name == "stop":
        reader.session.consumers.stop()
    elif name == "start":
        reader.session.consumers.start()
    elif name == "recover":
        keep_first = bool(step[2])
        if keep_first and outstanding:
            failures[outstanding[0]] = failures.get(outstanding[0], 0) + 1
        reader.session.rollback(keep_first)
    elif name == "end":
        _lose(reader, failures, failed=bool(step[2]))
        reader.open()


def _lose(reader: Reader, failures: dict[int, int], *, failed: bool) -> None:
    if failed:
        for message_id in reader.outstanding:
            failures[message_id] = failures.get(message_id, 0) + 1
    reader.session.close(failed=failed)
