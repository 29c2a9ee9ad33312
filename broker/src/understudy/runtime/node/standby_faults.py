"""Reasons why a backup of a shared store would not take over from its primary, although it follows a log (ADR 0120)."""

from __future__ import annotations

import logging

from understudy.cluster.membership.announcement import announcement_fault
from understudy.config.high_availability import Role
from understudy.runtime.base.parts import NodeParts, Owner

log = logging.getLogger(__name__)


class StandbyFaults:
    """Reasons for which one passive node could not take over; a new reason is logged."""

    def __init__(self, parts: NodeParts, owner: Owner) -> None:
        """``owner``: knows whether the store is unopened."""
        self._parts = parts
        self._owner = owner
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
        policy = self._parts.configuration.current.ha_policy
        if policy.role is not Role.BACKUP or policy.replication is not None:
            return None
        membership = self._parts.membership
        if membership is None:
            return "there is no cluster-connection: neither the active node nor its clients know this backup"
        fault = announcement_fault(membership, self._parts.topology)
        if not self._owner.unopened:
            return fault
        directory = self._parts.configuration.current.journal_directory
        text = f"no primary has opened the store of this backup yet ({directory}): has its primary the same directory?"
        return text if fault is None else f"{text}; {fault}"
