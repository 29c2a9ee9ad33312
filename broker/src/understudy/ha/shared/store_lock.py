"""The lock files of a shared store as a policy sees them (artemis-ha s. 2.1); ``store.node_lock`` implements them."""

from __future__ import annotations

from typing import Final, Protocol

#: State bytes: no node has ever been active with the store.
NEVER_OPENED: Final = ("0", "N")
#: State byte of the lock file: an active node has the store, or had it when it crashed.
OWNED: Final = "L"
#: A primary asks for the store.
WANTED: Final = "F"
#: The active node was stopped, and no other was to take over.
STOPPED_CLEANLY: Final = "P"


class StoreLock(Protocol):
    """The lock files of one store.

    All methods raise ``DiskFailed`` if the store cannot be read or written.
    """

    def read_state(self) -> str:
        """``0`` never active, ``N`` not started, ``L`` active, ``F`` requested by a primary, ``P`` stopped."""
        ...

    def write_state(self, state: str) -> None:
        """Write the state byte."""

    def touch(self) -> None:
        """Make another node that believes to own the store notice that it does not (artemis-ha s. 2.3, 2.6). With the
        primary lock; the last release counts no longer.
        """
        ...

    def was_released(self) -> bool:
        """Whether no earlier holder has to be waited for, by the last ``read_state``: none was ever active, or the last
        one has closed the store before it released the lock.
        """
        ...

    def note_release(self) -> None:
        """Note the release of the store, so that the next holder does not wait; called before ``release_primary``."""

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
