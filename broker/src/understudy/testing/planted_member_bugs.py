"""Planted bugs of members of a cluster: bridges, redistribution and scale-down that lose or double messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from understudy.balancing.cluster_bridge import ClusterConversion
from understudy.balancing.group_notices import GroupNotice
from understudy.balancing.groups import RemoteGroups
from understudy.bridges.forwarding import Forwarding
from understudy.message import BRIDGE_DUPLICATE_ID, Message
from understudy.protocols.core.session import CoreSession
from understudy.routing.acceptance import Acceptance
from understudy.routing.address import Address
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import ResponseOrder
from understudy.runtime.scale_down import NodeScaleDown
from understudy.scale_down.messages import MovingMessages
from understudy.store.message_store import MessageStore
from understudy.store.reference import MessageReference, References
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.testing.planting import Patch, planted

_MEMBERS: Final = "members"
_NOT_LOST: Final = "no confirmed durable message is lost"
_ONE_QUEUE: Final = "a message group has one queue, and its messages keep their order"
_NOT_DOUBLED: Final = "no message is stored twice"


@planted("bridge-id-forgotten", promise=_NOT_DOUBLED, checks=["duplicated"], elsewhere={_MEMBERS: range(11, 40)})
def _bridge_id_forgotten(patch: Patch) -> None:
    """A bridge between members sends messages without its duplicate ids."""

    def convert(self: ClusterConversion, message: Message, message_id: int) -> Message:
        converted = old(self, message, message_id)
        properties = converted.properties.copy()
        properties.pop(BRIDGE_DUPLICATE_ID, None)
        return converted.with_properties(properties)

    old: Callable[..., Message] = patch.replace(ClusterConversion, "convert", convert)


@planted("bridge-acknowledges-early", promise=_NOT_LOST, checks=["lost"], elsewhere={_MEMBERS: range(1, 20)})
def _bridge_acknowledges_early(patch: Patch) -> None:
    """A bridge removes a message when it has sent it, before the other member has it."""

    def deliver(self: Forwarding, consumer_id: int, part: Any) -> int:
        charged = old(self, consumer_id, part)
        for correlation_id in list(self.unconfirmed):
            self._later(partial(self.confirmed, correlation_id))
        return charged

    old: Callable[..., int] = patch.replace(Forwarding, "deliver", deliver)


@planted("redistribution-acknowledges-first", promise=_NOT_LOST, checks=["lost"], elsewhere={_MEMBERS: range(10, 40)})
def _redistribution_acknowledges_first(patch: Patch) -> None:
    """Redistribution removes a message before its copy is safe: the copy is not in the log."""

    def move(
        self: Acceptance,
        copy: Message,
        target: Address,
        queues: tuple[Queue, ...],
        queue: Queue,
        reference: MessageReference,
    ) -> None:
        if not any(each.internal for each in queues):
            old(self, copy, target, queues, queue, reference)
            return
        queue.log_acknowledges(References((reference,)))
        copy = Message(
            copy.body, address=copy.address, type=copy.type, durable=False, properties=copy.properties,
            message_id=copy.message_id,
        )  # fmt: skip
        self.accept(target, copy, queues, 0, ResponseOrder(), None, None, None)

    old: Callable[..., None] = patch.replace(Acceptance, "move", move)


@planted("scale-down-removes-early", promise=_NOT_LOST, checks=["lost"], elsewhere={_MEMBERS: range(20, 40)})
def _scale_down_removes_early(patch: Patch) -> None:
    """A node that is scaled down removes a message when it has sent it, before the target has it."""

    def sent(self: MovingMessages, correlation_id: int, held: Any, size_bytes: int) -> None:
        old(self, correlation_id, held, size_bytes)
        self.confirmed(correlation_id)

    old: Callable[..., None] = patch.replace(MovingMessages, "_sent", sent)


@planted("scale-down-not-completed", promise=_NOT_DOUBLED, checks=["duplicated"], elsewhere={_MEMBERS: range(190, 210)})
def _scale_down_not_completed(patch: Patch) -> None:
    """A node that was killed during its scale-down serves messages that the target has already."""
    patch.replace(NodeScaleDown, "is_pending", lambda self, broker: False)


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


@planted("group-overtaken", promise=_ONE_QUEUE, checks=["group-order"], elsewhere={_MEMBERS: range(15, 25)})
def _group_overtaken(patch: Patch) -> None:
    """Messages that have waited for a decision about their group are sent in the opposite order."""

    def keep(self: CoreSession, packet: Any, size_bytes: int) -> None:
        old(self, packet, size_bytes)
        held = self._held
        if self._undecided is not None and held is not None and len(held) > 1:
            held.insert(1, held.pop())

    old: Callable[..., None] = patch.replace(CoreSession, "_keep", keep)
