"""Operations of ``broker`` on users of the files of the instance, with the names and parameters of Artemis.

Passwords are stored as hashes whatever the parameter ``plaintext`` of Artemis asks for, so it must be false.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from understudy.errors import BrokerError, ConfigError, ManagementError
from understudy.management.json_text import to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, flag, operation, text
from understudy.security.user_changes import UserChange, added, removed, reset
from understudy.session.error_texts import without_directory


def list_users(control: Control, name: str | None) -> str:
    """Users with their roles as JSON; one of them if a name is given."""
    users = control.node.services.access.policy.users()
    found = [
        {"username": each.user, "roles": sorted(each.roles)}
        for each in users
        if name in (None, "") or each.user == name
    ]
    return to_json(sorted(found, key=lambda each: str(each["username"])))


def add_user(
    control: Control, name: str, password: str, roles: str, plaintext: bool = False
) -> Generator[None, None, None]:
    """Add a user. Raises ManagementError."""
    _refuse_plain(plaintext)
    entropy = control.node.services.entropy
    yield from _change(control, lambda texts: added(texts, name, password, roles.split(","), entropy))


def remove_user(control: Control, name: str) -> Generator[None, None, None]:
    """Remove a user. Raises ManagementError."""
    yield from _change(control, lambda texts: removed(texts, name))


def reset_user(
    control: Control, name: str, password: str | None, roles: str | None, plaintext: bool = False
) -> Generator[None, None, None]:
    """Change password and roles of a user; null keeps. Raises ManagementError."""
    _refuse_plain(plaintext)
    entropy, wanted = control.node.services.entropy, None if roles is None else roles.split(",")
    yield from _change(control, lambda texts: reset(texts, name, password, wanted, entropy))


def _refuse_plain(plaintext: bool) -> None:
    if plaintext:
        raise ManagementError("passwords are stored as hashes only", hint="give false for plaintext")


def _change(control: Control, change: UserChange) -> Generator[None, None, None]:
    files = control.node.files
    if files is None or files.change_users is None:
        raise ManagementError("this node has no users file: security is off, or its logins come from elsewhere")
    outcomes: list[BrokerError | None] = []
    files.change_users(change, outcomes.append)
    while not outcomes:
        yield
    error = outcomes[0]
    if isinstance(error, ConfigError):
        raise ManagementError(without_directory(error)) from error
    if error is not None:
        raise error


_NAME: Final = text("username")
_PLAIN: Final = flag("plaintext")

USER_OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("listUser", list_users, "Users of the files with their roles, as JSON; with a name that user only.",
              text("username", nullable=True)),
    operation("addUser", add_user, "Add a user to the files of this node; roles are separated by commas.",
              _NAME, text("password"), text("roles"), _PLAIN),
    operation("addUser", add_user, "The same.", _NAME, text("password"), text("roles")),
    operation("removeUser", remove_user, "Remove a user from the files of this node.", _NAME),
    operation("resetUser", reset_user, "Change password and roles of a user; null keeps them.",
              _NAME, text("password", nullable=True), text("roles", nullable=True), _PLAIN),
    operation("resetUser", reset_user, "The same.", _NAME, text("password", nullable=True),
              text("roles", nullable=True)),
)  # fmt: skip
