"""The end of a transfer: the last packets to the target, and when it keeps a record of this node (ADR 0126)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from support.routing import World, text
from understudy.cluster.scale_down.plan import ScaleDown
from understudy.cluster.scale_down.work import Ask, Pause
from understudy.store.setting_record import SettingKind
from understudy.wire.core import packets

OWN = "00000000-0000-0000-0000-0000000000aa"
RECORD = packets.StoreMoved(OWN, 7, 3, "place", 1, 7, 0, b"")


class Finish:
    """The last part of a scale-down of a node with a queue."""

    def __init__(self, *, prepared: bool = False) -> None:
        self.world = World()
        self.queue = self.world.queue("q")
        self.told: list[packets.Packet] = []
        resources = SimpleNamespace(prepared=lambda: iter([object()] if prepared else []))
        sessions = SimpleNamespace(post_office=self.world.office, resources=resources)
        plan: Any = ScaleDown.__new__(ScaleDown)
        plan._cluster = SimpleNamespace(credentials=None)
        plan._services = SimpleNamespace(sessions=sessions, node_id=OWN)
        plan._configuration = SimpleNamespace(management_address="m")
        plan._kept_prefixes = ()
        plan._moved = lambda: RECORD
        plan.transfer = SimpleNamespace(target=SimpleNamespace(node_id="target"), complete=True)
        self.plan = plan

    def asked(self) -> list[packets.Packet]:
        """The requests to the target, each answered."""
        target = SimpleNamespace(tell=lambda packet, of_cluster: self.told.append(packet), target=None)
        return [each.packet for each in self.plan._finish(target) if isinstance(each, Ask)]


def test_a_node_without_messages_leaves_its_record() -> None:
    node = Finish()
    assert node.asked()[-1] is RECORD
    assert node.told == [packets.ScaleDownAnnouncement("target", OWN)]
    assert node.plan.everything_moved


@pytest.mark.parametrize("left", ["message", "prepared transaction"])
def test_a_node_that_has_something_left_leaves_no_record(left: str) -> None:
    """A primary that has the record begins with an empty store: messages left at this node would never be served."""
    node = Finish(prepared=left != "message")
    if left == "message":
        node.world.session().sends.send(text("refused"))
        node.world.turn()
    assert RECORD not in node.asked()
    assert node.told == [packets.ScaleDownAnnouncement("target", OWN)], "the rest is there"
    assert not node.plan.everything_moved, "the next start serves the rest: the data is not set aside"


def test_messages_move_after_the_record_of_the_target_and_the_commit() -> None:
    """A disk that fails before leaves the data of the other node the newest (ADR 0112)."""
    node = Finish()
    steps: list[str] = []
    waiting: list[Callable[[], None]] = []
    plan, store = node.plan, node.world.office.store
    plan.record = None
    plan._services.sessions.resources.will_move = lambda node_id: None
    later: list[Callable[[], None]] = []
    plan._timers = SimpleNamespace(call_later=lambda delay_ms, call: later.append(call))
    plan._commit = lambda committed: (steps.append("commit"), waiting.append(committed))
    member = SimpleNamespace(node_id="target", primary=None, backup=None)
    plan.transfer = SimpleNamespace(target=member, record_written=lambda: steps.append("messages may move"))
    work = plan._write_target()
    assert isinstance(next(work), Ask)
    assert work.send(None) is Pause.WRITTEN
    assert steps == []
    later[0]()
    node.world.turn()
    assert steps == ["commit"]
    assert any(each.scope is SettingKind.SCALE_DOWN for each in store.state.settings.values())
    waiting[0]()
    assert steps == ["commit", "messages may move"]


def test_the_record_is_in_doubt_until_the_target_has_answered() -> None:
    """The target may have stored it before its answer was lost: the replica does not serve meanwhile."""
    node = Finish()
    node.plan.record_in_doubt = False
    target = SimpleNamespace(tell=lambda packet, of_cluster: node.told.append(packet), target=None)
    before = [node.plan.record_in_doubt for _ in node.plan._finish(target)]
    assert before == [False, True], "only the request with the record"
    assert not node.plan.record_in_doubt, "the work has ended with the answer"
    unanswered = node.plan._finish(target)
    next(unanswered), next(unanswered)
    unanswered.close()
    assert node.plan.record_in_doubt
