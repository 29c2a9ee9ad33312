"""Interfaces that an HA policy uses: its node, and the lock of a store.

A policy decides *when* a node follows, activates or fails back; the node (``runtime.node``) implements
these steps. Calls return at once; the node later fires the event named in each docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.errors import BrokerError

Done = Callable[[BrokerError | None], None]


class ActivationPort(Protocol):
    """Interface of the node for a policy."""

    def follow(self) -> None:
        """Follow the log, strictly read-only, so that activation has to read only its unread end."""
        ...

    def stop_following(self) -> None:
        """Stop following the log."""

    def announce(self) -> None:
        """Announce this node to the active node as its backup, while there is one (artemis-ha s. 2.2, 2.3)."""
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
        """Whether another node is announced for our node id at present (required before a failback to it)."""
        ...

    def stopped(self, error: BrokerError | None) -> None:
        """The policy has ended: cleanly, or because of ``error``. No further call follows."""
        ...


class StoreLock(Protocol):
    """The lock files of one store (artemis-ha s. 2.1); ``store.node_lock`` implements it.

    All methods raise ``DiskFailed`` if the store cannot be read or written.
    """

    def read_state(self) -> str:
        """``0`` never active, ``N`` not started, ``L`` active, ``F`` requested by a primary, ``P`` stopped."""
        ...

    def write_state(self, state: str) -> None:
        """Write the state byte."""

    def touch(self) -> None:
        """Make another node that believes to own the store notice that it does not (artemis-ha s. 2.3, 2.6)."""
        ...

    def try_primary(self) -> bool:
        """Acquire the primary lock without waiting; whether it is held."""

    def release_primary(self) -> None:
        """Release the primary lock."""

    def try_backup(self) -> bool:
        """Acquire the backup lock without waiting; whether it is held."""

    def release_backup(self) -> None:
        """Release the backup lock."""

    def lost(self) -> str | None:
        """The reason why the primary lock cannot be proved to be ours; None if it is.

        Raises:
            DescriptorsExhausted: no file descriptor was available for the check.
        """
        ...
