"""Settings of exported queues: those of a new queue, notes for an operator, differences from a queue that exists."""

from __future__ import annotations

from understudy.cli.data.exported_settings import attributes_of, differences, notes_on
from understudy.tools.export import ExportedQueue
from understudy.wire.core.packets import QueueQueryResponseV3


def queue(**settings: object) -> ExportedQueue:
    return ExportedQueue("q", "a", 1, None, True, (1,), settings=settings)


def test_all_settings_that_a_request_has_are_given_and_others_are_left_aside() -> None:
    given = {"last_value": True, "last_value_key": "isin", "ring_size": 5, "auto_created": True, "max_consumers": 2}
    exported = queue(**given, configuration_managed=True, user="bob", a_later_one=1, paused=True, enabled=False)
    assert attributes_of(exported) == given


def test_a_queue_that_took_no_messages_or_was_paused_is_named() -> None:
    assert [*notes_on(queue(enabled=True, paused=False))] == []
    notes = [*notes_on(queue(enabled=False, paused=True))]
    assert ["operation disable" in notes[0], "operation pause" in notes[1]] == [True, True]


def test_other_settings_of_a_queue_that_exists_are_named() -> None:
    present = QueueQueryResponseV3(exists=True, ring_size=5, exclusive=False, max_consumers=-1)
    assert [*differences(queue(ring_size=5), present)] == []
    (note,) = differences(queue(ring_size=7, exclusive=True, max_consumers=-1), present)
    assert "ring_size 7 in the export, 5 there; exclusive True in the export, False there" in note
    assert "max_consumers" not in note
