"""The definitions that a node has, and those that a broker.xml has.

Addresses and queues that the broker or the use of a client makes are no definitions, exchanges and bindings that end
with the broker are none, and passwords are never among them.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from understudy.cli.managing.definitions.values import KINDS, UNLIMITED, Definitions
from understudy.cli.managing.places import items
from understudy.cli.node.status import Place
from understudy.config.json_settings import json_name, security_values
from understudy.config.model import AddressSettingsConfiguration, Configuration, QueueConfiguration
from understudy.terms import DivertDefinition

#: Kinds that a broker.xml does not have.
NOT_IN_XML: Final = frozenset({"users", "exchanges", "exchange_bindings"})
#: Fields of addresses and queues that were not defined by an operator.
_MADE: Final = ("internal", "temporary", "auto_created")


def of_node(place: Place) -> Definitions:
    """The definitions of an active node. Raises BrokerError."""
    found: Definitions = {name: {} for name in KINDS}
    for setting in items(place, "settings"):
        found[f"{setting['kind']}_settings"][setting["match"]] = setting["values"]
    for each in items(place, "exchanges", "predeclared=false", "durable=true"):
        found["exchanges"][each["name"]] = {field: each[field] for field in KINDS["exchanges"].fields}
    bindings = KINDS["exchange_bindings"]
    for each in items(place, "exchange-bindings", "durable=true"):
        fields = {field: each[field] for field in bindings.fields}
        assert bindings.identify is not None
        found["exchange_bindings"][bindings.identify(fields)] = fields
    for name in ("addresses", "queues", "diverts", "users"):
        for each in items(place, name):
            if not any(each.get(field) for field in _MADE):
                found[name][each["name"]] = {field: _ordered(each[field]) for field in KINDS[name].fields}
    return found


def _ordered(value: object) -> object:
    return sorted(value) if isinstance(value, list) else value


def of_configuration(configuration: Configuration) -> Definitions:
    """The definitions of a broker.xml; fields that it does not have are left out, and it has no users and exchanges."""
    found: Definitions = {name: {} for name in KINDS if name not in NOT_IN_XML}
    for setting in configuration.address_settings:
        found["address_settings"][setting.match] = _setting_values(setting)
    for permissions in configuration.security_settings:
        found["security_settings"][permissions.match] = security_values(permissions.permissions)
    for address in configuration.addresses:
        types = sorted(each.name for each in address.routing_types)
        found["addresses"][address.name] = {"routing_types": types}
        for queue in address.queues:
            found["queues"][queue.name] = _fields("queues", queue)
    for divert in configuration.diverts:
        found["diverts"][divert.name] = {"routing_name": divert.name, "filter": None} | _fields("diverts", divert)
    return found


def _fields(kind: str, source: QueueConfiguration | DivertDefinition) -> dict[str, Any]:
    found = {name: getattr(source, name, None) for name in KINDS[kind].fields}
    return {
        name: None if name in UNLIMITED and value == -1 else _plain(value)
        for name, value in found.items()
        if value is not None
    }


def _setting_values(setting: AddressSettingsConfiguration) -> dict[str, Any]:
    values = {name: getattr(setting, name) for name in AddressSettingsConfiguration.__slots__ if name != "match"}
    return {json_name(name): _plain(value) for name, value in values.items() if value is not None}


def _plain(value: object) -> object:
    """A value as JSON: enumerations by the name that addAddressSettings reads."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    return value
