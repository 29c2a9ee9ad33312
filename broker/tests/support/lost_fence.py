"""The fence of a node that was replaced while it stood still, and has not noticed yet."""

from __future__ import annotations

from understudy.errors import LockLost
from understudy.routing.post_office import PostOffice


class LostFence:
    """A fence whose lock another node has taken. Implements ``ports.Fence``."""

    proved_until_ms = -1
    proved_at_ms = None

    def why_not_confirm(self) -> Exception:
        return LockLost("taken")


def replace_node(office: PostOffice) -> None:
    """Let another node of the pair have taken over."""
    office.permission.depend_on(LostFence(), lambda error: None)
