"""Delivery counts over a kill: stored before a delivery if configured, and up to max-redelivery-records."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.processes import Pair
from understudy.client import sync
from understudy.client.core.consumer.taken import AcknowledgeMode


@pytest.mark.parametrize(("stored", "expected"), [(False, 1), (True, 2)])
def test_a_delivery_before_a_kill_is_counted_if_counts_are_stored_first(
    tmp_path: Path, stored: bool, expected: int
) -> None:
    extra = f"<persist-delivery-count-before-delivery>{str(stored).lower()}</persist-delivery-count-before-delivery>"
    pair = Pair(tmp_path, extra=extra)
    try:
        node = pair.primary.start()
        node.wait_ready("active")
        with sync.connect(f"tcp://127.0.0.1:{node.port}?reconnectAttempts=0") as connection:
            session = connection.session(AcknowledgeMode.CLIENT)
            session.producer("q").send(b"poison")
            first = session.consumer("q").receive(20)
            assert first is not None
            assert first.delivery_count == 1
            # the delivery does not wait for the record of its count (nor does it in Artemis); a confirmation that comes
            # later in the log does
            session.producer("other").send(b"after")
            node.kill()
        node.start()
        node.wait_ready("active")
        with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection:
            again = connection.session().consumer("q").receive(20)
            assert again is not None
            assert again.delivery_count == expected
    finally:
        pair.end()


def test_delivery_counts_above_the_limit_are_not_stored(tmp_path: Path) -> None:
    pair = Pair(tmp_path, extra="<max-redelivery-records>2</max-redelivery-records>")
    try:
        node = pair.primary.start()
        node.wait_ready("active")
        with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection:
            session = connection.session(AcknowledgeMode.TRANSACTED)
            session.producer("q").send(b"again")
            session.commit()
            consumer = session.consumer("q")
            for count in (1, 2, 3, 4):
                received = consumer.receive(20)
                assert received is not None
                assert received.delivery_count == count
                session.rollback()
        node.terminate()
        node.start()
        node.wait_ready("active")
        with sync.connect(f"tcp://127.0.0.1:{node.port}") as connection:
            again = connection.session().consumer("q").receive(20)
            assert again is not None
            assert again.delivery_count == 3, "two of four were stored"
    finally:
        pair.end()
