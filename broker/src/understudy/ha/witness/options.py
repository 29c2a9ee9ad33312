"""Options of the client of a witness, and the configuration that the clients of a group share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from understudy.dataclass import dataclass

#: The client ends a lease earlier than the witness by this part of it, for clocks of different rates.
MARGIN_DIVISOR: Final = 20


class GroupConfiguration:
    """The newest configuration of a group of witnesses that one node has heard of (ADR 0117)."""

    def __init__(self) -> None:
        """Begin without a known configuration."""
        self.newest = 0

    def note(self, configuration: int) -> bool:
        """Take the configuration of a member that has answered.

        Returns:
            Whether its answer counts; that of a member that was replaced does not.
        """
        self.newest = max(self.newest, configuration)
        return 0 < configuration == self.newest


@dataclass(frozen=True, slots=True)
class WitnessClientOptions:
    """Configuration of the client."""

    addresses: Sequence[tuple[str, int]]
    """Addresses of one witness, tried in turn."""
    secret: bytes = field(repr=False)
    name: str
    """Name of this node, for logs and status of the witness."""
    lease_ms: int = 6_000
    identity: bytes | None = None
    """Identity of the witness; None: the first one that answers in this process."""
    group: GroupConfiguration | None = None
    """Shared by the clients of the members of a group; None: a single witness."""

    @property
    def of_group(self) -> bool:
        """Whether the witness is one of a group."""
        return self.group is not None

    @property
    def proof_ms(self) -> int:
        """Time after the sending of a request for which its answer proves a lock."""
        return self.lease_ms - self.lease_ms // MARGIN_DIVISOR
