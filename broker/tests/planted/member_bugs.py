"""Planted bugs of members of a cluster: bridges and redistribution that lose or double messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from planted.planting import Patch, planted
from understudy.cluster.balancing.cluster_bridge import ClusterConversion
from understudy.cluster.bridges.forwarding import Forwarding
from understudy.message import BRIDGE_DUPLICATE_ID, Message
from understudy.routing.moves import MessageCopy, RunCopies

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

    def unlogged(old: Any) -> property:
        return property(lambda self: old.fget(self) and not any(each.internal for each in self.queues))

    for kind in (MessageCopy, RunCopies):
        patch.replace(kind, "durable", unlogged(kind.durable))
