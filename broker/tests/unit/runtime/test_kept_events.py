"""The latest events of a process in memory."""

from __future__ import annotations

import logging

from support.managed import ManagedWorld
from understudy.management.events.node_events import LOGGER, NodeEvents
from understudy.management.model.events import Event
from understudy.runtime.base.kept_events import KeptEvents
from understudy.runtime.base.logs import NODE


def kept(handler: KeptEvents, name: str, level: int, text: str, node: str | None = None, **fields: object) -> None:
    record = logging.LogRecord(name, level, __file__, 1, text, (), None)
    vars(record).update(fields)
    if node is None:
        handler.handle(record)
        return
    token = NODE.set(node)
    try:
        handler.handle(record)
    finally:
        NODE.reset(token)


def test_events_have_numbers_and_their_node() -> None:
    handler = KeptEvents()
    values = [1, 2]
    kept(handler, "understudy", logging.INFO, "process")
    kept(handler, "understudy.x", logging.WARNING, "of a", "a", values=values, path=handler)
    kept(handler, "understudy.x", logging.INFO, "of b", "b")
    kept(handler, "aiohttp", logging.ERROR, "of a library", "a")
    values.append(3)
    found = handler.after(0, "a", 10)
    assert [(each["sequence"], each["event"], each["node"]) for each in found] == [
        (1, "process", None),
        (2, "of a", "a"),
    ]
    assert found[1]["fields"]["values"] == [1, 2], "as it was at the time"
    assert isinstance(found[1]["fields"]["path"], str)
    assert set(found[1]) == set(Event.__struct_fields__)
    assert handler.after(2, "a", 10) == []
    assert [each["event"] for each in handler.after(0, "a", 1)] == ["of a"], "the latest ones"
    assert handler.last == 3


def test_early_events_are_dropped() -> None:
    handler = KeptEvents()
    for number in range(2_100):
        kept(handler, "understudy.x", logging.INFO, f"event {number}")
    assert len(handler.after(0, "a", 5_000)) == 2_000


def a_world() -> ManagedWorld:
    node = ManagedWorld()
    office, events = node.managed.services.sessions.post_office, NodeEvents()
    office.directory.listeners.append(events)
    office.diverts.listeners.append(events)
    return node


def test_a_broker_has_events_of_queues_and_diverts() -> None:
    handler, logger = KeptEvents(), logging.getLogger(LOGGER)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        node = a_world()
        node.ask("broker", "createQueue", "orders", "ANYCAST", "orders", None, True, -1, False, True)
        node.ask("broker", "createDivert", "copy", None, "orders", "audit", False, None, None)
        node.ask("broker", "destroyDivert", "copy")
        node.ask("broker", "destroyQueue", "orders")
        node.ask("broker", "deleteAddress", "orders")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    found = [(each["event"], each["fields"]) for each in handler.after(0, "", 100)]
    names = [text for text, fields in found if "orders" in fields.values() or fields.get("divert") == "copy"]
    assert names == [
        "address created", "queue created", "divert created", "divert destroyed", "queue deleted", "address deleted",
    ]  # fmt: skip
    node = a_world()
    node.ask("broker", "createQueue", "orders", "ANYCAST", "orders", None, True, -1, False, True)
    assert len(handler.after(0, "", 100)) == len(found), "a process that keeps no events logs none"
