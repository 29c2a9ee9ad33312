"""The model of an active node: every collection is read with every field in its declared type."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert, to_builtins

from support.amqp091 import declared
from support.core import NAME
from support.managed import ManagedWorld
from support.managed_amqp import ManagedAmqp
from support.routing import text
from support.slices import counted, finish
from understudy.config.bridge import BridgeConfiguration, BridgeTarget
from understudy.config.model import ConnectorConfiguration, SecuritySettingConfiguration
from understudy.ids import Xid
from understudy.management.doors.http import COLLECTIONS
from understudy.management.model.figure import Item, figures
from understudy.management.operations.queue_messages import page, wanted_by
from understudy.management.snapshot.collections import READERS
from understudy.management.snapshot.routing import message_of
from understudy.management.snapshot.rows import STEP_ROWS, Rows, select
from understudy.terms import Permission, RoutingType
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.tables import Decimal, Timestamp
from understudy.wire.core import packets


def busy() -> ManagedWorld:
    """A node with at least one item of each collection, except users."""
    node = ManagedAmqp(
        configuration={
            "connectors": (ConnectorConfiguration("self", "127.0.0.1", 1),),
            "bridges": (BridgeConfiguration("b", "q", BridgeTarget(("self",))),),
            "security_settings": (SecuritySettingConfiguration("#", {Permission.SEND: frozenset({"all"})}),),
        }
    )
    node.world.queue("q", filter="n = 7", max_consumers=3)
    node.world.queue("r", routing_type=RoutingType.MULTICAST, ring_size=2)
    node.ask("broker", "createDivert", "d", None, "q", "r", False, "n = 1", None)
    node.ask("broker", "addAddressSettings", "q", '{"maxDeliveryAttempts": 3}')
    client = node.client("10.0.0.1:5000")
    client.create_session(NAME)
    client.send(packets.CreateProducer(1, "r"))
    client.consume(queue="r")
    node.world.session().sends.send(text("x", "r"))
    transacted = node.world.session(transacted=True)
    transacted.sends.send(text("y", "r"))
    amqp = node.channel()
    amqp.ask(m.ExchangeDeclare(0, "logs", "headers", durable=True), m.ExchangeDeclareOk)
    declared(amqp, "audit", durable=True, arguments={"x-message-ttl": 60_000, "x-max-length": 7})
    found = {"x-match": "any", "at": Timestamp(7), "price": Decimal(2, 314), "raw": b"\xff", "levels": [1, {"a": None}]}
    amqp.ask(m.QueueBind(0, "audit", "logs", "", arguments=found), m.QueueBindOk)
    node.world.session(xa=True).branches.start(Xid(7, b"global", b"branch"))
    node.world.turn()
    return node


@pytest.mark.parametrize("name", READERS)
def test_every_field_of_every_item_has_its_declared_type(name: str) -> None:
    rows = READERS[name](busy().managed)
    kind = COLLECTIONS[name].kind
    assert set(rows.readers) == set(kind.__struct_fields__)
    items: list[Item] = rows.items()
    assert items or name == "users"
    for item in items:
        assert convert(to_builtins(item), kind, strict=True) == item


def test_the_keys_of_a_collection_are_unique() -> None:
    node = busy().managed
    for name, collection in COLLECTIONS.items():
        if name in READERS:
            keys = [tuple(getattr(item, field) for field in collection.key) for item in READERS[name](node).items()]
            assert len(keys) == len(set(keys)), name


def test_every_kind_of_values_is_declared_field_by_field() -> None:
    def kinds(kind: type[Item]) -> Any:
        for each in kind.__subclasses__():
            yield each
            yield from kinds(each)

    names = [figure.doc for kind in kinds(Item) for figure in figures(kind).values()]
    assert len(names) > 300
    assert all(doc.strip() for doc in names)


def test_waiting_messages_have_their_properties_and_texts() -> None:
    node = ManagedWorld()
    queue = node.world.queue("q")
    node.world.session().sends.send(text("hello", properties={"colour": "red"}, priority=7))
    node.world.turn()
    (message,) = finish(page(queue, wanted_by(queue, "colour = 'red'"), 0, 10, message_of))
    assert (message.priority, message.properties, message.unreadable) == (7, {"colour": "red"}, False)
    assert convert(to_builtins(message), type(message), strict=True) == message
    assert finish(page(queue, wanted_by(queue, "colour = 'blue'"), 0, 10, message_of)) == []


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("start", "count"), [(0, 10), (STEP_ROWS - 3, 6), (3 * STEP_ROWS, 99), (0, None), (5, 0)])
def test_slices_select_as_one_sort_would(start: int, count: int | None, *, descending: bool) -> None:
    sources = [(number * 7919 % 1_000, number) for number in range(3 * STEP_ROWS + 17)]
    work = select(
        sources, lambda each: each[0] % 3 > 0, lambda each: each[0], descending=descending, start=start, count=count
    )
    (found, total), pauses = counted(work)
    expected = sorted((each for each in sources if each[0] % 3), key=lambda each: each[0], reverse=descending)
    assert found == expected[start : None if count is None else start + count]
    assert total == len(expected)
    assert pauses >= 3


def test_absent_values_are_sorted_like_empty_texts() -> None:
    (found, _), _ = counted(select([None, "b", "", "a", 3, True], None, lambda each: each))
    assert found == [True, 3, None, "", "a", "b"]


def test_rows_of_items_are_the_items() -> None:
    items = READERS["queues"](busy().managed).items()
    assert Rows.of_items(COLLECTIONS["queues"].kind, items).items() == items
