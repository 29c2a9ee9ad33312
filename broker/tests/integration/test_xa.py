"""XA with our client against the pair: a promise given by one node is kept by the other."""

from __future__ import annotations

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
