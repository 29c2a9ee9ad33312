"""What a policy asks of its node, and what it asks of the lock of a store.

A policy decides *when* a node follows, activates or yields; the node (``runtime.node``) knows
*how*. Calls return at once; the node answers later by firing the event named in each docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.errors import BrokerError

Done = Callable[[BrokerError | None], None]


class ActivationPort(Protocol):
    """The node as a policy sees it."""

    def follow(self) -> None:
        """Read the store as it grows, strictly read-only, so that activating costs the unread tail."""
        ...

    def stop_following(self) -> None: ...

    def announce(self) -> None:
        """Tell the active node, as long as it is there, that we stand by (artemis-ha s. 2.2, 2.3)."""
        ...

    def withdraw(self) -> None:
        """Stop announcing."""
        ...

    def activate(self, done: Done) -> None:
        """Finish reading, start a new epoch, load, open acceptors last; then ``done``."""
        ...

    def deactivate(self, done: Done) -> None:
        """Close acceptors and connections, finish and close the store; then ``done``."""
        ...

    def peer_is_announced(self) -> bool:
        """Another node stands by for our node id right now (needed before failing back to it)."""
        ...

    def stopped(self, error: BrokerError | None) -> None:
        """The policy has ended: cleanly, or because of ``error``. Nothing is called after it."""
        ...


class StoreLock(Protocol):
    """The lock files of one store (artemis-ha s. 2.1); ``store.node_lock`` implements it.

    All raise ``DiskFailed`` when the store cannot be asked.
    """

    def read_state(self) -> str:
        """``0`` never active, ``N`` not started, ``L`` owned, ``F`` wanted by a primary, ``P`` stopped."""
        ...

    def write_state(self, state: str) -> None: ...

    def touch(self) -> None:
        """Make any other node that believes it owns the store find out (artemis-ha s. 2.3, 2.6)."""
        ...

    def try_primary(self) -> bool: ...

    def release_primary(self) -> None: ...

    def try_backup(self) -> bool: ...

    def release_backup(self) -> None: ...

    def lost(self) -> str | None:
        """Why the primary lock is no longer provably ours; None when it is.

        Raises:
            DescriptorsExhausted: no file could be opened to find out.
        """
        ...
