"""The element ``grouping-handler`` as values (artemis-ha s. 7.8)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from understudy.config.schema.schema import Defaults
from understudy.dataclass import dataclass

_HANDLER: Final = Defaults("core/grouping-handler")


class GroupingType(StrEnum):
    """Place of the decision about the message groups of a cluster."""

    LOCAL = "LOCAL"
    """This node decides the queue of each message group."""
    REMOTE = "REMOTE"
    """Another member decides the queue of each message group."""


@dataclass(frozen=True, slots=True)
class GroupingConfiguration:
    """The grouping handler of a node."""

    name: str
    type: GroupingType
    address: str = _HANDLER.text("address")
    """Address in the notifications of the handler, so that they pass the filter of the other members."""
    timeout_ms: int = _HANDLER.number("timeout")
    """Longest wait for an answer to a proposal, and for a queue that this node does not know yet."""
    group_timeout_ms: int = _HANDLER.number("group-timeout")
    """Idle time after which a group is free again; -1: never."""
    reaper_period_ms: int = _HANDLER.number("reaper-period")
