"""Operations of ``bridge.<name>`` (Artemis: BridgeControl), and those of ``broker`` that create and destroy bridges."""

from __future__ import annotations

from typing import Final

from understudy.cluster.bridges.bridge import Bridge
from understudy.cluster.bridges.bridges import Bridges
from understudy.dataclass import dataclass
from understudy.errors import IllegalState, ManagementError, ResourceNotFound
from understudy.management.json_text import parse_json, to_json
from understudy.management.operations.invocation import Control, ManagedNode, Requester
from understudy.management.operations.table import (
    Operation,
    Operations,
    Parameter,
    decimal,
    flag,
    integer,
    long,
    mapping,
    operation,
    text,
)


@dataclass(frozen=True, slots=True)
class BridgeControl(Control):
    """Attributes and operations of one bridge."""

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


#: Parameters of ``createBridge`` up to the class of the transformer, by their JSON names; the Java names are those of
#: Artemis.
_FIRST: Final = (
    ("name", text("name")),
    ("queue-name", text("queueName")),
    ("forwarding-address", text("forwardingAddress", nullable=True)),
    ("filter-string", text("filterString", nullable=True)),
)
_RETRIES: Final = (
    ("retry-interval", long("retryInterval")),
    ("retry-interval-multiplier", decimal("retryIntervalMultiplier")),
    ("initial-connect-attempts", integer("initialConnectAttempts")),
    ("reconnect-attempts", integer("reconnectAttempts")),
    ("use-duplicate-detection", flag("useDuplicateDetection")),
    ("confirmation-window-size", integer("confirmationWindowSize")),
)
_WINDOW: Final = (("producer-window-size", integer("producerWindowSize")),)
_REST: Final = (
    ("client-failure-check-period", long("clientFailureCheckPeriod")),
    ("connectors", text("staticConnectorNames")),
    ("use-discovery-group", flag("useDiscoveryGroup")),
    ("ha", flag("ha")),
    ("user", text("user", nullable=True)),
    ("password", text("password", nullable=True)),
)
_CLASS: Final = (("transformer-class-name", text("transformerClassName", nullable=True)),)

Named = tuple[tuple[str, Parameter], ...]


def _create_form(names: Named, doc: str) -> Operation:
    """Declaration of one form of ``createBridge``, with a parameter for each value."""

    def create(control: Control, *values: object) -> None:
        given = dict(zip((name for name, _ in names), values, strict=True))
        discovers, connectors = given.pop("use-discovery-group"), str(given.pop("connectors"))
        if discovers:
            given["discovery-group-name"] = connectors
        else:
            given["static-connectors"] = [each.strip() for each in connectors.split(",") if each.strip()]
        class_name, properties = given.pop("transformer-class-name"), given.pop("transformer-properties", None)
        if class_name:
            given["transformer-configuration"] = {"class-name": class_name, "properties": _properties(properties)}
        _bridges(control).create(given)

    return operation("createBridge", create, doc, *(parameter for _, parameter in names))


def _properties(given: object) -> object:
    """Properties of a transformer, which may be the text of JSON. Raises ManagementError."""
    if not isinstance(given, str):
        return given
    try:
        return parse_json(given or "{}")
    except ValueError as error:
        raise ManagementError(f"transformerPropertiesAsJSON cannot be used: {error}") from error


def create_from_json(control: Control, configuration: str) -> None:
    """Create a bridge from JSON. Raises ManagementError, LimitExceeded, DiskFull."""
    try:
        given = parse_json(configuration)
    except ValueError as error:
        raise ManagementError(f"the bridge configuration cannot be used: {error}") from error
    if not isinstance(given, dict):
        raise ManagementError("the bridge configuration is not a JSON object")
    _bridges(control).create(given)


def _bridges(control: Control) -> Bridges:
    bridges = control.node.bridges
    assert bridges is not None, "an active node has its bridges"
    return bridges


