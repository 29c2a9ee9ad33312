"""Random work on a whole node with queues of every kind, and its books: they close at any time, and at the end of
everything all of them are at zero.

Goal: whatever producers, consumers, transactions, XA branches and operators do to queues of special kinds, with
messages that are large, paged, scheduled, expiring, grouped, diverted or duplicates, through deletions, full disks and
crashes,

* a queue counts exactly its messages: waiting, scheduled, and with consumers and transactions;
* an address and the node count exactly what their queues have, in memory and out of it;
* when all clients have gone, the log has the messages that memory has, as often delivered, and a successor finds them;
* when everything was taken out, nothing is left anywhere: no message, no byte, no file of a body, no page, no
  transaction, no waiting producer, no answer that never came.

Method: over the real store on a simulated disk. Hypothesis draws steps, each a few small numbers; requests that make no
sense at that moment are refused by the node or left out.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.reference_model import ReferenceModel
from understudy.routing.queues import level

NUMBER = st.integers(0, 1 << 16)
#: The frequent ones first, several times.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("send", "send", "send", "send", "consume", "credits", "credits", "settle", "turn", "turn"),
                *("acknowledge", "acknowledge", "acknowledge", "commit", "commit", "roll_back", "end_branch"),
                *("send_large", "send_large", "time", "close_consumer", "close", "begin_branch", "prepare", "decide"),
                *("ask_credits", "operate", "operate", "delete_queue", "crash", "age", "fill_disk", "found_expired"),
                *("change", "busy", "busy", "private", "private"),
            ]
        ),
        NUMBER,
        NUMBER,
        NUMBER,
    ),
    max_size=70,
)


@pytest.fixture(autouse=True)
def _cut_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken entries are cut off, and waiting ones leave memory, at once, as in long queues only."""
    for name, small in {
        "BLOCK": 2,
        "OBJECT_BLOCKS": 2,
        "SHORT_BLOCKS": 3,
        "OPEN_BLOCKS": 1,
        "MEMORY_BLOCKS": 2,
    }.items():
        monkeypatch.setattr(level, f"_{name}", small)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 1 << 16))
def test_the_books_close(steps: list[tuple[str, int, int, int]], seed: int) -> None:
    books = ReferenceModel(seed)
    for step in steps:
        books.step(*step)
    books.all_clients_leave()
    books.compare_with_log()
    books.now_ms = books.world.clock.now_ms
    books.rig.die(power_loss=seed % 2 == 0)
    books.start()
    books.all_clients_leave()
    books.compare_with_log()
    books.take_everything_out()
