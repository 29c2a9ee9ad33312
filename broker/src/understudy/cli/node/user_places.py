"""The users that a command of ``understudy user`` changes: of an instance directory, or of an active node."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from understudy.cli.managing.contexts import current_context
from understudy.cli.managing.places import invoke, items, require_active
from understudy.cli.node.defaults import default_directory
from understudy.cli.node.instances import config_of
from understudy.cli.node.status import Place, token_file_option, url_option
from understudy.errors import ConfigError
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.logins.user_files import UserFiles
from understudy.security.user_changes import added, listed, removed, reset

F = TypeVar("F", bound=Callable[..., Any])


class Users(Protocol):
    """The users of one node."""

    def rows(self) -> list[dict[str, Any]]:
        """Users with their roles, in the order of their names."""
        ...

    def add(self, name: str, password: str, roles: Sequence[str]) -> None:
        """Add a user. Raises BrokerError."""
        ...

    def remove(self, name: str) -> None:
        """Remove a user. Raises BrokerError: there is none of the name."""
        ...

    def reset(self, name: str, password: str | None, roles: Sequence[str] | None) -> None:
        """Change the password or the roles; None keeps. Raises BrokerError: there is no such user."""
        ...

    def note(self) -> str:
        """Text that says when a change takes effect, and where else it has to be made."""
        ...


class UsersOfInstance:
    """Users in the files of an instance, whether its node is active, passive or not running."""

    def __init__(self, directory: Path) -> None:
        """Raises ConfigError: there is no users file that logins are checked with."""
        # the modules of a node take long to load, and other commands of the group do not need them
        from understudy.cli.node.user_files import logins_beside, users_and_roles

        folder = config_of(directory).parent
        logins = logins_beside(folder)
        if not logins.has_users_file:
            raise ConfigError("no login module has a users file: logins are checked elsewhere", file=str(folder))
        self._files: UserFiles = users_and_roles(folder, logins)

    def rows(self) -> list[dict[str, Any]]:
        """Users with their roles, in the order of their names."""
        return [{"name": name, "roles": roles} for name, roles in sorted(listed(self._files.read()).items())]

    def add(self, name: str, password: str, roles: Sequence[str]) -> None:
        """Add a user. Raises BrokerError."""
        self._files.change(lambda texts: added(texts, name, password, roles, SystemEntropy()))

    def remove(self, name: str) -> None:
        """Remove a user. Raises BrokerError: there is none of the name."""
        self._files.change(lambda texts: removed(texts, name))

    def reset(self, name: str, password: str | None, roles: Sequence[str] | None) -> None:
        """Change the password or the roles; None keeps. Raises BrokerError: there is no such user."""
        self._files.change(lambda texts: reset(texts, name, password, roles, SystemEntropy()))

    def note(self) -> str:
        """Text that says when a change takes effect, and where else it has to be made."""
        return f"{self._files.users.parent}: written; a node that runs uses it within 2 s"


class UsersOfNode:
    """Users of an active node, by its management."""

    def __init__(self, place: Place) -> None:
        """Raises NotActive."""
        require_active(place)
        self._place = place

    def rows(self) -> list[dict[str, Any]]:
        """Users with their roles, in the order of their names."""
        return items(self._place, "users")

    def add(self, name: str, password: str, roles: Sequence[str]) -> None:
        """Add a user. Raises BrokerError."""
        invoke(self._place, "broker", "addUser", name, password, ",".join(roles))

    def remove(self, name: str) -> None:
        """Remove a user. Raises BrokerError: there is none of the name."""
        invoke(self._place, "broker", "removeUser", name)

    def reset(self, name: str, password: str | None, roles: Sequence[str] | None) -> None:
        """Change the password or the roles; None keeps. Raises BrokerError: there is no such user."""
        invoke(self._place, "broker", "resetUser", name, password, None if roles is None else ",".join(roles))

    def note(self) -> str:
        """Text that says when a change takes effect, and where else it has to be made."""
        peer = self._place.ask("/api/v1/node")["peer"]
        if peer is None:
            return "it is in force"
        return (
            f"it is in force here; the node at {peer['connector']} has files of its own: change them on its host, too"
        )


def users_options(command: F) -> F:
    """``--instance``, ``--url`` and ``--token-file``; the command gets the argument ``users``."""

    @wraps(command)
    def with_users(instance: Path | None, url: str | None, token_file: Path | None, **options: Any) -> Any:
        return command(users=_users(instance, url, token_file), **options)

    instance_option = click.option(
        "--instance",
        type=click.Path(path_type=Path, file_okay=False),
        help="Instance directory whose files are changed, running or not; default without --url and context: that of"
        " `understudy run`.",
    )
    for option in (token_file_option, url_option, instance_option):
        with_users = option(with_users)
    with_users.__doc__ = inspect.cleandoc(command.__doc__ or "")
    return with_users  # type: ignore[return-value]  # click adds options to the function and returns it


def _users(instance: Path | None, url: str | None, token_file: Path | None) -> Users:
    if instance is not None and url is None:
        return UsersOfInstance(instance)
    chosen = current_context(os.environ)
    if url is None and (chosen is None or not chosen["nodes"]):
        return UsersOfInstance(default_directory(os.environ))
    return UsersOfNode(Place.of(instance, url, token_file))
