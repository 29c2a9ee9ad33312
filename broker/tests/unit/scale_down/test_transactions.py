"""Prepared transactions that the target knows already (ADR 0070)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.cluster.scale_down.transactions import BranchMoves
from understudy.cluster.scale_down.work import Ask
from understudy.errors import RemoteProtocolError, XaCode
from understudy.ids import Xid
from understudy.wire.core import packets

XID = Xid(1, b"branch", b"q")


class Resources:
    """One prepared branch without messages."""

    def __init__(self, *, begun: bool = False) -> None:
        self.begun = begun
        """Whether the transfer of the branch to the target has begun before."""
        self.branch = SimpleNamespace(xid=XID, transaction=SimpleNamespace(content=lambda: ([], {})))
        self.handed_over: list[object] = []

    def prepared(self) -> list[Any]:
        return [self.branch]

    def may_be_at(self, xid: Xid, node_id: str) -> bool:
        assert (xid, node_id) == (XID, "target")
        return self.begun

    def hand_over(self, branch: object) -> None:
        self.handed_over.append(branch)


def move(resources: Resources, in_doubt: tuple[Xid, ...]) -> None:
    """Move the branch to a target that has one of its name; ``in_doubt``: those that are prepared there."""
    none: Any = None
    moves = BranchMoves(none, none, SimpleNamespace(progress=0), none)  # type: ignore[arg-type]
    work = moves.move(resources, "target")  # type: ignore[arg-type]
    wait = next(work)
    assert isinstance(wait, Ask)
    assert wait.packet == packets.XaInDoubt()
    if resources.begun:
        with pytest.raises(StopIteration):
            work.send(packets.XaInDoubtResponse(in_doubt))
        return
    wait = work.send(packets.XaInDoubtResponse(()))
    assert isinstance(wait, Ask)
    assert wait.packet == packets.XaStart(XID)
    wait = work.send(packets.XaResponse(True, XaCode.DUPLICATE_XID, "known"))
    assert isinstance(wait, Ask)
    assert wait.packet == packets.XaInDoubt()
    with pytest.raises(StopIteration):
        work.send(packets.XaInDoubtResponse(in_doubt))


def test_a_branch_that_is_prepared_there_is_not_sent_again() -> None:
    resources = Resources()
    move(resources, (XID,))
    assert resources.handed_over == [resources.branch]


def test_a_branch_that_was_moved_before_is_not_sent_again() -> None:
    """The target has prepared the branch, or decided it since: it lists both to a node of the cluster."""
    resources = Resources(begun=True)
    move(resources, (XID,))
    assert resources.handed_over == [resources.branch]


def test_an_unfinished_branch_of_an_earlier_connection_is_no_prepared_one() -> None:
    """The target rolls it back when it notices the loss of that connection: the branch has to stay here."""
    resources = Resources()
    with pytest.raises(RemoteProtocolError, match="earlier connection"):
        move(resources, ())
    assert resources.handed_over == []
