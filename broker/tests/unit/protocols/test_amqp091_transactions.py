"""Transactions of AMQP 0-9-1 in which a message is refused: all of it counts, or nothing."""

from __future__ import annotations

import pytest

from support.amqp091 import AmqpClient, AmqpNode, bodies, declared
from understudy.wire.amqp091 import methods as m


def transacted(node: AmqpNode) -> AmqpClient:
    client = node.channel()
    client.ask(m.TxSelect(), m.TxSelectOk)
    return client


@pytest.mark.parametrize("full_first", [True, False])
def test_a_commit_fails_if_the_disk_was_full_for_one_of_its_messages(full_first: bool) -> None:
    node = AmqpNode()
    client = transacted(node)
    declared(client, "q", durable=True)
    for full in (full_first, not full_first, True):
        node.world.store.full = full
        client.publish("q", b"refused" if full else b"taken", delivery_mode=2)
    node.world.store.full = False
    client.send(m.TxCommit())
    # connection.blocked and its end come too
    closed = [each.method for each in client.received() if isinstance(each.method, m.ChannelClose | m.TxCommitOk)]
    assert [getattr(each, "reply_code", 0) for each in closed] == [406]
    assert bodies(node.channel()) == []


def test_a_commit_fails_if_a_queue_has_rejected_one_of_its_messages() -> None:
    node = AmqpNode()
    client = transacted(node)
    declared(client, "q", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    declared(client, "other")
    client.publish("other", b"taken")
    client.publish("q", b"rejected")
    assert client.code(m.TxCommit()) == 406
    assert bodies(node.channel(), "other") == []


def test_after_a_rollback_the_next_transaction_counts() -> None:
    node = AmqpNode()
    client = transacted(node)
    declared(client, "q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish("q", b"1")
    client.ask(m.TxCommit(), m.TxCommitOk)
    client.publish("q", b"rejected")
    client.ask(m.TxRollback(), m.TxRollbackOk)
    assert bodies(node.channel()) == [b"1"]
    client.publish("q", b"2")
    client.ask(m.TxCommit(), m.TxCommitOk)
    assert bodies(node.channel()) == [b"2"]
