"""The operations of ``bridge.<name>`` (Artemis: BridgeControl)."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.bridges.bridge import Bridge
from understudy.errors import IllegalState, ManagementError, ResourceNotFound
from understudy.management.invocation import Control, ManagedNode, Requester
from understudy.management.listing import to_json
from understudy.management.operations import Operations, operation


@dataclass(frozen=True, slots=True)
class BridgeControl(Control):
    """One bridge."""

    bridge: Bridge

    def start(self) -> None:
        """Raises ManagementError: the bridge is pausing or stopping."""
        try:
            self.bridge.start()
        except IllegalState as error:
            raise ManagementError(str(error)) from error

    def stop(self) -> None:
        """Raises ManagementError: the bridge is pausing."""
        try:
            self.bridge.stop()
        except IllegalState as error:
            raise ManagementError(str(error)) from error

    def pause(self) -> None:
        """Raises ManagementError: the bridge is stopped or stopping."""
        try:
            self.bridge.pause()
        except IllegalState as error:
            raise ManagementError(str(error)) from error

    def metrics(self) -> dict[str, int]:
        """Counters with the names of Artemis."""
        counts = self.bridge.counts
        return {"messagesPendingAcknowledgement": counts.forwarded, "messagesAcknowledged": counts.acknowledged}


def bridge_names(control: Control) -> list[str]:
    """Names of all bridges."""
    bridges = control.node.bridges
    return list(bridges.by_name) if bridges is not None else []


class BridgeControls:
    """Controls of bridges, by name."""

    operations = Operations(
        "bridge",
        "A core bridge, by name.",
        [
            operation("getName", lambda c: c.bridge.name, "Its name."),
            operation("getQueueName", lambda c: c.bridge.configuration.queue_name, "Queue it consumes."),
            operation("getForwardingAddress", lambda c: c.bridge.configuration.forwarding_address, "Target address."),
            operation("getFilterString", lambda c: c.bridge.configuration.filter, "Selector of the messages."),
            operation(
                "getTransformerClassName", lambda c: c.bridge.configuration.transformer_class_name, "Its transformer."
            ),
            operation(
                "getTransformerPropertiesAsJSON",
                lambda c: to_json(dict(c.bridge.configuration.transformer_properties)),
                "Properties that the transformer adds, as JSON.",
            ),
            operation(
                "getStaticConnectors", lambda c: list(c.bridge.configuration.target.static_connectors), "Connectors."
            ),
            operation(
                "getDiscoveryGroupName", lambda c: c.bridge.configuration.target.discovery_group, "Discovery group."
            ),
            operation("getRetryInterval", lambda c: c.bridge.configuration.connection.retry_interval_ms, "ms."),
            operation(
                "getRetryIntervalMultiplier",
                lambda c: c.bridge.configuration.connection.retry_interval_multiplier,
                "Growth of the interval.",
            ),
            operation("getMaxRetryInterval", lambda c: c.bridge.configuration.connection.max_retry_interval_ms, "ms."),
            operation(
                "getReconnectAttempts",
                lambda c: c.bridge.configuration.connection.reconnect_attempts,
                "Attempts after a lost connection; -1: no limit.",
            ),
            operation(
                "isUseDuplicateDetection", lambda c: c.bridge.configuration.use_duplicate_detection, "Whether it is."
            ),
            operation("isHA", lambda c: c.bridge.configuration.target.ha, "Whether it follows failovers."),
            operation("isStarted", lambda c: c.bridge.started, "Whether it is started; it may not be connected."),
            operation("isConnected", lambda c: c.bridge.connected, "Whether it has a session at the target."),
            operation(
                "getMessagesPendingAcknowledgement",
                lambda c: c.bridge.counts.forwarded,
                "Messages sent since the activation, as in Artemis those included that are confirmed.",
            ),
            operation(
                "getMessagesAcknowledged", lambda c: c.bridge.counts.acknowledged, "Messages that the target confirmed."
            ),
            operation("getMetrics", BridgeControl.metrics, "Both counters."),
            operation("start", BridgeControl.start, "Start it."),
            operation("stop", BridgeControl.stop, "Stop it after the messages under way."),
            operation("pause", BridgeControl.pause, "Pause it after the messages under way."),
            operation("resume", BridgeControl.start, "As start."),
        ],
    )

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> BridgeControl:
        bridge = node.bridges.by_name.get(name) if node.bridges is not None else None
        if bridge is None:
            raise ResourceNotFound(f"no resource 'bridge.{name}'")
        return BridgeControl(node, requester, bridge)
