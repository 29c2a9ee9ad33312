"""Notifications by which grouping handlers agree: their kinds and properties.

A proposal names a group and a queue. The LOCAL handler answers with the same queue, or with another one in
``_JBM_ProposalAltValue`` if the group has that. An unproposal says that a group is free.

Source: artemis-core s. 10.2, artemis-ha s. 7.8.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from understudy.cluster.balancing.notices import ADDRESS, BINDING_TYPE, DISTANCE, TYPE
from understudy.dataclass import dataclass
from understudy.limits import NAME_UNITS_MAX
from understudy.properties import Properties, PropertyValue

log = logging.getLogger(__name__)

PROPOSAL: Final = "PROPOSAL"
PROPOSAL_RESPONSE: Final = "PROPOSAL_RESPONSE"
UNPROPOSAL: Final = "UNPROPOSAL"
GROUP_KINDS: Final = (PROPOSAL, PROPOSAL_RESPONSE, UNPROPOSAL)

GROUP: Final = "_JBM_ProposalGroupId"
VALUE: Final = "_JBM_ProposalValue"
ALTERNATIVE: Final = "_JBM_ProposalAltValue"
_LOCAL_QUEUE: Final = 0


@dataclass(frozen=True, slots=True)
class GroupNotice:
    """One notification about a message group."""

    kind: str
    key: str
    """Group and routing name (``routing.grouping.group_key``)."""
    queue: str | None
    """Cluster name of the proposed, decided or former queue. A proposal without one only asks."""
    alternative: str | None = None
    """The queue that the group has, in an answer, instead of the proposed one."""
    distance: int = 0
    """Hops from the node that published it first."""

    @property
    def chosen(self) -> str | None:
        """The queue that an answer decides."""
        return self.alternative or self.queue

    def properties(self, address: str) -> dict[str, PropertyValue]:
        """Properties of the notification. ``address``: address of the grouping handler."""
        found: dict[str, PropertyValue] = {GROUP: self.key, VALUE: self.queue}
        if self.kind == PROPOSAL_RESPONSE:
            found[ALTERNATIVE] = self.alternative
        return {**found, BINDING_TYPE: _LOCAL_QUEUE, ADDRESS: address, DISTANCE: self.distance}


class GroupNotifications(Protocol):
    """Publishes notifications about groups."""

    def group_noticed(self, kind: str, properties: dict[str, PropertyValue]) -> None:
        """Publish a notification of one of ``GROUP_KINDS``."""


def read_group_notice(properties: Properties) -> GroupNotice | None:
    """The notification in the properties of a message; None: another kind, or one that is not understood."""
    kind = properties.get(TYPE)
    if kind not in GROUP_KINDS:
        return None
    key, distance = properties.get(GROUP), properties.get(DISTANCE)
    queue, alternative = properties.get(VALUE), properties.get(ALTERNATIVE)
    understood = isinstance(key, str) and key and isinstance(distance, int) and not isinstance(distance, bool)
    names = (key, queue, alternative)
    if not understood or not all(each is None or (isinstance(each, str) and _fits(each)) for each in names):
        log.warning("a notification about a message group is not understood", extra={"kind": kind})
        return None
    assert isinstance(key, str)
    assert isinstance(distance, int)
    return GroupNotice(
        kind,
        key,
        queue if isinstance(queue, str) and queue else None,
        alternative if isinstance(alternative, str) and alternative else None,
        distance,
    )


def _fits(name: str) -> bool:
    return len(name) <= 2 * NAME_UNITS_MAX
