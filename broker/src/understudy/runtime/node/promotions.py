"""Promotions of one node by an administrator, and their file, which ``status`` shows (``ha.replication.promotion``)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from understudy.errors import BrokerError, DiskFailed, ManagementError
from understudy.ha.life.policy import Policy
from understudy.ha.locks.replaced_file import read_file, replace_file
from understudy.ha.replication.policy import ReplicationPolicy
from understudy.ha.replication.promotion import FILE_NAME, Promotion, decode, encode
from understudy.runtime.base.parts import NodeParts

log = logging.getLogger(__name__)

#: Longest file that is read.
BYTES_MAX: Final = 64 * 1024


class Promotions:
    """The promotions of the data of one node."""

    def __init__(self, parts: NodeParts, policy: Policy) -> None:
        """Read the file of a node of a replicated pair; a file that cannot be read is logged and replaced."""
        self._parts = parts
        self._life = policy.standby_life if isinstance(policy, ReplicationPolicy) else None
        self._directory = parts.configuration.current.node_manager_lock_directory
        self.last: Promotion | None = None
        """Newest promotion; None without one."""
        self._records: list[Promotion] = []
        if self._life is not None:
            self._load()

    @property
    def waiting_because(self) -> str | None:
        """Reason why the data of this node is not used while there is no active node; None if it does not wait."""
        return None if self._life is None else self._life.waiting_because

    def promote(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        """Let the data of this node count as the newest; the answer comes once that is recorded durably.

        Raises:
            ManagementError: the node is not one of a replicated pair.
        """
        if self._life is None:
            raise ManagementError("the node is not one of a replicated pair")

        def promoted(outcome: Promotion | BrokerError) -> None:
            failure = None if isinstance(outcome, BrokerError) else self._record(outcome)
            answer(failure or outcome)

        self._life.promote(promoted)

    def _load(self) -> None:
        path = f"{self._directory}/{FILE_NAME}"
        try:
            data = read_file(self._parts.environment.disk, path, BYTES_MAX)
            self._records = [] if data is None else decode(data, path)
        except BrokerError as error:
            log.warning("the record of promotions cannot be read", extra={"file": path, "error": str(error)})
        self.last = self._records[-1] if self._records else None

    def _record(self, promotion: Promotion) -> BrokerError | None:
        """Record a promotion durably; the error if it cannot be. Blocks for the time of one small file."""
        promotion = replace(promotion, wall_ms=self._parts.environment.clock.wall_ms())
        log.warning(
            "promoted: data that may be older than that of another node counts as the newest",
            extra={
                "node_id": promotion.node_id,
                "before": promotion.before,
                "newest_known": promotion.newest_known,
                "sequence": promotion.sequence,
            },
        )
        self._records.append(promotion)
        self.last = promotion
        try:
            self._parts.watch.accept_next()
            replace_file(self._parts.environment.disk, self._directory, FILE_NAME, encode(self._records))
        except BrokerError as error:
            return error
        except OSError as error:
            return DiskFailed(f"{self._directory}/{FILE_NAME}: {error}")
        return None
