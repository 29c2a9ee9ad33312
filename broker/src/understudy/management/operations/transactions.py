"""Operations of ``broker`` on prepared XA branches whose transaction manager does not end them.

A branch has the name that Artemis uses: Base64 of branch qualifier, global transaction id and format
id (four bytes, the lowest first). A heuristic decision of an operator is kept until the manager has
read it (``session.resource_manager``).
"""

from __future__ import annotations

from typing import Final

from understudy.management.json_text import to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, operation, text
from understudy.management.snapshot.clients import branch_name
from understudy.session.branch import Kind


def prepared(control: Control) -> list[str]:
    """Prepared branches as text."""
    return [
        f"base64: {branch_name(branch.xid)} {branch.xid}"
        for branch in control.node.services.sessions.resources.prepared()
    ]


def prepared_as_json(control: Control) -> str:
    """Prepared XA branches with their messages, as JSON."""
    found = [
        {
            "xid_as_base64": branch_name(branch.xid),
            "xid_format_id": branch.xid.format_id,
            "xid_global_txid": branch.xid.global_transaction_id.hex(),
            "xid_branch_qual": branch.xid.branch_qualifier.hex(),
        }
        for branch in control.node.services.sessions.resources.prepared()
    ]
    return to_json(found) if found else ""


def decided(control: Control, kind: Kind) -> list[str]:
    """Branches with a heuristic outcome of this kind."""
    return [branch_name(xid) for xid in control.node.services.sessions.resources.heuristic(kind)]


def decide(control: Control, name: str, *, commit: bool) -> bool:
    """Commit or roll back a prepared branch. Whether there was one."""
    resources = control.node.services.sessions.resources
    for branch in list(resources.prepared()):
        if branch_name(branch.xid) == name.strip():
            resources.decide(branch.xid, commit=commit)
            return True
    return False


_BRANCH: Final = text("transactionAsBase64")

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("listPreparedTransactions", prepared, "Prepared branches."),
    operation("listPreparedTransactionDetailsAsJSON", prepared_as_json, "The same as JSON; empty if there are none."),
    operation("listHeuristicCommittedTransactions", lambda c: decided(c, Kind.HEURISTICALLY_COMMITTED),
              "Heuristically committed branches, until forgotten.", returns=list[str]),
    operation("listHeuristicRolledBackTransactions", lambda c: decided(c, Kind.HEURISTICALLY_ROLLED_BACK),
              "The same for those rolled back.", returns=list[str]),
    operation("commitPreparedTransaction", lambda c, name: decide(c, name, commit=True),
              "Commit a branch heuristically; whether there was one.", _BRANCH, returns=bool),
    operation("rollbackPreparedTransaction", lambda c, name: decide(c, name, commit=False),
              "Roll a branch back heuristically; whether there was one.", _BRANCH, returns=bool),
)  # fmt: skip
