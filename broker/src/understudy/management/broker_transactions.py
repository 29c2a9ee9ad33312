"""Operations of ``broker`` on prepared XA branches, whose transaction manager may never come back.

A branch is named as Artemis names it: Base64 of branch qualifier, global transaction id and format
id (four bytes, the lowest first). A decision of an operator is remembered until the manager has
asked for it (``session.resource_registry``).
"""

from __future__ import annotations

import base64
from typing import Final

from understudy.ids import Xid
from understudy.management.invocation import Control
from understudy.management.listing import to_json
from understudy.management.operations import Operation, operation, text
from understudy.session.branch import Kind


def name_of(xid: Xid) -> str:
    """The branch as Base64."""
    number = xid.format_id & 0xFFFF_FFFF
    return base64.b64encode(xid.branch_qualifier + xid.global_transaction_id + number.to_bytes(4, "little")).decode()


def prepared(control: Control) -> list[str]:
    return [f"base64: {name_of(branch.xid)} {branch.xid}" for branch in control.node.services.resources.prepared()]


def prepared_as_json(control: Control) -> str:
    found = [
        {
            "xid_as_base64": name_of(branch.xid),
            "xid_format_id": branch.xid.format_id,
            "xid_global_txid": branch.xid.global_transaction_id.hex(),
            "xid_branch_qual": branch.xid.branch_qualifier.hex(),
        }
        for branch in control.node.services.resources.prepared()
    ]
    return to_json(found) if found else ""


def decided(control: Control, kind: Kind) -> list[str]:
    return [name_of(xid) for xid in control.node.services.resources.heuristic(kind)]


def decide(control: Control, name: str, *, commit: bool) -> bool:
    """Whether there was such a prepared branch."""
    resources = control.node.services.resources
    for branch in list(resources.prepared()):
        if name_of(branch.xid) == name.strip():
            resources.decide(branch.xid, commit=commit)
            return True
    return False


_BRANCH: Final = text("transactionAsBase64")

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("listPreparedTransactions", prepared, "Branches that wait for their outcome."),
    operation("listPreparedTransactionDetailsAsJSON", prepared_as_json, "The same as JSON; empty text without any."),
    operation("listHeuristicCommittedTransactions", lambda c: decided(c, Kind.HEURISTICALLY_COMMITTED),
              "Branches that an operator committed and no manager has forgotten."),
    operation("listHeuristicRolledBackTransactions", lambda c: decided(c, Kind.HEURISTICALLY_ROLLED_BACK),
              "The same for rolled back ones."),
    operation("commitPreparedTransaction", lambda c, name: decide(c, name, commit=True),
              "Commit a branch in place of its manager; whether there was one.", _BRANCH),
    operation("rollbackPreparedTransaction", lambda c, name: decide(c, name, commit=False),
              "Roll a branch back in place of its manager; whether there was one.", _BRANCH),
)  # fmt: skip
