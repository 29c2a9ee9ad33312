"""Operations of management on the quarantine: listing and dropping entries."""

from __future__ import annotations

import json

from msgspec import to_builtins
from msgspec.structs import replace

from support.managed import ManagedWorld
from support.slices import exposed
from understudy.management.doors import openapi
from understudy.management.model.node import Quarantine
from understudy.store.quarantine import QuarantineEntry
from understudy.testing.fake_node import FakeNodeView
from unit.management.test_openapi import matches

ENTRY = QuarantineEntry("message-7-3", "message", "/s/x at offset 9: damaged", 5, queue="q", queue_id=3, message_id=7)


def kept(*entries: QuarantineEntry) -> ManagedWorld:
    node = ManagedWorld()
    for entry in entries:
        node.world.store.quarantine.keep(entry, lambda: b"bytes", lambda error: None)
    return node


def test_entries_are_listed_and_dropped() -> None:
    other = QuarantineEntry("message-8-3", "message", "reason", 6, message_id=8)
    node = kept(other, ENTRY)
    node.world.sync()
    assert node.ask("broker", "getQuarantinedMessageCount") == 2
    first, second = json.loads(node.ask("broker", "listQuarantinedMessagesAsJSON"))
    assert (first["entry_id"], first["message_id"], first["queue"], first["stored"]) == ("message-7-3", 7, "q", True)
    assert second["file"].endswith("/quarantine/message-8-3.entry")
    assert json.loads(node.ask("broker", "listQuarantinedMessagesAsJSON", 2, 1)) == [second]
    assert node.ask("broker", "dropQuarantinedMessage", "message-7-3") is True
    assert "message-7-3" in node.refused("broker", "dropQuarantinedMessage", "message-7-3")
    assert json.loads(node.ask("broker", "listQuarantinedMessagesAsJSON")) == [second]


def test_the_http_answer_and_the_metrics() -> None:
    quarantine = kept(ENTRY).world.store.quarantine
    view = FakeNodeView(damaged=Quarantine(1, quarantine.as_json(0, 10)))
    schemas = openapi.document("1")["components"]["schemas"]  # type: ignore[index]
    assert matches(to_builtins(view.quarantine()), schemas["Quarantine"], schemas)
    text = exposed(view)
    assert "understudy_quarantine_entries" not in text
    store = view.node().store
    assert store is not None
    view.change(store=replace(store, quarantined=2, set_aside=3))
    text = exposed(view)
    assert "understudy_quarantine_entries 2.0" in text
    assert "understudy_messages_quarantined_total 3.0" in text
