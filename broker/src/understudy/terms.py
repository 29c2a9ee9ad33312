"""Terms of messaging that the core, the protocols and the configuration share: routing types, permissions, policies.

They have the names and values of Artemis (manual, address settings, security, diverts). Not here: reading a value
(``config``) and its effect (``routing``, ``session``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, IntEnum
from typing import Final

from understudy import limits
from understudy.dataclass import dataclass


class RoutingType(IntEnum):
    """How an address routes a message to its queues; the numbers are those of the CORE protocol."""

    MULTICAST = 0
    ANYCAST = 1


class AddressFullPolicy(Enum):
    """Behaviour of a full address."""

    DROP = "DROP"
    FAIL = "FAIL"
    PAGE = "PAGE"
    BLOCK = "BLOCK"


class PageFullPolicy(Enum):
    """Behaviour of an address that has reached its page limit."""

    DROP = "DROP"
    FAIL = "FAIL"


class DiskFullPolicy(Enum):
    """Behaviour of an address when the disk is full."""

    DROP = "DROP"
    FAIL = "FAIL"
    BLOCK = "BLOCK"


class SlowConsumerPolicy(Enum):
    """Reaction to a slow consumer."""

    KILL = "KILL"
    NOTIFY = "NOTIFY"


class SlowConsumerUnit(Enum):
    """Units of slow-consumer-threshold."""

    MESSAGES_PER_SECOND = "MESSAGES_PER_SECOND"
    MESSAGES_PER_MINUTE = "MESSAGES_PER_MINUTE"
    MESSAGES_PER_HOUR = "MESSAGES_PER_HOUR"
    MESSAGES_PER_DAY = "MESSAGES_PER_DAY"


class DurabilityContract(Enum):
    """Places that a confirmation waits for while a replica is in sync, beside the local disk (ADR 0065)."""

    LOCAL = "local"
    REPLICA_MEMORY = "replica-memory"
    REPLICA_DISK = "replica-disk"


class MessageLoadBalancing(Enum):
    """Which members of a cluster get messages (manual, clusters)."""

    OFF = "OFF"
    STRICT = "STRICT"
    ON_DEMAND = "ON_DEMAND"
    OFF_WITH_REDISTRIBUTION = "OFF_WITH_REDISTRIBUTION"


class Permission(Enum):
    """Permissions of roles on the addresses that match (manual, security)."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE_ADDRESS = "createAddress"
    DELETE_ADDRESS = "deleteAddress"
    CREATE_DURABLE_QUEUE = "createDurableQueue"
    DELETE_DURABLE_QUEUE = "deleteDurableQueue"
    CREATE_NON_DURABLE_QUEUE = "createNonDurableQueue"
    DELETE_NON_DURABLE_QUEUE = "deleteNonDurableQueue"
    MANAGE = "manage"
    VIEW = "view"
    EDIT = "edit"


ADD_HEADERS_TRANSFORMER: Final = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"
"""Sets properties of messages. Java classes cannot be loaded; this one is built in, under its Artemis name."""


class DivertRouting(Enum):
    """Routing type of the messages that a divert forwards (manual, diverts)."""

    STRIP = "STRIP"
    """The copy has no routing type, so it is routed to queues of both types."""
    PASS = "PASS"
    """The routing type with which the message was sent."""
    ANYCAST = "ANYCAST"
    MULTICAST = "MULTICAST"


@dataclass(frozen=True, slots=True)
class DivertDefinition:
    """Messages copied or moved from one address to others."""

    name: str
    address: str
    forwarding_address: str
    """Address to which messages are forwarded, or several addresses separated by commas."""
    routing_name: str | None = None
    """Name of the divert's binding; by default that of the divert."""
    filter: str | None = None
    exclusive: bool = False
    """Move instead of copy."""
    routing_type: DivertRouting = DivertRouting.STRIP
    transformer_class_name: str | None = None
    """Name of the transformer: ``ADD_HEADERS_TRANSFORMER`` or None, which changes nothing."""
    transformer_properties: Mapping[str, str] = field(default_factory=dict)
    """Text properties that the transformer sets in each copy."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of the resources of one user; -1 is no limit."""

    max_sessions: int = -1
    max_queues: int = -1
    """Queues created by clients of the user."""


@dataclass(frozen=True, slots=True)
class Amqp091Options:
    """Parameters of an acceptor for clients of AMQP 0-9-1."""

    virtual_hosts: tuple[str, ...] = ()
    """Virtual hosts beside the default one; acceptor parameter ``virtualHosts``."""
    known_hosts: bool = True
    """Whether clients learn of other nodes, and those of other nodes of this acceptor; ``knownHosts``."""
    acknowledgement_timeout_ms: int = limits.AMQP091_ACKNOWLEDGEMENT_TIMEOUT_MS
    """Time for the acknowledgement of a delivery, after which its channel is closed; 0: no limit."""
    session_takeover: bool = True
    """Whether a client gets a session of its user that still has a connection; ``sessionTakeover``."""
