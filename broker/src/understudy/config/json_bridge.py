"""A bridge as JSON values, as management creates it and as the log keeps it.

The names are those of Artemis' ``BridgeConfiguration``, which are the elements of ``bridge`` with a few exceptions. A
value is a JSON value or its text. Not here: bridges of broker.xml (``bridge_reader``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any, Final

from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.config.model import Configuration
from understudy.config.reading.bridge_check import bridge_faults
from understudy.config.schema.grammar import Element, parse_value
from understudy.config.schema.schema import element_at
from understudy.errors import InvalidSelector
from understudy.selector import parse_selector
from understudy.terms import ADD_HEADERS_TRANSFORMER

_ROWS: Final = {row.name: row for row in element_at("core/bridges/bridge").children}
#: JSON names that are no element, and the element.
_NAMES: Final = {
    "client-failure-check-period": "check-period",
    "reconnect-attempts-on-same-node": "reconnect-attempts-same-node",
}
#: Names with a form of their own.
_OWN: Final = ("name", "filter-string", "static-connectors", "discovery-group-name", "transformer-configuration")
#: Names of Artemis that mean nothing here: it never uses the first one, and writes the second one itself.
_IGNORED: Final = ("call-timeout", "configuration-managed")
#: Elements that a JSON name replaces.
_REPLACED: Final = frozenset(
    (*_NAMES.values(), "filter", "discovery-group-ref", "transformer", "transformer-class-name", "static-connectors")
)


def parse_bridge(values: Mapping[str, object], configuration: Configuration) -> BridgeConfiguration:
    """Make the bridge that these JSON values describe.

    Args:
        values: Values by JSON name; null and empty texts are the same as absent ones.
        configuration: Configuration of the node, with its connectors and discovery groups.

    Raises:
        ValueError: a name is unknown or a value cannot be used; the text names it.
    """
    given = {name: value for name, value in values.items() if value is not None and value != ""}
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name in _OWN or name in _IGNORED:
            continue
        row = None if name in _REPLACED else _ROWS.get(_NAMES.get(name, name))
        if row is None:
            raise ValueError(f"unknown name {name!r}")
        fields[row.field] = _value(name, row, value)
    for required in ("name", "queue-name"):
        if not isinstance(given.get(required), str):
            raise ValueError(f"{required} is required, as a text")
    bridge = BridgeConfiguration(
        name=str(given["name"]),
        target=BridgeTarget(
            static_connectors=_connectors(given, configuration),
            discovery_group=_group(given, configuration),
            **_of(BridgeTarget, fields),
        ),
        connection=BridgeConnection(**_of(BridgeConnection, fields)),
        filter=_filter(given),
        **_transformer(given),
        **_of(BridgeConfiguration, fields),
    )
    _check(bridge, configuration)
    return bridge


def _of(kind: type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of one dataclass of a bridge."""
    names = {each.name for each in fields_of(kind)}
    return {name: value for name, value in fields.items() if name in names}


def _value(name: str, row: Element, value: object) -> object:
    if isinstance(value, list | dict):
        raise ValueError(f"{name}: {json.dumps(value)} is no {row.kind.value}")
    try:
        return parse_value(str(value), row)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _connectors(given: Mapping[str, object], configuration: Configuration) -> tuple[str, ...]:
    names = _loaded(given, "static-connectors", [])
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError("static-connectors: a list of names is required")
    known = {each.name for each in configuration.connectors}
    for name in names:
        if name not in known:
            raise ValueError(f"static-connectors: there is no connector {name!r}")
    return tuple(names)


def _group(given: Mapping[str, object], configuration: Configuration) -> str | None:
    name = given.get("discovery-group-name")
    if name is None:
        return None
    if name not in {each.name for each in configuration.discovery_groups}:
        raise ValueError(f"discovery-group-name: there is no discovery-group {name!r}")
    return str(name)


def _filter(given: Mapping[str, object]) -> str | None:
    text = given.get("filter-string")
    if text is None:
        return None
    try:
        parse_selector(str(text))
    except InvalidSelector as error:
        raise ValueError(f"filter-string: {error}") from None
    return str(text)


def _transformer(given: Mapping[str, object]) -> dict[str, Any]:
    """The class of the transformer and its properties."""
    found = _loaded(given, "transformer-configuration", None)
    if found is None:
        return {}
    name = found.get("class-name") if isinstance(found, dict) else None
    if not isinstance(found, dict) or name is None or set(found) - {"class-name", "properties"}:
        raise ValueError("transformer-configuration: class-name and properties are required")
    if name != ADD_HEADERS_TRANSFORMER:
        known = f"only {ADD_HEADERS_TRANSFORMER} is built in"
        raise ValueError(f"transformer-configuration: class {name!r} cannot be loaded here; {known}")
    properties = found.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("transformer-configuration: properties are no object")
    return {
        "transformer_class_name": name,
        "transformer_properties": {key: str(value) for key, value in properties.items()},
    }


def _loaded(given: Mapping[str, object], name: str, absent: object) -> object:
    """A value, which may be the text of JSON."""
    value = given.get(name, absent)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: {value!r} is no JSON") from None


def _check(bridge: BridgeConfiguration, configuration: Configuration) -> None:
    def place_of(name: str) -> tuple[str, int]:
        connector = configuration.connector(name)
        return connector.host, connector.port

    own = frozenset((each.host.lower(), each.port) for each in configuration.acceptors)
    for fault in bridge_faults(bridge, place_of, own, has_cluster_password=configuration.has_cluster_password):
        where = f"{fault.element}: " if fault.element else ""
        raise ValueError(f"{where}{fault.text}{f' ({fault.hint})' if fault.hint else ''}")
