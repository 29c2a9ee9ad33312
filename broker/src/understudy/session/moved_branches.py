"""Prepared XA branches that a scale-down moves, remembered in the logs of both nodes (ADR 0110).

The node that had a branch remembers where it went. A transaction manager that decides it there must not hear that it
is unknown: after a lost connection that means "already decided", and it would forget a branch that waits at the target.

The target remembers that a branch came. If the node before it was killed before its log had the end of the move, it
sends the branch again, perhaps when it has been decided here: a branch that came once is not taken again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from understudy.errors import StoreFormatHeld
from understudy.ids import Xid
from understudy.limits import XA_BRANCHES_MAX
from understudy.routing.post_office import PostOffice
from understudy.session.branch import Kind, decode_name, encode_name
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.store.state import StoreState

log = logging.getLogger(__name__)

_KIND: Final = SettingKind.MOVED_BRANCH
_NODE: Final = "node"


class MovedBranches:
    """The moved branches of one node: the newest ``XA_BRANCHES_MAX``, through restarts and takeovers."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._nodes: dict[Xid, str] = {}
        """Node id of the target; empty: the branch came here. The newest at the end."""

    def __contains__(self, xid: Xid) -> bool:
        return xid in self._nodes

    def __iter__(self) -> Iterator[Xid]:
        return iter(self._nodes)

    def node_of(self, xid: Xid) -> str | None:
        """Node id of the target to which a branch was moved; None: it was not."""
        return self._nodes.get(xid) or None

    def has_come(self, xid: Xid) -> bool:
        """Whether another node has moved a branch here, where it may have been decided since."""
        return self._nodes.get(xid) == ""

    def goes(self, xid: Xid, node_id: str) -> None:
        """A branch may be at another node from now on."""
        self._add(xid, node_id)

    def came(self, xid: Xid) -> None:
        """Note that this node has a prepared branch of another node."""
        self._add(xid, "")

    def _add(self, xid: Xid, node_id: str) -> None:
        try:
            self._office.store.store_setting(SettingRecord(_KIND, _match(xid), {_NODE: node_id}))
        except StoreFormatHeld as held:
            log.warning("the target of a prepared transaction is not remembered", extra={"reason": str(held)})
            return
        self._nodes.pop(xid, None)
        self._nodes[xid] = node_id
        if len(self._nodes) > XA_BRANCHES_MAX:
            self.remove(next(iter(self._nodes)))

    def decided(self, xid: Xid) -> None:
        """A branch is decided at this node, which had begun to move it and has given up."""
        if self.node_of(xid) is not None:
            self.remove(xid)

    def remove(self, xid: Xid) -> bool:
        """Forget a branch: it is here again, or its manager does not need it. Whether it was remembered."""
        known = self._nodes.pop(xid, None) is not None
        if known:
            self._office.store.store_setting(SettingRecord(_KIND, _match(xid), None))
        return known

    def restore(self, state: StoreState) -> None:
        """Take over what the log says; once.

        Raises:
            StoreError: the name of one cannot be read.
        """
        for record in state.settings.values():
            if record.scope is _KIND and record.values is not None:
                xid = decode_name(bytes.fromhex(record.match))[1]
                self._nodes[xid] = str(record.values[_NODE])


def _match(xid: Xid) -> str:
    return encode_name(Kind.BRANCH, xid).hex()