BROKER_OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("createBridge", create_from_json, "Create a bridge from JSON.", text("bridgeConfiguration")),
    _create_form((*_FIRST, *_CLASS, *_RETRIES, *_WINDOW, *_REST), "The same with a parameter for each value."),
    _create_form(
        (*_FIRST, *_CLASS, ("transformer-properties", text("transformerPropertiesAsJSON", nullable=True)),
         *_RETRIES, *_WINDOW, *_REST),
        "The same with properties of the transformer.",
    ),
    _create_form(
        (*_FIRST, *_CLASS, ("transformer-properties", mapping("transformerProperties")),
         *_RETRIES, *_WINDOW, *_REST),
        "The same with properties of the transformer.",
    ),
    _create_form((*_FIRST, *_CLASS, *_RETRIES, *_REST), "The same with the default producer window."),
    operation(
        "addConnector",
        lambda c, name, url: _bridges(c).connectors.add(name, url),
        "Add a connector for bridges, which the next activations have too.",
        text("name"), text("url"), returns=None),
    operation(
        "removeConnector",
        lambda c, name: _bridges(c).connectors.remove(name),
        "Remove a connector that was added.",
        text("name"), returns=None),
    operation("destroyBridge", lambda c, name: _bridges(c).destroy(name), "Stop a bridge and forget it.", text("name"),
              returns=None),
)  # fmt: skip


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
            operation("getName", lambda c: c.bridge.name, "Its name.", returns=str),
            operation("getQueueName", lambda c: c.bridge.configuration.queue_name, "Queue it consumes.", returns=str),
            operation(
                "getForwardingAddress",
                lambda c: c.bridge.configuration.forwarding_address,
                "Target address.",
                returns=str | None,
            ),
            operation(
                "getFilterString",
                lambda c: c.bridge.configuration.filter,
                "Selector of the messages.",
                returns=str | None,
            ),
            operation(
                "getTransformerClassName",
                lambda c: c.bridge.configuration.transformer_class_name,
                "Its transformer.",
                returns=str | None,
            ),
            operation(
                "getTransformerPropertiesAsJSON",
                lambda c: to_json(dict(c.bridge.configuration.transformer_properties)),
                "Properties that the transformer adds, as JSON.",
                returns=str,
            ),
            operation(
                "getStaticConnectors",
                lambda c: list(c.bridge.configuration.target.static_connectors),
                "Connectors.",
                returns=list[str],
            ),
            operation(
                "getDiscoveryGroupName",
                lambda c: c.bridge.configuration.target.discovery_group,
                "Discovery group.",
                returns=str | None,
            ),
            operation(
                "getRetryInterval", lambda c: c.bridge.configuration.connection.retry_interval_ms, "ms.", returns=int
            ),
            operation(
                "getRetryIntervalMultiplier",
                lambda c: c.bridge.configuration.connection.retry_interval_multiplier,
                "Growth of the interval.",
                returns=float,
            ),
            operation(
                "getMaxRetryInterval",
                lambda c: c.bridge.configuration.connection.max_retry_interval_ms,
                "ms.",
                returns=int,
            ),
            operation(
                "getReconnectAttempts",
                lambda c: c.bridge.configuration.connection.reconnect_attempts,
                "Attempts after a lost connection; -1: no limit.",
                returns=int,
            ),
            operation(
                "isUseDuplicateDetection",
                lambda c: c.bridge.configuration.use_duplicate_detection,
                "Whether it is.",
                returns=bool,
            ),
            operation(
                "isHA", lambda c: c.bridge.configuration.target.ha, "Whether it follows failovers.", returns=bool
            ),
            operation(
                "isStarted", lambda c: c.bridge.started, "Whether it is started; it may not be connected.", returns=bool
            ),
            operation(
                "isConnected", lambda c: c.bridge.connected, "Whether it has a session at the target.", returns=bool
            ),
            operation(
                "getMessagesPendingAcknowledgement",
                lambda c: c.bridge.counts.forwarded,
                "Messages sent since the activation, as in Artemis those included that are confirmed.",
                returns=int,
            ),
            operation(
                "getMessagesAcknowledged",
                lambda c: c.bridge.counts.acknowledged,
                "Messages that the target confirmed.",
                returns=int,
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
