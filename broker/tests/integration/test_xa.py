"""XA with our client against the pair: a promise given by one node is kept by the other."""

from __future__ import annotations

import time

import pytest

from support.processes import Pair
from understudy.client import sync
from understudy.errors import XaCode, XaError
from understudy.ids import Xid

PROMISED = Xid(1, b"promised", b"\1")
OPEN = Xid(1, b"open", b"\1")


def test_a_prepared_branch_is_decided_at_the_other_node(pair: Pair) -> None:
    pair.start()
    with sync.connect(pair.url) as connection:
        session = connection.session(xa=True)
        with connection.session() as plain:
            plain.producer("q").send(b"held")
        consumer, producer = session.consumer("q"), session.producer("out")
        session.xa.start(PROMISED)
        received = consumer.receive(timeout_s=10)
        assert received is not None
        session.acknowledge(received)
        producer.send(b"sent")
        session.xa.end(PROMISED)
        session.xa.prepare(PROMISED)
        session.xa.start(OPEN)
        producer.send(b"lost")
        pair.primary.kill()
        with pytest.raises(XaError) as caught:
            session.xa.end(OPEN)
            session.xa.prepare(OPEN)
        assert caught.value.xa_code in (
            XaCode.ROLLED_BACK_OTHER, XaCode.RESOURCE_MANAGER_FAILED, XaCode.ROLLED_BACK, XaCode.UNKNOWN_XID,
        )  # fmt: skip
        assert session.xa.recover() == (PROMISED,)
        assert consumer.receive(timeout_s=1) is None, "the branch holds it"
        session.xa.commit(PROMISED)
        assert session.xa.recover() == ()
        with connection.session() as plain:
            out = plain.consumer("out").receive(timeout_s=10)
            assert out is not None
            assert out.body == b"sent"
            assert plain.consumer("q").receive(timeout_s=1) is None


def test_prepared_large_messages_come_or_go_with_their_branch_at_the_other_node(pair: Pair) -> None:
    """Committed there the body is whole, rolled back there its file goes, and none is left at the end."""
    pair.start()
    kept, dropped = Xid(1, b"kept", b"\1"), Xid(1, b"dropped", b"\1")
    body = bytes(range(256)) * 4000
    files = pair.store / "large-messages"
    with sync.connect(pair.url) as connection:
        session = connection.session(xa=True)
        producer = session.producer("large")
        for branch in (kept, dropped):
            session.xa.start(branch)
            producer.send(body)
            session.xa.end(branch)
            session.xa.prepare(branch)
    assert len(list(files.iterdir())) == 2
    pair.primary.kill()
    pair.backup.wait_ready("active")
    with sync.connect(pair.url) as connection:
        session = connection.session(xa=True)
        assert set(session.xa.recover()) == {kept, dropped}
        session.xa.commit(kept)
        session.xa.rollback(dropped)
        with connection.session() as plain:
            consumer = plain.consumer("large")
            received = consumer.receive(timeout_s=10)
            assert received is not None
            assert received.read_body() == body
            assert consumer.receive(timeout_s=1) is None
    deadline = time.monotonic() + 30
    while any(files.iterdir()):
        assert time.monotonic() < deadline, [path.name for path in files.iterdir()]
        time.sleep(0.2)
