"""The operations of ``divert.<name>`` (Artemis: DivertControl), and those of ``broker`` that create and
destroy diverts.

A divert created here survives restarts and takeovers; a divert of broker.xml is created by each
activation. The only transformer is the built-in one that adds headers; other transformer classes
are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import DivertNotFound, ManagementError, ResourceNotFound
from understudy.management.json_text import parse_json
from understudy.management.operations.invocation import Control, ManagedNode, Requester
from understudy.management.operations.table import Operation, Operations, flag, mapping, operation, text
from understudy.routing.addresses.divert import Divert
from understudy.terms import ADD_HEADERS_TRANSFORMER, DivertDefinition, DivertRouting

_REQUIRED: Final = ("name", "address", "forwarding-address")
_TEXTS: Final = (*_REQUIRED, "routing-name", "filter-string", "routing-type")


@dataclass(frozen=True, slots=True)
class DivertControl(Control):
    """Attributes of one divert, with the permissions of one requester."""

    divert: Divert

    @property
    def retroactive(self) -> bool:
        """Whether the divert is the internal one of a retroactive address."""
        known = self.node.services.sessions.post_office.directory.retroactive
        return known is not None and known.is_resource(self.divert.name)


class DivertControls:
    """Attributes of every divert, by the name of the divert."""

    operations = Operations(
        "divert",
        "A divert, by name.",
        [
            operation("getUniqueName", lambda c: c.divert.name, "Its name.", returns=str),
            operation(
                "getRoutingName",
                lambda c: c.divert.routing_name,
                "Of diverts with one routing name one is used.",
                returns=str,
            ),
            operation("getAddress", lambda c: c.divert.configuration.address, "Source address.", returns=str),
            operation(
                "getForwardingAddress",
                lambda c: c.divert.configuration.forwarding_address,
                "Target addresses.",
                returns=str,
            ),
            operation(
                "getFilter", lambda c: c.divert.configuration.filter, "Selector of the messages.", returns=str | None
            ),
            operation(
                "isExclusive",
                lambda c: c.divert.configuration.exclusive,
                "Whether messages are moved, not copied.",
                returns=bool,
            ),
            operation(
                "getRoutingType",
                lambda c: c.divert.configuration.routing_type.name,
                "Routing type of copies.",
                returns=str,
            ),
            operation(
                "getTransformerClassName",
                lambda control: None,
                "None: Java classes are not supported.",
                returns=str | None,
            ),
            operation(
                "getTransformerPropertiesAsJSON",
                lambda control: "{}",
                "Empty: Java classes are not supported.",
                returns=str,
            ),
            operation(
                "isRetroactiveResource",
                lambda c: c.retroactive,
                "Whether it serves a retroactive address.",
                returns=bool,
            ),
        ],
    )

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> DivertControl:
        divert = node.services.sessions.post_office.diverts.by_name.get(name)
        if divert is None:
            raise ResourceNotFound(f"no divert {name!r}")
        return DivertControl(node, requester, divert)


def create_divert(
    control: Control,
    name: str,
    routing_name: str | None,
    address: str,
    forwarding_address: str,
    exclusive: bool,
    selector: str | None,
    transformer: str | None,
    routing_type: str | None = None,
) -> None:
    """Create a divert. Raises DivertExists, ManagementError, InvalidQueueConfiguration, InvalidSelector, DiskFull."""
    _check_transformer(name, transformer)
    kind = _routing_of(name, routing_type or "STRIP")
    control.node.services.sessions.post_office.diverts.create(
        DivertDefinition(
            name=name,
            address=address,
            forwarding_address=forwarding_address,
            routing_name=routing_name or None,
            filter=selector or None,
            exclusive=exclusive,
            routing_type=kind,
        )
    )


def _routing_of(name: str, routing_type: str) -> DivertRouting:
    try:
        return DivertRouting[routing_type.upper()]
    except KeyError as error:
        raise ManagementError(f"divert {name!r}: unknown routing type {routing_type!r}") from error


def create_divert_from_json(control: Control, text_of_it: str) -> None:
    """Create a divert from JSON. Raises as ``create_divert``."""
    given = _parsed(text_of_it, _REQUIRED)
    create_divert(
        control,
        given["name"],
        given.get("routing-name"),
        given["address"],
        given["forwarding-address"],
        given.get("exclusive") == "true",
        given.get("filter-string"),
        None,
        given.get("routing-type"),
    )


def _check_transformer(name: str, transformer: str | None) -> None:
    if transformer and transformer != ADD_HEADERS_TRANSFORMER:
        raise ManagementError(f"divert {name!r}: class {transformer!r} is not supported")


def update_divert(
    control: Control,
    name: str,
    forwarding_address: str | None,
    selector: str | None,
    transformer: str | None,
    transformer_properties: Mapping[str, object] | None,
    routing_type: str | None,
) -> None:
    """Change a divert. A null parameter leaves a value unchanged, except for the selector, which it removes, as in
    Artemis. Raises DivertNotFound, ManagementError, and what ``create_divert`` raises.
    """
    _check_transformer(name, transformer)
    diverts = control.node.services.sessions.post_office.diverts
    current = diverts.by_name.get(name)
    if current is None:
        raise DivertNotFound(f"no divert {name!r}")
    before = current.configuration
    wanted = replace(
        before,
        forwarding_address=forwarding_address or before.forwarding_address,
        filter=selector or None,
        routing_type=before.routing_type if routing_type is None else _routing_of(name, routing_type),
        transformer_class_name=transformer or None,
        transformer_properties={key: str(value) for key, value in (transformer_properties or {}).items()}
        if transformer
        else {},
    )
    diverts.change(name, wanted)


def update_divert_from_json(control: Control, text_of_it: str) -> None:
    """Change a divert from JSON; address and exclusiveness cannot change. Raises as ``update_divert``."""
    given = _parsed(text_of_it, ("name",))
    update_divert(
        control,
        given["name"],
        given.get("forwarding-address"),
        given.get("filter-string"),
        None,
        None,
        given.get("routing-type"),
    )


def _parsed(text_of_it: str, required: tuple[str, ...]) -> dict[str, str]:
    """Parse a divert configuration in JSON. Raises ManagementError."""
    try:
        given = parse_json(text_of_it)
    except ValueError as error:
        raise ManagementError(f"the divert configuration cannot be used: {error}") from error
    if not isinstance(given, dict):
        raise ManagementError("the divert configuration is not a JSON object")
    given = {key: value for key, value in given.items() if value is not None}
    exclusive = str(given.pop("exclusive", False)).lower()
    unknown = given.keys() - set(_TEXTS)
    if unknown or exclusive not in ("true", "false"):
        raise ManagementError(f"divert configuration: {', '.join(sorted(unknown)) or 'exclusive'} is not supported")
    if not all(isinstance(value, str) for value in given.values()) or not set(required) <= given.keys():
        raise ManagementError(f"divert configuration: strings are required for {', '.join(required)}")
    return {**given, "exclusive": exclusive}


_DIVERT: Final = (
    text("name"),
    text("routingName", nullable=True),
    text("address"),
    text("forwardingAddress"),
    flag("exclusive"),
    text("filterString", nullable=True),
    text("transformerClassName", nullable=True),
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation(
        "getDivertNames",
        lambda c: list(c.node.services.sessions.post_office.diverts.by_name),
        "Names of all diverts.",
        returns=list[str],
    ),
    operation(
        "listDivertNames",
        lambda c: list(c.node.services.sessions.post_office.diverts.by_name),
        "As getDivertNames.",
        returns=list[str],
    ),
    operation("createDivert", create_divert, "Create a divert.", *_DIVERT),
    operation("createDivert", create_divert, "The same with a routing type.", *_DIVERT, text("routingType")),
    operation("createDivert", create_divert_from_json, "The same from JSON.", text("divertConfiguration")),
    operation(
        "updateDivert",
        update_divert,
        "Change a divert; null keeps a value, but removes the selector.",
        text("name"),
        text("forwardingAddress", nullable=True),
        text("filterString", nullable=True),
        text("transformerClassName", nullable=True),
        mapping("transformerProperties"),
        text("routingType", nullable=True),
    ),
    operation("updateDivert", update_divert_from_json, "The same from JSON.", text("divertConfiguration")),
    operation(
        "destroyDivert",
        lambda c, name: c.node.services.sessions.post_office.diverts.destroy(name),
        "Destroy a divert.",
        text("name"),
        returns=None,
    ),
)
