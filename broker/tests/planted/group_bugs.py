"""Planted bugs of message groups in a cluster: groups that have two queues, or lose their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from planted.planting import Patch, planted, with_faults
from understudy.cluster.balancing.group_notices import GroupNotice
from understudy.cluster.balancing.groups import RemoteGroups
from understudy.protocols.core.session import CoreSession
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.testing.runs.fault_plan import Fault, FaultKind
from understudy.testing.runs.members_run import MembersRun
from understudy.testing.runs.scenario_run import ScenarioRun

_MEMBERS: Final = "members"
_ONE_QUEUE: Final = "a message group has one queue, and its messages keep their order"


@planted("group-answer-ignored", promise=_ONE_QUEUE, checks=["group-split"], elsewhere={_MEMBERS: range(1, 12)})
def _group_answer_ignored(patch: Patch) -> None:
    """A member binds a message group to the queue that it has proposed, whatever the answer is."""

    def heard(self: RemoteGroups, notice: GroupNotice, node_id: str) -> None:
        old(self, replace(notice, alternative=None), node_id)

    old: Callable[..., None] = patch.replace(RemoteGroups, "heard", heard)


@planted("group-bindings-forgotten", promise=_ONE_QUEUE, checks=["group-split"], elsewhere={_MEMBERS: range(1, 12)})
def _group_bindings_forgotten(patch: Patch) -> None:
    """The member that decides about message groups does not write its bindings to the log."""

    def store_setting(self: MessageStore, record: SettingRecord) -> int:
        return self.last_sequence if record.scope is SettingKind.GROUP else old(self, record)

    old: Callable[..., int] = patch.replace(MessageStore, "store_setting", store_setting)


@planted("group-overtaken", promise=_ONE_QUEUE, checks=["group-order"], elsewhere={_MEMBERS: range(104, 110)})
def _group_overtaken(patch: Patch) -> type[ScenarioRun]:
    """Messages that have waited for a decision about their group are sent in the opposite order."""

    def keep(self: CoreSession, packet: Any, size_bytes: int) -> None:
        old(self, packet, size_bytes)
        held = self._held
        if self._undecided is not None and held is not None and len(held) > 1:
            held.insert(1, held.pop())

    old: Callable[..., None] = patch.replace(CoreSession, "_keep", keep)
    # more messages wait while the member that decides is paused
    return with_faults(Fault(0, 0.1, FaultKind.PAUSE, "a", 0.6, 0.5, 0), base=MembersRun)
