"""Operations of ``broker`` on users of the files of the instance, with the names and parameters of Artemis.

Passwords are stored as hashes whatever the parameter ``plaintext`` of Artemis asks for, so it must be false.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from understudy.errors import BrokerError, ConfigError, ManagementError
from understudy.management.json_text import to_json
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, Operations, flag, operation, text
from understudy.ports import Entropy
from understudy.security.user_changes import UserChange, added, removed, reset
from understudy.session.error_texts import without_directory

#: Reason why a node cannot change users.
NO_USERS_FILE: Final = "this node has no users file: security is off, or its logins come from elsewhere"


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
    yield from _change(control, _added(control.node.services.entropy, name, password, roles, plaintext))


def remove_user(control: Control, name: str) -> Generator[None, None, None]:
    """Remove a user. Raises ManagementError."""
    yield from _change(control, _removed(control.node.services.entropy, name))


def reset_user(
    control: Control, name: str, password: str | None, roles: str | None, plaintext: bool = False
) -> Generator[None, None, None]:
    """Change password and roles of a user; null keeps. Raises ManagementError."""
    yield from _change(control, _reset(control.node.services.entropy, name, password, roles, plaintext))


def change_of(name: str, values: Sequence[object], entropy: Entropy) -> tuple[Operation, UserChange] | None:
    """The change of users that an operation of ``broker`` makes, for a node that is not active.

    Args:
        name: Name of the operation, which has the parameters ``values``.

    Returns:
        The row of the operation and the change; None: it is no operation that changes users.

    Raises:
        OperationNotFound: the operation has other parameters.
        ManagementError: the password is to be stored as it is.
    """
    make = _CHANGES.get(name)
    if make is None:
        return None
    return _TABLE.find(name, values), make(entropy, *values)


def shown_error(error: BrokerError | None) -> BrokerError | None:
    """The error of a change as the requester gets it: without the directory of the instance."""
    return ManagementError(without_directory(error)) if isinstance(error, ConfigError) else error


def _added(entropy: Entropy, name: str, password: str, roles: str, plaintext: bool = False) -> UserChange:
    _refuse_plain(plaintext)
    return lambda texts: added(texts, name, password, roles.split(","), entropy)


def _removed(entropy: Entropy, name: str) -> UserChange:
    return lambda texts: removed(texts, name)


def _reset(entropy: Entropy, name: str, password: str | None, roles: str | None, plaintext: bool = False) -> UserChange:
    _refuse_plain(plaintext)
    wanted = None if roles is None else roles.split(",")
    return lambda texts: reset(texts, name, password, wanted, entropy)


def _refuse_plain(plaintext: bool) -> None:
    if plaintext:
        raise ManagementError("passwords are stored as hashes only", hint="give false for plaintext")


def _change(control: Control, change: UserChange) -> Generator[None, None, None]:
    files = control.node.files
    if files is None or files.change_users is None:
        raise ManagementError(NO_USERS_FILE)
    outcomes: list[BrokerError | None] = []
    files.change_users(change, outcomes.append)
    while not outcomes:
        yield
    error = shown_error(outcomes[0])
    if error is not None:
        raise error from outcomes[0]


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

_CHANGES: Final[dict[str, Callable[..., UserChange]]] = {
    "addUser": _added,
    "removeUser": _removed,
    "resetUser": _reset,
}
_TABLE: Final = Operations("broker", "The users in the files of a node.", USER_OPERATIONS)
