"""``sync.link``: the span of a send has ended before a thread gets the outcome of the send."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from understudy.client.sync.callbacks import callbacks
from understudy.client.sync.link import Link, _SendFuture
from understudy.errors import AddressNotFound


@pytest.fixture
def busy_callbacks() -> threading.Event:
    """The thread for callbacks is in a callback until the event is set."""
    released = threading.Event()
    callbacks.call(lambda: released.wait(30))
    return released


def test_the_span_of_a_send_ends_before_its_result_is_returned_even_if_the_callbacks_are_late(
    busy_callbacks: threading.Event,
) -> None:
    future = _SendFuture(cast(Link, None))
    ended: list[BaseException | None] = []
    future.end_span(lambda outcome: ended.append(outcome.exception()))
    error = AddressNotFound("no such address")
    try:
        future.set_exception(error)
        with pytest.raises(AddressNotFound):
            future.result()
        assert ended == [error]
    finally:
        busy_callbacks.set()
    drained = threading.Event()
    callbacks.call(drained.set)
    assert drained.wait(10)
    assert ended == [error]


def test_an_error_of_a_span_does_not_replace_the_result() -> None:
    def fail(outcome: object) -> None:
        raise RuntimeError("the exporter has no connection")

    future = _SendFuture(cast(Link, None))
    future.end_span(fail)
    future.set_result(None)
    assert future.result() is None
