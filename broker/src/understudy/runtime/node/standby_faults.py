"""Reasons why a backup of a shared store would not take over from its primary, although it follows a log (ADR 0120)."""

from __future__ import annotations

import logging

from understudy.cluster.membership.announcement import announcement_fault
from understudy.ha.life.policy import Role
from understudy.ha.shared.policy import SharedStorePolicy
from understudy.runtime.base.parts import NodeParts

log = logging.getLogger(__name__)


class StandbyFaults:
    """Reasons for which one passive node could not take over; a new reason is logged."""

    def __init__(self, parts: NodeParts, policy: SharedStorePolicy) -> None:
        self._parts = parts
        self._policy = policy if policy.role is Role.BACKUP else None
        self._said: str | None = None

    def find(self) -> str | None:
        """Reason for which the passive node is not ready; None: it may take over, or the node is no such backup."""
        found = self._find()
        if found != self._said:
            self._said = found
            if found is not None:
                log.warning("this backup would not take over", extra={"reason": found})
        return found

    def _find(self) -> str | None:
        if self._policy is None:
            return None
        membership = self._parts.membership
        if membership is None:
            return "there is no cluster-connection: neither the active node nor its clients know this backup"
        fault = announcement_fault(membership, self._parts.topology)
        if not self._policy.unopened:
            return fault
        directory = self._parts.configuration.current.journal_directory
        text = f"no primary has opened the store of this backup yet ({directory}): has its primary the same directory?"
        return text if fault is None else f"{text}; {fault}"
