"""The operations of ``divert.<name>`` (Artemis: DivertControl), and those of ``broker`` that make and
destroy diverts.

A divert made here lasts through restarts and takeovers; one of broker.xml is made anew by each
activation. Classes that transform messages cannot be loaded, so naming one is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from understudy.config.model import DivertConfiguration, DivertRouting
from understudy.errors import ManagementError, ResourceNotFound
from understudy.management.invocation import Control, ManagedNode, Requester
from understudy.management.operations import Operation, Operations, flag, operation, text
from understudy.routing.divert import Divert

_REQUIRED: Final = ("name", "address", "forwarding-address")
_TEXTS: Final = (*_REQUIRED, "routing-name", "filter-string", "routing-type")


@dataclass(frozen=True, slots=True)
class DivertControl(Control):
    """One divert in the hands of one requester."""

    divert: Divert


class DivertControls:
    """Finds diverts by name."""

    operations = Operations(
        "divert",
        "A divert, by its name.",
        [
            operation("getUniqueName", lambda c: c.divert.name, "Its name."),
            operation("getRoutingName", lambda c: c.divert.routing_name, "Diverts that share it take turns."),
            operation("getAddress", lambda c: c.divert.configuration.address, "Whose messages it takes."),
            operation("getForwardingAddress", lambda c: c.divert.configuration.forwarding_address, "Where they go."),
            operation("getFilter", lambda c: c.divert.configuration.filter, "Which it takes."),
            operation(
                "isExclusive", lambda c: c.divert.configuration.exclusive, "Whether it moves instead of copying."
            ),
            operation("getRoutingType", lambda c: c.divert.configuration.routing_type.name, "Of what it forwards."),
            operation("getTransformerClassName", lambda control: None, "Classes cannot be loaded here."),
            operation("getTransformerPropertiesAsJSON", lambda control: "{}", "For the same reason."),
            operation("isRetroactiveResource", lambda control: False, "Retroactive diverts do not exist here."),
        ],
    )

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> DivertControl:
        divert = node.services.post_office.diverts.by_name.get(name)
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
    """Raises DivertExists, ManagementError, InvalidQueueConfiguration, InvalidSelector, DiskFull."""
    if transformer:
        raise ManagementError(f"divert {name!r}: classes such as {transformer!r} cannot be loaded here")
    try:
        kind = DivertRouting[(routing_type or "STRIP").upper()]
    except KeyError as error:
        raise ManagementError(f"divert {name!r}: unknown routing type {routing_type!r}") from error
    control.node.services.post_office.diverts.create(
        DivertConfiguration(
            name=name,
            address=address,
            forwarding_address=forwarding_address,
            routing_name=routing_name or None,
            filter=selector or None,
            exclusive=exclusive,
            routing_type=kind,
        )
    )


def create_divert_from_json(control: Control, text_of_it: str) -> None:
    """Raises as ``create_divert``."""
    try:
        given = json.loads(text_of_it)
    except (ValueError, RecursionError) as error:
        raise ManagementError(f"the divert configuration is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ManagementError("the divert configuration is no JSON object")
    given = {key: value for key, value in given.items() if value is not None}
    exclusive = given.pop("exclusive", False)
    unknown = given.keys() - set(_TEXTS)
    if unknown or str(exclusive).lower() not in ("true", "false"):
        raise ManagementError(f"divert configuration: {', '.join(sorted(unknown)) or 'exclusive'} cannot be given so")
    if not all(isinstance(value, str) for value in given.values()) or not set(_REQUIRED) <= given.keys():
        raise ManagementError(f"divert configuration: texts are needed, and {', '.join(_REQUIRED)}")
    create_divert(
        control,
        given["name"],
        given.get("routing-name"),
        given["address"],
        given["forwarding-address"],
        str(exclusive).lower() == "true",
        given.get("filter-string"),
        None,
        given.get("routing-type"),
    )


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
    operation("getDivertNames", lambda c: list(c.node.services.post_office.diverts.by_name), "Names of all diverts."),
    operation("listDivertNames", lambda c: list(c.node.services.post_office.diverts.by_name), "As getDivertNames."),
    operation("createDivert", create_divert, "Make a divert that lasts.", *_DIVERT),
    operation("createDivert", create_divert, "The same with a routing type.", *_DIVERT, text("routingType")),
    operation("createDivert", create_divert_from_json, "The same from JSON.", text("divertConfiguration")),
    operation(
        "destroyDivert",
        lambda c, name: c.node.services.post_office.diverts.destroy(name),
        "Destroy a divert.",
        text("name"),
    ),
)
