"""Configuration of core bridges (manual, "Core Bridges"). Not here: reading them (``bridge_reader``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from understudy.config.schema.schema import Defaults
from understudy.dataclass import dataclass

_BRIDGE: Final = Defaults("core/bridges/bridge")


@dataclass(frozen=True, slots=True)
class BridgeTarget:
    """How a bridge reaches its target and logs in there."""

    static_connectors: tuple[str, ...] = ()
    """Names of the connectors, in the order in which they are tried."""
    discovery_group: str | None = None
    """Group that names the targets; None if there are static connectors."""
    ha: bool = _BRIDGE.boolean("ha")
    """Whether the bridge follows a failover of its target to the backup."""
    user: str | None = None
    """User at the target; None: the nodes prove the cluster password to each other instead."""
    password: str | None = field(default=None, repr=False)
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class BridgeConnection:
    """Time limits of the connection of a bridge, and its attempts."""

    check_period_ms: int = _BRIDGE.number("check-period")
    connection_ttl_ms: int = _BRIDGE.number("connection-ttl")
    retry_interval_ms: int = _BRIDGE.number("retry-interval")
    retry_interval_multiplier: float = _BRIDGE.decimal("retry-interval-multiplier")
    max_retry_interval_ms: int = _BRIDGE.number("max-retry-interval")
    initial_connect_attempts: int = _BRIDGE.number("initial-connect-attempts")
    """Attempts after the first one before there was a connection; -1: no limit."""
    reconnect_attempts: int = _BRIDGE.number("reconnect-attempts")
    """Attempts after the first one once a connection was lost; -1: no limit."""
    reconnect_attempts_same_node: int = _BRIDGE.number("reconnect-attempts-same-node")
    """Attempts at the pair of the lost connection before the static connectors, with ``ha``; -1: no limit."""
    pending_ack_timeout_ms: int = _BRIDGE.number("pending-ack-timeout")


@dataclass(frozen=True, slots=True)
class BridgeConfiguration:
    """One bridge: messages of a queue of this node are sent to an address of another broker."""

    name: str
    queue_name: str
    target: BridgeTarget = BridgeTarget()
    connection: BridgeConnection = BridgeConnection()
    forwarding_address: str | None = None
    """Address at the target; None: the address that the message has at this node."""
    filter: str | None = None
    transformer_class_name: str | None = None
    transformer_properties: Mapping[str, str] = field(default_factory=dict)
    """Text properties that the transformer sets in each message."""
    min_large_message_size_bytes: int = _BRIDGE.number("min-large-message-size")
    use_duplicate_detection: bool = _BRIDGE.boolean("use-duplicate-detection")
    confirmation_window_size_bytes: int = _BRIDGE.number("confirmation-window-size")
    """Most bytes that the target has not confirmed; -1: the limit of this broker."""
    producer_window_size_bytes: int = _BRIDGE.number("producer-window-size")
    """Credit asked of the target; -1: no credit is needed."""
    routing_type: str = _BRIDGE.text("routing-type")
    """``PASS``, ``STRIP``, ``ANYCAST`` or ``MULTICAST``."""
    concurrency: int = _BRIDGE.number("concurrency")
    """Number of bridges; more than one get a name with an index."""
