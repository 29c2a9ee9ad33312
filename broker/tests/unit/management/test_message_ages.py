"""Ages of messages by their ids: never too low by more than the time between two notes, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.managed import ManagedWorld
from support.routing import text
from understudy.management.events.message_ages import PRECISION, SAMPLES_MAX, MessageAges
from understudy.management.snapshot.routing import queue_rows


def test_a_message_has_come_since_the_last_note_before_it() -> None:
    ages = MessageAges()
    ages.note(10, 1_000)
    ages.note(20, 2_000)
    assert ages.age_ms(15, 5_000) == 4_000
    assert ages.age_ms(20, 5_000) == 4_000
    assert ages.age_ms(21, 5_000) == 3_000


def test_a_message_from_before_the_first_note_counts_from_it() -> None:
    ages = MessageAges()
    assert ages.age_ms(5, 5_000) == 0
    ages.note(10, 1_000)
    assert ages.age_ms(5, 5_000) == 4_000


def test_a_quiet_node_notes_one_id() -> None:
    ages = MessageAges()
    for now_ms in range(0, 10_000, 500):
        ages.note(10, now_ms)
    assert ages.samples == 1
    assert ages.age_ms(11, 9_600) == 100


@given(st.integers(SAMPLES_MAX, 6 * SAMPLES_MAX), st.floats(0, 1))
def test_the_error_of_an_age_is_a_small_part_of_it(notes: int, part: float) -> None:
    ages = MessageAges()
    for number in range(notes):
        ages.note(number, number * 500)
    assert ages.samples <= SAMPLES_MAX
    # the message of an id came in the period that its note ends
    message_id, now_ms = int(part * (notes - 1)), notes * 500
    true_ms = now_ms - message_id * 500
    assert true_ms <= ages.age_ms(message_id, now_ms) + 500
    assert ages.age_ms(message_id, now_ms) <= (1 + 2 * PRECISION) * true_ms + 1_000


def test_a_queue_shows_the_age_of_its_first_waiting_message() -> None:
    node = ManagedWorld()
    world, ages = node.world, node.managed.ages
    world.queue()
    clock = node.services.clock

    def age_ms() -> object:
        rows = queue_rows(node.managed)
        return {rows.readers["name"](each): rows.readers["oldest_age_ms"](each) for each in rows.sources}["q"]

    def send_later(delay_ms: int) -> None:
        ages.note(world.store.last_id, clock.monotonic_ms())
        world.session().sends.send(text("m"))
        world.turn()
        world.clock.advance(delay_ms)

    assert age_ms() is None
    send_later(2_000)
    send_later(3_000)
    assert age_ms() == 5_000
    session = world.session()
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, 1)
    world.turn()
    assert age_ms() == 3_000, "the first one is with the consumer"
    session.close(failed=False)
    assert age_ms() == 5_000, "it is back"
