"""Operations of ``broker`` on address settings, security settings and connection factories (ADR 0178).

Names, parameters and their order are those of Artemis' ActiveMQServerControl. The long forms of
``addAddressSettings`` set every value; values that a shorter form does not have get their defaults. The form with
JSON sets only the given values.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from understudy.config.json_settings import ADDRESS_SETTING_ROWS, json_name
from understudy.config.model import AddressSettingsConfiguration
from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.config.profiles.reader import places_of
from understudy.config.schema.grammar import Kind as ValueKind
from understudy.config.schema.grammar import parse_value
from understudy.errors import ManagementError
from understudy.management.json_text import parse_json, to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, Parameter, decimal, flag, integer, long, operation, text
from understudy.management.operations.users import USER_OPERATIONS
from understudy.terms import Permission

_INTEGERS: Final = frozenset({
    "maxDeliveryAttempts", "pageSizeBytes", "pageCacheMaxSize", "defaultGroupBuckets", "defaultMaxConsumers",
    "defaultConsumersBeforeDispatch", "defaultConsumerWindowSize",
})  # fmt: skip
#: JSON names of the parameters of the long forms, in order; each form ends at the end of a line.
_FORMS: Final = (
    ("deadLetterAddress", "expiryAddress", "expiryDelay", "defaultLastValueQueue", "maxDeliveryAttempts",
     "maxSizeBytes", "pageSizeBytes", "pageCacheMaxSize", "redeliveryDelay", "redeliveryMultiplier",
     "maxRedeliveryDelay", "redistributionDelay", "sendToDLAOnNoRoute", "addressFullMessagePolicy",
     "slowConsumerThreshold", "slowConsumerCheckPeriod", "slowConsumerPolicy", "autoCreateJmsQueues",
     "autoDeleteJmsQueues", "autoCreateJmsTopics", "autoDeleteJmsTopics"),
    ("autoCreateQueues", "autoDeleteQueues", "autoCreateAddresses", "autoDeleteAddresses"),
    ("configDeleteQueues", "configDeleteAddresses", "maxSizeBytesRejectThreshold", "defaultLastValueKey",
     "defaultNonDestructive", "defaultExclusiveQueue", "defaultGroupRebalance", "defaultGroupBuckets",
     "defaultGroupFirstKey", "defaultMaxConsumers", "defaultPurgeOnNoConsumers", "defaultConsumersBeforeDispatch",
     "defaultDelayBeforeDispatch", "defaultQueueRoutingType", "defaultAddressRoutingType", "defaultConsumerWindowSize",
     "defaultRingSize", "autoDeleteCreatedQueues", "autoDeleteQueuesDelay", "autoDeleteQueuesMessageCount",
     "autoDeleteAddressesDelay", "redeliveryCollisionAvoidanceFactor", "retroactiveMessageCount"),
    ("autoCreateDeadLetterResources", "deadLetterQueuePrefix", "deadLetterQueueSuffix", "autoCreateExpiryResources",
     "expiryQueuePrefix", "expiryQueueSuffix"),
    ("minExpiryDelay", "maxExpiryDelay", "enableMetrics"),
)  # fmt: skip
#: The permissions of a role in the order in which management lists them, which is that of the parameters of
#: ``addSecuritySettings`` after the match; its forms have 7, 8, 10 or 12 of them.
ROLE_PERMISSIONS: Final = (
    Permission.SEND,
    Permission.CONSUME,
    Permission.CREATE_DURABLE_QUEUE,
    Permission.DELETE_DURABLE_QUEUE,
    Permission.CREATE_NON_DURABLE_QUEUE,
    Permission.DELETE_NON_DURABLE_QUEUE,
    Permission.MANAGE,
    Permission.BROWSE,
    Permission.CREATE_ADDRESS,
    Permission.DELETE_ADDRESS,
    Permission.VIEW,
    Permission.EDIT,
)


def add_address_settings(control: Control, match: str, text_of_it: str) -> str:
    """Add settings for a match from JSON; returns them as JSON. Raises ManagementError, LimitExceeded."""
    try:
        values = parse_json(text_of_it)
    except ValueError as error:
        raise ManagementError(f"the address settings cannot be used: {error}") from error
    if not isinstance(values, dict):
        raise ManagementError("the address settings are not a JSON object")
    return _shown(control.node.settings.add_address_setting(match, values))


def _shown(setting: AddressSettingsConfiguration) -> str:
    found = {}
    for field in AddressSettingsConfiguration.__slots__:
        value = getattr(setting, field)
        if field != "match" and value is not None:
            found[json_name(field)] = value.name if isinstance(value, Enum) else value
    return to_json(found)


def _long_form(names: tuple[str, ...]) -> Callable[..., None]:
    def add(control: Control, match: str, *given: object) -> None:
        values: dict[str, object] = {name: _default(name) for form in _FORMS for name in form}
        for name, value in zip(names, given, strict=True):
            if value not in (None, ""):
                values[name] = str(value).upper() if ADDRESS_SETTING_ROWS[name].choices else value
        control.node.settings.add_address_setting(match, values)

    return add


def _default(name: str) -> object:
    row = ADDRESS_SETTING_ROWS[name]
    return None if row.default is None else parse_value(row.default, row)


def _parameter(name: str) -> Parameter:
    kind = ADDRESS_SETTING_ROWS[name].kind
    if kind is ValueKind.BOOLEAN:
        return flag(name)
    if kind in (ValueKind.TEXT, ValueKind.CHOICE):
        return text(name, nullable=True)
    if kind is ValueKind.DECIMAL:
        return decimal(name)
    return integer(name) if name in _INTEGERS else long(name)


def remove_address_settings(control: Control, match: str) -> None:
    """Remove the settings that management added for a match."""
    control.node.settings.remove_address_setting(match)


def add_security_settings(control: Control, match: str, *roles: str | None) -> None:
    """Add roles, separated by commas, for each permission. Raises ManagementError, LimitExceeded."""
    permissions = {
        permission: frozenset(name.strip() for name in (names or "").split(",") if name.strip())
        for permission, names in zip(ROLE_PERMISSIONS, roles, strict=False)
    }
    control.node.settings.add_security_setting(match, permissions)


def remove_security_settings(control: Control, match: str) -> None:
    """Remove the security settings that management added for a match."""
    control.node.settings.remove_security_setting(match)


_MATCH: Final = text("addressMatch")


def _address_forms() -> list[Operation]:
    rows, names = [], tuple[str, ...]()
    for form in _FORMS:
        names += form
        rows.append(
            operation("addAddressSettings", _long_form(names), "Set every value for a match.", _MATCH,
                      *map(_parameter, names))
        )  # fmt: skip
    return rows


def _security_forms() -> list[Operation]:
    names = [text(f"{permission.value}Roles", nullable=True) for permission in ROLE_PERMISSIONS]
    return [
        operation("addSecuritySettings", add_security_settings, "Grant permissions on a match to roles.",
                  _MATCH, *names[:count])
        for count in (7, 8, 10, 12)
    ]  # fmt: skip


def _names(control: Control) -> list[str]:
    return [each.name for each in control.node.configuration.connection_factories]


def _factory(control: Control, name: str) -> ConnectionFactoryConfiguration:
    """A connection factory. Raises ManagementError: there is none of the name."""
    found = {each.name: each for each in control.node.configuration.connection_factories}
    if name not in found:
        raise ManagementError(f"there is no connection factory {name!r}", hint=", ".join(found) or None)
    return found[name]


def client_url(control: Control, name: str) -> str:
    """The client URL of a connection factory. Raises ManagementError: there is none of the name."""
    return _factory(control, name).url(places_of(control.node.configuration))


def jndi_properties(control: Control, name: str) -> str:
    """A file ``jndi.properties`` with a connection factory. Raises ManagementError: there is none of the name."""
    return _factory(control, name).jndi_properties(places_of(control.node.configuration))


FACTORY_OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("getConnectionFactoryNames", _names, "Names of the connection factories.", returns=list[str]),
    operation("getClientUrl", client_url, "The client URL of a connection factory.", text("name"), returns=str),
    operation("getJndiProperties", jndi_properties, "A file jndi.properties with a connection factory.", text("name"),
              returns=str),
)  # fmt: skip

OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("addAddressSettings", add_address_settings, "Set values for a match from JSON; stored until removed.",
              _MATCH, text("addressSettingsConfigurationAsJson")),
    *_address_forms(),
    operation("removeAddressSettings", remove_address_settings, "Remove what addAddressSettings added for a match.",
              _MATCH),
    *_security_forms(),
    operation("removeSecuritySettings", remove_security_settings,
              "Remove what addSecuritySettings added for a match.", _MATCH),
    *USER_OPERATIONS,
    *FACTORY_OPERATIONS,
)  # fmt: skip
