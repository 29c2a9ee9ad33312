"""The consumer that gets the next message: turns, credits, priorities, selectors, groups, exclusive queues."""

from __future__ import annotations

from support.routing import FakeCallback, World, callback_of, text
from understudy.errors import DescriptorsExhausted, LockLost
from understudy.routing.queues.consumer import ALLOWANCE_BYTES
from understudy.routing.queues.delivery import PROVE_AGAIN_MS
from understudy.session.session import ServerSession


def reader(world: World, queue: str = "q", credit_bytes: int = -1, **options: object) -> ServerSession:
    session = world.session()
    session.consumers.create(0, queue, **options)  # type: ignore[arg-type]
    session.consumers.receive_credits(0, credit_bytes)
    return session


def bodies(session: ServerSession) -> list[str]:
    return [body.decode() for body in callback_of(session).bodies()]


def send(world: World, *names: str, **options: object) -> None:
    session = world.session()
    for name in names:
        session.sends.send(text(name, **options))
    world.turn()


def test_equal_consumers_take_turns() -> None:
    world = World()
    world.queue()
    readers = [reader(world) for _ in range(3)]
    send(world, *"abcdefg")
    assert [bodies(each) for each in readers] == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
    send(world, "h")
    assert bodies(readers[1])[-1] == "h", "the turn goes on where it stopped"


def test_who_has_no_credits_is_passed_over() -> None:
    world = World()
    world.queue()
    poor, rich = reader(world, credit_bytes=1), reader(world)
    send(world, *"abcd")
    assert bodies(poor) == ["a"], "one message may take the balance below zero"
    assert bodies(rich) == ["b", "c", "d"]


def test_credits_go_below_zero_and_are_added_up() -> None:
    world = World()
    world.queue()
    session = reader(world, credit_bytes=150)
    callback_of(session).frame_bytes = 100
    send(world, *"abcdef")
    assert bodies(session) == ["a", "b"]
    session.consumers.receive_credits(0, 50)
    world.turn()
    assert bodies(session) == ["a", "b"], "the balance is 0"
    session.consumers.receive_credits(0, 1)
    world.turn()
    assert bodies(session) == ["a", "b", "c"]
    session.consumers.receive_credits(0, 0)
    session.consumers.receive_credits(0, 1)
    world.turn()
    assert bodies(session) == ["a", "b", "c", "d"], "0 sets the balance, whatever it was"


def test_consumers_of_higher_priority_come_first() -> None:
    world = World()
    world.queue()
    low, high = reader(world, priority=-1), reader(world, credit_bytes=250, priority=5)
    callback_of(high).frame_bytes = 100
    send(world, *"abcde")
    assert bodies(high) == ["a", "b", "c"]
    assert bodies(low) == ["d", "e"]


def test_an_exclusive_queue_serves_one_until_it_leaves() -> None:
    world = World()
    world.queue(exclusive=True)
    first, second = reader(world), reader(world)
    send(world, *"ab")
    assert (bodies(first), bodies(second)) == (["a", "b"], [])
    first.close(failed=False)
    world.turn()
    assert bodies(second) == ["a", "b"]


def test_an_exclusive_queue_stays_with_whom_it_serves_when_one_of_higher_priority_comes() -> None:
    world = World()
    world.queue(exclusive=True)
    first = reader(world, credit_bytes=100)
    callback_of(first).frame_bytes = 100
    send(world, *"ab")
    second = reader(world, priority=5)
    world.turn()
    assert (bodies(first), bodies(second)) == (["a"], [])
    first.consumers.receive_credits(0, 100)
    world.turn()
    assert (bodies(first), bodies(second)) == (["a", "b"], [])
    first.close(failed=False)
    world.turn()
    assert bodies(second) == ["a", "b"]


