"""The format version of the log that a node writes, and the nodes that must be able to read it (ADR 0088).

A record that needs a later format version than the log has is refused while a passive node of an earlier version
follows this one. Otherwise the log gets that version, in a new segment; an earlier version then refuses the log, with
the number, wherever it opens it. A kind of record that the log had when this node became active needs no other
version: whatever follows the log reads it already.

Not here: the versions (``log.format_version``), what passive nodes announce (``cluster.membership.passive_formats``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from understudy.dataclass import dataclass
from understudy.errors import StoreFormatHeld
from understudy.store.log.journal import Journal
from understudy.store.setting_record import SettingRecord
from understudy.store.state import StoreState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadableFormat:
    """The format version that the passive nodes which follow a log read."""

    version: int
    """Newest format version that all nodes read."""
    node: str
    """Name of a node that reads no later format version, for errors."""


class LogFormat:
    """The format of the log of one activation."""

    def __init__(self, journal: Journal, state: StoreState) -> None:
        """
        Args:
            journal: Takes the records.
            state: State as the log was read.
        """
        self._journal = journal
        self._state = state
        self._present = {kind for kind, _ in state.settings}
        self.readable: Callable[[], ReadableFormat | None] = lambda: None
        """The format that the passive nodes that follow now can read; None: there is none."""

    @property
    def version(self) -> int:
        """Lowest version that a reader of the log must know."""
        return self._state.format_version

    def prepare(self, record: SettingRecord) -> None:
        """Give the log the format version that the next record needs.

        Raises:
            StoreFormatHeld: a passive node does not read that version.
            StoreError: the journal has failed or is closed, or the disk is full.
        """
        needed = record.scope.format_version
        if needed <= self._state.format_version or record.scope in self._present:
            return
        readable = self.readable()
        if readable is not None and readable.version < needed:
            raise StoreFormatHeld(
                f"a record of kind {record.scope} needs format version {needed} of the log; {readable.node} is of an"
                f" earlier version of Understudy and reads up to {readable.version}",
                hint="update that node first",
            )
        self._journal.use_format(needed)
        self._state.format_version = needed
        log.info(
            "the log has another format version: earlier versions of Understudy cannot read it any more",
            extra={"format_version": needed, "reason": f"record of kind {record.scope}"},
        )
