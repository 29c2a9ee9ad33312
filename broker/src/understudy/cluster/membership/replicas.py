"""The port between the connection of a replica and the replication of the active node (ADR 0057).

``protocols.core.replication_channel`` implements ``ReplicaChannel``, ``replication.active_link`` implements
``Replicas``.
"""

from __future__ import annotations

from typing import Protocol

from understudy.wire.core import packets


class ReplicaChannel(Protocol):
    """The channel as the active node sees it."""

    @property
    def peer(self) -> str:
        """Address of the replica."""
        ...

    def silent_ms(self) -> int:
        """Time since the first call after the last data of the replica, pings included."""
        ...

    def send(self, packet: packets.Packet) -> None:
        """Send a packet to the backup."""

    def flush(self) -> None:
        """Write the packets sent so far now: the replica works while the disk of this node does."""

    def close(self) -> None:
        """Close the connection once everything is written."""


class Replicas(Protocol):
    """Takes the replica of this node; None in a node without replication."""

    def register(self, registration: packets.ReplicaRegistration, connection: ReplicaChannel) -> None:
        """Answer a backup that asks to become the replica."""

    def received(self, connection: ReplicaChannel, packet: packets.Packet) -> None:
        """Take a further packet of a registered backup. Raises BrokerError: the connection must be closed."""

    def connection_lost(self, connection: ReplicaChannel, reason: str) -> None:
        """The connection of a backup that registered has ended."""