def test_an_exclusive_queue_waits_for_the_first_one_without_credits() -> None:
    world = World()
    world.queue(exclusive=True)
    first, second = reader(world, credit_bytes=0), reader(world)
    send(world, *"ab")
    assert (bodies(first), bodies(second)) == ([], [])


def test_selectors_take_from_the_middle_and_the_rest_keeps_its_order() -> None:
    world = World()
    queue = world.queue()
    red = reader(world, selector_text="colour = 'red'")
    producer = world.session()
    for name, colour in (("a", "blue"), ("b", "red"), ("c", "blue"), ("d", "red")):
        producer.sends.send(text(name, properties={"colour": colour}))
    world.turn()
    assert bodies(red) == ["b", "d"]
    every = reader(world)
    world.turn()
    assert bodies(every) == ["a", "c"]
    red.close(failed=False)
    world.turn()
    assert bodies(every) == ["a", "c", "b", "d"]
    assert queue.selective is False


def test_a_selector_sees_messages_put_back_before_its_position() -> None:
    world = World()
    world.queue()
    every = reader(world, credit_bytes=250)
    callback_of(every).frame_bytes = 100
    producer = world.session()
    for name in "abcde":
        producer.sends.send(text(name, properties={"n": ord(name)}))
    world.turn()
    late = reader(world, selector_text="n >= 97")
    world.turn()
    assert (bodies(every), bodies(late)) == (["a", "b", "c"], ["d", "e"])
    every.close(failed=False)
    world.turn()
    assert bodies(late) == ["d", "e", "a", "b", "c"]


def test_each_non_matching_message_is_looked_at_once() -> None:
    world = World()
    world.queue()
    session = reader(world, selector_text="n = 1")
    producer = world.session()
    for _ in range(10):
        producer.sends.send(text("x", properties={"n": 0}))
    world.turn()
    consumer = session.consumers.by_id[0]
    assert consumer.cursors == {4: 10}
    producer.sends.send(text("y", properties={"n": 1}))
    world.turn()
    assert bodies(session) == ["y"]


def test_a_group_stays_with_its_consumer() -> None:
    world = World()
    queue = world.queue()
    first, second = reader(world), reader(world)
    producer = world.session()
    for number in range(8):
        group = "ab"[number % 2]
        producer.sends.send(text(f"{group}{number}", properties={"_AMQ_GROUP_ID": group}))
    world.turn()
    assert sorted(map(tuple, (bodies(first), bodies(second)))) == [
        ("a0", "a2", "a4", "a6"),
        ("b1", "b3", "b5", "b7"),
    ]
    assert queue.groups.met
    producer.sends.send(text("none"))
    producer.sends.send(text("a8", properties={"_AMQ_GROUP_ID": "a"}))
    world.turn()
    owner = first if "a0" in bodies(first) else second
    assert "a8" in bodies(owner)
    owner.close(failed=False)
    world.turn()
    other = second if owner is first else first
    assert [body for body in bodies(other) if body.startswith("a")] == ["a0", "a2", "a4", "a6", "a8"]


def test_the_last_message_of_a_group_frees_it() -> None:
    world = World()
    queue = world.queue()
    reader(world)
    producer = world.session()
    producer.sends.send(text("1", properties={"_AMQ_GROUP_ID": "g"}))
    producer.sends.send(text("2", properties={"_AMQ_GROUP_ID": "g", "_AMQ_GROUP_SEQUENCE": -1}))
    world.turn()
    assert queue.groups.owners == {}


def test_group_buckets_share_owners() -> None:
    world = World()
    queue = world.queue(group_buckets=1)
    first, second = reader(world), reader(world)
    producer = world.session()
    for group in "abc":
        producer.sends.send(text(group, properties={"_AMQ_GROUP_ID": group}))
    world.turn()
    assert sorted((len(bodies(first)), len(bodies(second)))) == [0, 3]
    assert len(queue.groups.owners) == 1


