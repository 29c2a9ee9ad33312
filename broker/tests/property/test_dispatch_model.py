"""A dispatch that fails at any step leaves counts and queue as they were, or has the message set aside.

Method: every function that a dispatch calls may raise once, at a call that Hypothesis chooses: reading a body back,
writing to a client, the acknowledgement of a pre-acknowledging consumer, a departure. Whatever is raised, each message
is in exactly one place afterwards, the counts are the sums of those places, and with the cause gone everything is
delivered in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from support.routing import FakeCallback, World, callback_of, text
from support.sends import sends_of
from understudy.errors import DiskFailed, JournalCorrupt
from understudy.routing.lifecycle.redelivery import Redelivery
from understudy.routing.paging import Paging
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.delivery import dispatch
from understudy.routing.queues.queue import Queue
from understudy.session.consumer import ServerConsumer

ERRORS: dict[str, Callable[[], BaseException]] = {
    "store": lambda: DiskFailed("cannot write: Input/output error"),
    "damage": lambda: JournalCorrupt("message is damaged", file="/x", offset=1),
    "bug": lambda: RuntimeError("a bug"),
    "interrupt": KeyboardInterrupt,
}
#: Where a dispatch may fail: class and function.
STEPS: tuple[tuple[type, str], ...] = (
    (Paging, "read"),
    (FakeCallback, "deliver"),
    (Queue, "acknowledge"),
    (Redelivery, "expire"),
    (Queue, "may_go_on"),
    (ServerConsumer, "deliver"),
    (ServerConsumer, "writable"),
)


def places(queue: Queue, office: PostOffice, consumers: list[ServerConsumer]) -> list[int]:
    """Message ids in every place that holds some."""
    return sorted(
        [reference.message_id for reference in queue.pending]
        + [reference.message_id for reference in office.scheduled.of(queue)]
        + [message_id for consumer in consumers for message_id in consumer.delivering]
    )


@example(
    step=(Paging, "read"), kind="damage", at=1, selector=None, paged=True, runs=False, pre_acknowledge=False,
    lends=False, groups=False, together=False, count=1,
)  # fmt: skip
@given(
    step=st.sampled_from(STEPS),
    kind=st.sampled_from(sorted(ERRORS)),
    at=st.integers(1, 6),
    selector=st.sampled_from([None, "odd = 1 OR odd = 0"]),
    paged=st.booleans(),
    runs=st.booleans(),
    pre_acknowledge=st.booleans(),
    lends=st.booleans(),
    groups=st.booleans(),
    together=st.booleans(),
    count=st.integers(1, 6),
)
def test_any_error_at_any_step_of_a_dispatch(
    step: tuple[type, str],
    kind: str,
    at: int,
    selector: str | None,
    paged: bool,
    runs: bool,
    pre_acknowledge: bool,
    lends: bool,
    groups: bool,
    together: bool,
    count: int,
) -> None:
    world = World({"#": {"max_size_bytes": 0 if paged else -1}})
    office = world.office
    queue = world.queue("q", non_destructive=lends)
    producer = world.session()
    messages = []
    for number in range(count):
        properties: dict[str, Any] = {"odd": number % 2}
        if groups and number % 3 == 2:
            properties["_AMQ_GROUP_ID"] = "g"
        messages.append(text(str(number), properties=properties))
    if together:
        # without it the first of them would ask for permission, and the others follow it
        producer.sends.permit("q")
        producer.sends.send_batch(sends_of(messages), 0, None)
    else:
        for message in messages:
            producer.sends.send(message)
    sessions = [world.session(callback=FakeCallback(runs=runs), pre_acknowledge=pre_acknowledge) for _ in range(2)]
    for session in sessions:
        session.consumers.create(0, "q", selector)
        session.consumers.receive_credits(0, -1)
    consumers = [session.consumers.by_id[0] for session in sessions]
    # not by a look at single messages, which would make objects of those that came together
    before = set(world.store.survivors(queue))
    owner, name = step
    original = getattr(owner, name)
    calls = 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise ERRORS[kind]()
        return original(*arguments, **options)

    with patch.object(owner, name, failing):
        try:
            queue.read_back_left = queue.looks_left = 1_000
            dispatch(queue, office.now_ms)
        except (DiskFailed, JournalCorrupt, RuntimeError, KeyboardInterrupt):
            pass
    check_counts(world, queue, consumers, before, lends=lends, pre_acknowledge=pre_acknowledge)
    # entries of the quarantine reach the disk now
    while world.store.writer.drain():
        pass
    assert all(world.store.quarantine.is_stored(entry.entry_id) for entry in world.store.quarantine.entries())
    check_counts(world, queue, consumers, before, lends=lends, pre_acknowledge=pre_acknowledge)
    # the cause is gone: waiting messages are delivered, in order
    order = [int(callback_of_message) for callback_of_message in [*map(bytes, waiting_bodies(world, queue))]]
    assert order == sorted(order)
    for session in sessions:
        session.close(failed=True)
    heir = world.session()
    heir.consumers.create(0, "q")
    heir.consumers.receive_credits(0, -1)
    world.turn()
    delivered = [int(body) for body in callback_of(heir).bodies()]
    assert delivered == sorted(delivered)
    assert len(delivered) == queue.message_count - queue.scheduled_count


def check_counts(
    world: World,
    queue: Queue,
    consumers: list[ServerConsumer],
    before: set[int],
    *,
    lends: bool,
    pre_acknowledge: bool,
) -> None:
    """Each message of ``before`` is in exactly one place, and the counts are the sums of those places.

    A message that cannot be read leaves its queue when its quarantine entry is on the disk. Until then the entry is
    listed, and the message is among the scheduled ones.
    """
    office, quarantine = world.office, world.store.quarantine
    aside = len(office.scheduled.of(queue))
    assert queue.scheduled_count == aside
    assert queue.delivering_count == sum(len(consumer.delivering) for consumer in consumers)
    gone = {
        entry.message_id for entry in quarantine.entries() if not entry.held and quarantine.is_stored(entry.entry_id)
    }
    assert len(gone) == queue.messages_killed
    waiting = {reference.message_id for reference in (*queue.pending, *office.scheduled.of(queue))}
    if lends:
        assert queue.message_count == len(queue.pending) + aside == len(before - gone)
        assert waiting == before - gone
    else:
        found = places(queue, office, consumers)
        assert len(found) == len(set(found)) == queue.message_count
        assert pre_acknowledge or set(found) == before - gone
        assert queue.message_count == len(before - gone) - queue.messages_acknowledged


def waiting_bodies(world: World, queue: Queue) -> list[bytes]:
    """Bodies of what waits, in the order of delivery."""
    return [bytes(queue.read(reference).body) for _, reference in queue.browse((9, -1))]
