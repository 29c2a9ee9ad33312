"""Identifier types: plain values with names, so that signatures say which one is meant."""

from __future__ import annotations

import uuid
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", str)
"""UUID text of a store; belongs to the data, not to the process: a pair shares one."""

Epoch = NewType("Epoch", int)
"""Number of an activation; it rises by one at every activation of a node."""

Sequence = NewType("Sequence", int)
"""Position of a record in the log of one node; never reused, never goes back."""

MessageId = NewType("MessageId", int)
QueueId = NewType("QueueId", int)
AddressId = NewType("AddressId", int)
TransactionId = NewType("TransactionId", int)


class Xid(NamedTuple):
    """Name of a branch of an XA transaction (X/Open XA)."""

    format_id: int
    global_transaction_id: bytes
    """At most 64 bytes."""
    branch_qualifier: bytes
    """At most 64 bytes."""


#: Bits of a message id below the epoch: 2**40 messages per activation.
EPOCH_SHIFT = 40


def first_id_of_epoch(epoch: int) -> int:
    """The first message, queue or transaction id of an activation.

    Ids are ``epoch << 40 | counter``: unique across restarts and failovers without a record
    of their own, because the epoch rises with every activation (docs/build/journal-format.md).
    """
    return (epoch << EPOCH_SHIFT) | 1


def uuid_text(sixteen_bytes: bytes) -> str:
    """Canonical UUID text of 16 raw bytes."""
    return str(uuid.UUID(bytes=sixteen_bytes))


def uuid_bytes(text: str) -> bytes:
    """The 16 raw bytes of a UUID text; raises ValueError if it is none."""
    return uuid.UUID(text).bytes


def coordination_node_id(coordination_id: str) -> NodeId:
    """The node id of peers with this coordination-id: its first 16 bytes, ``-`` as ``.``, filled up with ``+``.

    Source: artemis-ha s. 1.
    """
    raw = coordination_id.replace("-", ".").encode("ascii", "replace")[:16].ljust(16, b"+")
    return NodeId(uuid_text(raw))
