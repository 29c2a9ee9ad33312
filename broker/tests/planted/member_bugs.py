"""Planted bugs of members of a cluster: bridges and redistribution that lose or double messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from planted.planting import Patch, planted
from understudy.cluster.balancing.cluster_bridge import ClusterConversion
from understudy.cluster.bridges.forwarding import Forwarding
from understudy.message import BRIDGE_DUPLICATE_ID, Message
from understudy.routing.acceptance import Acceptance
from understudy.routing.address import Address
from understudy.routing.moves import Copies, RunMoves
from understudy.routing.queues.queue import Queue
from understudy.routing.response_order import ResponseOrder
from understudy.store.messages.reference import MessageReference, Part, References

_MEMBERS: Final = "members"
_NOT_LOST: Final = "no confirmed durable message is lost"
_NOT_DOUBLED: Final = "no message is stored twice"


@planted("bridge-id-forgotten", promise=_NOT_DOUBLED, checks=["duplicated"], elsewhere={_MEMBERS: range(11, 40)})
def _bridge_id_forgotten(patch: Patch) -> None:
    """A bridge between members sends messages without its duplicate ids."""

    def convert(self: ClusterConversion, message: Message, message_id: int) -> Message:
        converted = old(self, message, message_id)
        properties = converted.properties.copy()
        properties.pop(BRIDGE_DUPLICATE_ID, None)
        return converted.with_properties(properties)

    def begin(self: ClusterConversion, *arguments: Any, **options: Any) -> None:
        old_begin(self, *arguments, **options)
        assert self.form is not None
        self.form = replace(self.form, node_id=b"")

    old: Callable[..., Message] = patch.replace(ClusterConversion, "convert", convert)
    old_begin: Callable[..., None] = patch.replace(ClusterConversion, "__init__", begin)


@planted("bridge-acknowledges-early", promise=_NOT_LOST, checks=["lost"], elsewhere={_MEMBERS: range(1, 20)})
def _bridge_acknowledges_early(patch: Patch) -> None:
    """A bridge removes a message when it has sent it, before the other member has it."""

    def deliver(self: Forwarding, consumer_id: int, part: Any) -> int:
        charged = old(self, consumer_id, part)
        for each in self._sent:
            self._timers.call_later(0, partial(self.confirmed, each.first, each.last))
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

    def record(self: RunMoves, queue: Queue, address: Address, gone: Sequence[Part], copies: Sequence[Copies]) -> None:
        queue.log_acknowledges(*gone)
        for target, sends, row, count in copies:
            for each in range(row, row + count):
                copy = Message.decode(sends.encoded(each))
                copy = Message(
                    copy.body, address=copy.address, type=copy.type, durable=False, properties=copy.properties,
                    message_id=self._office.store.next_id(),
                )  # fmt: skip
                self._office.acceptance.accept(address, copy, (target,), 0, ResponseOrder(), None, None, None)

    old: Callable[..., None] = patch.replace(Acceptance, "move", move)
    patch.replace(RunMoves, "_record", record)
