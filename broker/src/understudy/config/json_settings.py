"""Address settings and security settings as JSON values, as used by management and stored in the log.

The names of an address setting are those of ``AddressSettings`` in Artemis' management
(``redeliveryDelay``); each corresponds to one element of ``address-setting``, whose schema row defines the
allowed values. A security setting has a list of roles for each permission (``{"send": ["a"]}``).

Not here: which settings are in force (``routing.addresses.settings``, ``security.settings``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from understudy.config.model import AddressSettingsConfiguration, SecuritySettingConfiguration
from understudy.config.reading.address_reader import SETTING_ENUMS
from understudy.config.schema.grammar import Element, Kind, Support, parse_value
from understudy.config.schema.schema import element_at
from understudy.terms import Permission
from understudy.wildcards import Wildcards, check_match, is_wild, literal_of

_ROWS: Final = element_at("core/address-settings/address-setting").children
#: Elements whose JSON name is not the camel-case form of the name.
_NAMES: Final = {
    "address-full-policy": "addressFullMessagePolicy",
    "page-full-policy": "pageFullMessagePolicy",
    "disk-full-policy": "diskFullMessagePolicy",
    "page-max-cache-size": "pageCacheMaxSize",
    "redelivery-delay-multiplier": "redeliveryMultiplier",
    "send-to-dla-on-no-route": "sendToDLAOnNoRoute",
}
#: Names in Artemis' JSON without an element of broker.xml; they have no effect here.
_WITHOUT_ELEMENT: Final = frozenset({"queuePrefetch"})


def _camel(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(part.capitalize() for part in rest)


#: Rows of ``address-setting`` by JSON name.
ADDRESS_SETTING_ROWS: Final[Mapping[str, Element]] = {_NAMES.get(row.name) or _camel(row.name): row for row in _ROWS}
_JSON_NAMES: Final = {row.name.replace("-", "_"): name for name, row in ADDRESS_SETTING_ROWS.items()}


def json_name(field: str) -> str:
    """JSON name of a field of ``AddressSettingsConfiguration``."""
    return _JSON_NAMES[field]


def parse_address_setting(match: str, values: Mapping[str, object]) -> AddressSettingsConfiguration:
    """Parse an address setting; null inherits a value from less specific matches.

    Raises:
        ValueError: an unknown name, a value of the wrong type or out of range, or a setting that this version
            does not support. The text names it.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        row = ADDRESS_SETTING_ROWS.get(name)
        if row is None:
            if name in _WITHOUT_ELEMENT:
                continue
            raise ValueError(f"unknown address setting {name!r}")
        if value is not None and not (value == "" and row.default is None):
            found[row.name.replace("-", "_")] = _value_of(name, row, value)
    page_bytes, full_bytes = found.get("page_size_bytes"), found.get("max_size_bytes")
    if page_bytes is not None and full_bytes is not None and 0 < full_bytes < page_bytes:
        raise ValueError(f"pageSizeBytes {page_bytes} is more than maxSizeBytes {full_bytes}")
    return AddressSettingsConfiguration(match=match, **found)


def _value_of(name: str, row: Element, value: object) -> object:
    kind = row.kind
    if kind is Kind.BOOLEAN:
        fits = isinstance(value, bool)
    elif kind in (Kind.TEXT, Kind.CHOICE):
        fits = isinstance(value, str)
    elif kind is Kind.DECIMAL:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        fits = isinstance(value, int) and not isinstance(value, bool)
    if not fits:
        raise ValueError(f"{name}: {value!r} is no {kind.value}")
    try:
        parsed = parse_value(str(value), row)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if row.support is Support.REFUSED and (row.default is None or parsed != parse_value(row.default, row)):
        raise ValueError(f"{name} is not available in this version: {row.note}")
    convert = SETTING_ENUMS.get(row.name)
    return convert(str(parsed)) if convert is not None else parsed


def without_effect(values: Mapping[str, object]) -> list[str]:
    """Names of the given settings that this version ignores, as in broker.xml."""
    return [
        name
        for name, value in values.items()
        if value is not None
        and (name in _WITHOUT_ELEMENT or ADDRESS_SETTING_ROWS[name].support is not Support.IMPLEMENTED)
    ]


def check_setting_match(match: str, wildcards: Wildcards) -> None:
    """Check the match of an address setting. Raises ValueError."""
    complaint = None if literal_of(match, wildcards) else check_match(match, wildcards)
    if complaint is not None:
        raise ValueError(f"match {match!r}: {complaint}")


def check_security_match(match: str, wildcards: Wildcards) -> None:
    """Check the match of a security setting: an address, a wildcard, or ``address::queue``.
    Raises ValueError.
    """
    address, separator, queue = match.partition("::")
    if not separator:
        check_setting_match(match, wildcards)
    elif not (address and queue) or is_wild(address, wildcards):
        raise ValueError(f"match {match!r}: a plain address and a queue are required around '::'")


def parse_security_setting(match: str, values: Mapping[str, object]) -> SecuritySettingConfiguration:
    """Parse a security setting from lists of roles by permission.

    Raises:
        ValueError: an unknown permission, or roles that are not a list of strings.
    """
    permissions: dict[Permission, frozenset[str]] = {}
    for name, roles in values.items():
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise ValueError(f"roles of permission {name!r} are not a list of strings")
        permissions[Permission(name)] = frozenset(roles)
    return SecuritySettingConfiguration(match, permissions)


def security_values(permissions: Mapping[Permission, frozenset[str]]) -> dict[str, object]:
    """Roles by permission as JSON values, as read by ``parse_security_setting``."""
    return {permission.value: sorted(roles) for permission, roles in permissions.items() if roles}