def test_a_slow_socket_pauses_and_goes_on() -> None:
    world = World()
    world.queue()
    session = reader(world)
    callback_of(session).slow = True
    send(world, *"ab")
    assert bodies(session) == []
    callback_of(session).slow = False
    session.consumers.resume_deliveries()
    world.turn()
    assert bodies(session) == ["a", "b"]


def test_a_socket_that_becomes_slow_is_noticed_within_the_allowance() -> None:
    world = World()
    world.queue()

    class Slowing(FakeCallback):
        def writable(self) -> bool:
            return len(self.delivered) < 2

    callback = Slowing(frame_bytes=ALLOWANCE_BYTES // 4)
    session = world.session(callback=callback)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    send(world, *"abcdefgh")
    assert len(callback.delivered) == 4


def test_nothing_before_start_or_after_stop() -> None:
    world = World()
    world.queue()
    session = world.session(start=False)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    send(world, "a")
    assert bodies(session) == []
    session.consumers.start()
    world.turn()
    assert bodies(session) == ["a"]
    session.consumers.stop()
    send(world, "b")
    assert bodies(session) == ["a"]


def test_higher_message_priorities_first() -> None:
    world = World()
    world.queue()
    producer = world.session()
    for name, priority in (("low", 0), ("normal", 4), ("high", 9), ("high2", 9)):
        producer.sends.send(text(name, priority=priority))
    session = reader(world)
    world.turn()
    assert bodies(session) == ["high", "high2", "normal", "low"]


def test_what_expired_on_the_way_is_not_delivered() -> None:
    for selector in (None, "TRUE"):
        world = World()
        queue = world.queue()
        producer = world.session()
        producer.sends.send(text("old", expiration=world.clock.now_ms + 10))
        producer.sends.send(text("new"))
        world.clock.advance(10)
        session = reader(world, selector_text=selector)
        world.turn()
        assert bodies(session) == ["new"]
        assert (queue.messages_expired, queue.message_count) == (1, 1)
        assert queue.delivering_count == 1


class AskedFence:
    """A fence with the answers of a test. Implements ``ports.Fence``."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.proved_until_ms = world.clock.now_ms
        self.proved_at_ms = None
        self.why: Exception | None = None
        self.asked = 0

    def why_not_confirm(self) -> Exception | None:
        self.asked += 1
        if self.why is None:
            self.proved_until_ms = self.world.clock.now_ms + 80
        return self.why


def fenced() -> tuple[World, AskedFence, ServerSession, list[BaseException]]:
    world = World()
    world.queue()
    fence, failures = AskedFence(world), list[BaseException]()
    world.office.permission.depend_on(fence, failures.append)
    return world, fence, reader(world), failures


def test_messages_are_delivered_on_a_valid_proof_and_an_old_one_is_renewed_first() -> None:
    world, fence, session, _ = fenced()
    send(world, "a")
    assert (bodies(session), fence.asked) == (["a"], 0)
    world.clock.advance(1)
    send(world, "b")
    send(world, "c")
    assert (bodies(session), fence.asked) == (["a", "b", "c"], 1)


def test_a_node_that_has_lost_its_lock_delivers_nothing() -> None:
    """The successor of such a node may have delivered the messages already, and got their acknowledgements."""
    world, fence, session, failures = fenced()
    world.clock.advance(1)
    fence.why = LockLost("taken")
    send(world, "a")
    session.consumers.force_delivery(0, 7)
    send(world, "b")
    assert (bodies(session), callback_of(session).forced) == ([], []), "also no word that the queue is empty"
    assert failures == [fence.why]


def test_messages_wait_while_the_lock_cannot_be_asked_about() -> None:
    world, fence, session, failures = fenced()
    world.clock.advance(1)
    fence.why = DescriptorsExhausted("none left")
    send(world, "a")
    assert bodies(session) == []
    fence.why = None
    world.clock.advance(PROVE_AGAIN_MS)
    world.turn()
    assert (bodies(session), failures) == (["a"], [])
