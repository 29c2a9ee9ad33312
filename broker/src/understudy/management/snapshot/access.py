"""Users, roles and settings of an active broker."""

from __future__ import annotations

from enum import Enum

from understudy.config.json_settings import json_name, security_values
from understudy.management.model import access
from understudy.management.operations.invocation import ManagedNode
from understudy.management.snapshot.rows import Rows


def user_rows(node: ManagedNode) -> Rows[access.User]:
    """Users of the files of the broker; none without security."""
    principals = node.services.access.policy.users()
    found = [access.User(name=each.user, roles=sorted(each.roles)) for each in principals]
    return Rows.of_items(access.User, found)


def role_rows(node: ManagedNode) -> Rows[access.Role]:
    """Permissions of each role, by security setting."""
    found = []
    for setting, _ in node.services.access.policy.settings.entries():
        for name in sorted({role for roles in setting.permissions.values() for role in roles}):
            granted = [each.value for each, roles in setting.permissions.items() if name in roles]
            found.append(access.Role(name=name, match=setting.match, permissions=sorted(granted)))
    return Rows.of_items(access.Role, found)


def setting_rows(node: ManagedNode) -> Rows[access.Setting]:
    """Address settings and security settings in force."""
    settings = node.services.sessions.post_office.directory.settings
    found = [
        access.Setting(
            kind="address",
            match=match,
            origin="management" if added else "broker.xml",
            values={json_name(name): _plain(value) for name, value in values.items()},
        )
        for match, values, added in settings.entries()
    ]
    found += [
        access.Setting(
            kind="security",
            match=setting.match,
            origin="management" if added else "broker.xml",
            values=security_values(setting.permissions),
        )
        for setting, added in node.services.access.policy.settings.entries()
    ]
    return Rows.of_items(access.Setting, found)


def _plain(value: object) -> object:
    """A value of a setting as JSON: enumerations by the name that addAddressSettings reads."""
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    return value
