"""Rules for a bridge beyond the types of its values, whether it comes from broker.xml or from management."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from understudy.config.bridge import BridgeConfiguration
from understudy.dataclass import dataclass
from understudy.limits import BRIDGE_CONCURRENCY_MAX

#: These numbers are integers of 32 bits in Artemis; credit is one in CORE packets, too.
_INT_MAX: Final = (1 << 31) - 1

Place = tuple[str, int]
"""Host and port of a connector."""


@dataclass(frozen=True, slots=True)
class BridgeFault:
    """A value of a bridge that cannot be used."""

    element: str | None
    """Name of the element; None: of the bridge as a whole."""
    text: str
    hint: str | None = None


def bridge_faults(
    bridge: BridgeConfiguration,
    place_of: Callable[[str], Place],
    own: frozenset[Place],
    *,
    has_cluster_password: bool,
) -> Iterator[BridgeFault]:
    """Faults of a bridge whose connectors exist.

    Args:
        place_of: Host and port of a connector, by its name.
        own: Host and port of each acceptor of this broker.
        has_cluster_password: Whether the broker has a cluster password of its own.
    """
    yield from _target(bridge, place_of, own)
    target = bridge.target
    if (target.user is None) != (target.password is None):
        yield BridgeFault(None, "user and password are given together or not at all")
    if target.discovery_group is not None and not has_cluster_password:
        hint = "discovered brokers prove the same cluster-password, whose default is public; or name static-connectors"
        yield BridgeFault(None, "a bridge to discovered brokers needs a cluster-password of this broker", hint)
    yield from _numbers(bridge)


def _target(bridge: BridgeConfiguration, place_of: Callable[[str], Place], own: frozenset[Place]) -> (
    Iterator[BridgeFault]
):  # fmt: skip
    target = bridge.target
    if not target.static_connectors and target.discovery_group is None:
        yield BridgeFault(None, "static-connectors or discovery-group-ref is required")
    if target.static_connectors and target.discovery_group is not None:
        yield BridgeFault(None, "static-connectors and discovery-group-ref exclude each other")
    if target.discovery_group is not None and target.user is not None:
        yield BridgeFault(
            None,
            "user and password are not sent to discovered brokers: every host of the network can broadcast",
            "without user and password both brokers prove the cluster-password",
        )
    if bridge.forwarding_address not in (None, bridge.queue_name):
        # whether another address leads back to the queue is known to the running broker only
        return
    for name in target.static_connectors:
        host, port = place_of(name)
        if (host.lower(), port) in own:
            yield BridgeFault(
                None,
                f"connector {name!r} is an acceptor of this broker, to which each message would come back",
                "set another forwarding-address, or a connector of another broker",
            )


def _numbers(bridge: BridgeConfiguration) -> Iterator[BridgeFault]:
    connection = bridge.connection
    for element, value, may_be_off in (
        ("retry-interval", connection.retry_interval_ms, False),
        ("max-retry-interval", connection.max_retry_interval_ms, False),
        ("pending-ack-timeout", connection.pending_ack_timeout_ms, False),
        ("min-large-message-size", bridge.min_large_message_size_bytes, False),
        ("connection-ttl", connection.connection_ttl_ms, True),
        ("check-period", connection.check_period_ms, True),
        ("confirmation-window-size", bridge.confirmation_window_size_bytes, True),
        ("producer-window-size", bridge.producer_window_size_bytes, True),
    ):
        if not 1 <= value <= _INT_MAX and not (may_be_off and value == -1):
            yield BridgeFault(element, f"{value}: 1 to {_INT_MAX}{' or -1' if may_be_off else ''}")
    if not connection.retry_interval_multiplier > 0:
        yield BridgeFault("retry-interval-multiplier", f"{connection.retry_interval_multiplier} is not above 0")
    if not 1 <= bridge.concurrency <= BRIDGE_CONCURRENCY_MAX:
        yield BridgeFault("concurrency", f"{bridge.concurrency}: 1 to {BRIDGE_CONCURRENCY_MAX}")
