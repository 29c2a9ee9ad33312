"""Users, roles and settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from understudy.management.model.figure import Item, figure


class User(Item, frozen=True, kw_only=True):
    """A user that the files of the broker name. Users of a directory are not listed."""

    name: Annotated[str, figure("Name of the user.")]
    roles: Annotated[list[str], figure("Roles of the user.")]


class Role(Item, frozen=True, kw_only=True):
    """The permissions of a role on the addresses of one security setting."""

    name: Annotated[str, figure("Name of the role.")]
    match: Annotated[str, figure("Address, or pattern of addresses, of the security setting.")]
    permissions: Annotated[list[str], figure("Permissions of the role.")]


class Setting(Item, frozen=True, kw_only=True):
    """An address setting or security setting in force."""

    kind: Annotated[Literal["address", "security"], figure("Kind of the setting.")]
    match: Annotated[str, figure("Address, or pattern of addresses.")]
    origin: Annotated[Literal["broker.xml", "management"], figure("Where the setting was made.")]
    values: Annotated[dict[str, Any], figure("Values that differ from less specific settings, by name.")]
