# SPDX-License-Identifier: Apache-2.0
"""Permissions of one more role, added to the security settings of an inventory without taking any from the others.

Of all settings that match an address the broker uses the most specific one alone. A new setting for an address
therefore takes the permissions on it from every role that a broader setting names; so a role is added to the setting
with the same match, and a match that no setting has is refused. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Ungranted(ValueError):
    """A permission that cannot be added; the message names the match."""


def with_grants(
    settings: Sequence[Mapping[str, object]], role: str, grants: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    """The settings in which ``role`` has the permissions of ``grants`` as well.

    Args:
        settings: each with ``match`` and ``permissions``: roles by permission, a list or one text.
        role: name of the role.
        grants: each with ``match`` and ``permissions``: a list of names.

    Raises:
        Ungranted: no setting has a match, or one is granted twice.
    """
    result: list[dict[str, object]] = [dict(each) for each in settings]
    by_match = {str(each["match"]): each for each in result}
    seen: set[str] = set()
    for grant in grants:
        match = str(grant["match"])
        if match in seen:
            raise Ungranted(f"{match!r} is listed twice")
        seen.add(match)
        setting = by_match.get(match)
        if setting is None:
            if settings:
                raise Ungranted(
                    f"{match!r}: broker_security_settings has no entry with this match, and a new one would take the "
                    "permissions that a broader entry gives to other roles; add one that names them"
                )
            setting = {"match": match, "permissions": {}}
            result.append(setting)
        setting["permissions"] = _with_role(setting["permissions"], role, grant["permissions"])
    return result


def _with_role(present: object, role: str, added: object) -> dict[str, object]:
    if not isinstance(present, Mapping) or isinstance(added, str) or not isinstance(added, Iterable):
        raise TypeError("permissions must be a mapping in a setting, and a list of names in a grant")
    result = {str(name): _roles(roles) for name, roles in present.items()}
    for name in added:
        roles = result.setdefault(str(name), [])
        if role not in roles:
            roles.append(role)
    return dict(result)


def _roles(value: object) -> list[str]:
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, Iterable):
        raise TypeError("roles of a permission must be a list or one text")
    return [str(name) for name in value]
