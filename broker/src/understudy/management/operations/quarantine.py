"""Operations of ``broker`` on the quarantine: damaged messages and records (ADR 0020)."""

from __future__ import annotations

import logging
from typing import Final

from understudy.errors import ResourceNotFound
from understudy.management.json_text import to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, integer, operation, text
from understudy.routing.lifecycle.quarantine import DamagedMessages

log = logging.getLogger(__name__)


#: Maximum and default number of entries in one answer.
PAGE_ENTRIES: Final = 500


def list_quarantined(control: Control, page: int = 1, page_size: int = PAGE_ENTRIES) -> str:
    """One page of the quarantine's entries as JSON; pages count from 1."""
    size = min(max(page_size, 1), PAGE_ENTRIES)
    start = (max(page, 1) - 1) * size
    return to_json(control.node.services.sessions.post_office.store.quarantine.as_json(start, size))


def drop(control: Control, entry_id: str) -> bool:
    """Remove an entry. Raises ResourceNotFound."""
    store = control.node.services.sessions.post_office.store
    entry = next((each for each in store.quarantine.entries() if each.entry_id == entry_id), None)

    def ended(error: BaseException | None) -> None:
        if error is not None:
            log.error("quarantine entry was not dropped", extra={"entry": entry_id, "error": str(error)})
        elif entry is not None and entry.file_id and not entry.held:
            store.large.release(entry.file_id)

    if entry is None or not store.quarantine.drop(entry_id, ended):
        raise ResourceNotFound(f"no entry {entry_id!r} in the quarantine")
    return True


def _damaged(control: Control) -> DamagedMessages:
    return control.node.services.sessions.post_office.damaged


OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("listQuarantinedMessagesAsJSON", list_quarantined,
              "Damaged messages and records in the quarantine, the oldest first; at most 500."),
    operation("listQuarantinedMessagesAsJSON", list_quarantined, "A page of them; the first page is 1.",
              integer("page"), integer("pageSize")),
    operation("getQuarantinedMessageCount", lambda c: c.node.services.sessions.post_office.store.quarantine.count,
              "Number of entries of the quarantine.", returns=int),
    operation("getMessagesWaitingForOtherNodeCount", lambda c: _damaged(c).waiting_count,
              "Damaged messages that wait for the copy of the other node of the pair.", returns=int),
    operation("quarantineMessagesWaitingForOtherNode", lambda c: _damaged(c).give_up(),
              "Move the damaged messages that wait for the other node to the quarantine; how many.", returns=int),
    operation("dropQuarantinedMessage", drop, "Remove an entry of the quarantine with its bytes.", text("entryId")),
)  # fmt: skip
