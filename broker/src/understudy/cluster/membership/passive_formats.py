"""The passive nodes that follow the log of an active node, and the format versions that they read (ADR 0088).

A replica states its version when it registers, a backup of a shared store when it announces itself. A node of an
Understudy from before ADR 0088 states none; it is taken for one that reads the first version only.

Not here: when the log gets a later version (``store.log_format``).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.store.log.format_version import FORMAT_VERSION_FIRST
from understudy.store.log_format import ReadableFormat


class PassiveFormats:
    """The formats that the passive nodes of one active node can read."""

    def __init__(self) -> None:
        """Begin without a following node."""
        self.log_version: Callable[[], int] = lambda: FORMAT_VERSION_FIRST
        """Format version of the log of this node."""
        self._following: dict[object, ReadableFormat] = {}

    def follows(self, key: object, node: str, version: int) -> None:
        """A passive node follows the log from now on.

        Args:
            key: Connection of the node; a second call for it replaces the first one.
            node: Used for errors: name or place of the node.
            version: Newest format version that it reads.
        """
        self._following[key] = ReadableFormat(version, node)

    def left(self, key: object) -> None:
        """Forget the passive node whose connection ended. Nothing if it did not follow."""
        self._following.pop(key, None)

    def lowest(self) -> ReadableFormat | None:
        """The lowest version among the nodes that follow; None: no node follows."""
        return min(self._following.values(), key=lambda each: each.version, default=None)

    def refusal(self, version: int) -> str | None:
        """Reason why a node that reads up to a version cannot follow, or None."""
        written = self.log_version()
        if version >= written:
            return None
        return (
            f"the log has format version {written}, this backup is of an earlier version of Understudy and reads up to"
            f" {version}: update it"
        )
