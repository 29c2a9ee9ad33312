"""The users that a command of ``understudy user`` changes: of an instance directory, or of the nodes of a pair."""

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
from understudy.cli.node.status import Place, serving, shown_peer, token_file_option
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, ConfigError, Unreachable
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
        """Text that says where and when a change takes effect."""
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
        missing = [each.name for each in (self._files.users, self._files.roles) if not each.exists()]
        if missing:
            raise ConfigError(
                f"there is no {' and no '.join(missing)}: an instance that was made with --allow-anonymous has no"
                " users, and asks no client for a login",
                file=str(folder),
                hint=f"for logins make {' and '.join(missing)} there as empty files, add users, and set"
                " security-enabled to true in broker.xml",
            )

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
        """Text that says where and when a change takes effect."""
        written = f"{self._files.users.parent}: written; a node that runs uses it within 2 s"
        return f"{written} (the other node of a pair has files of its own)"


class UsersOfNode:
    """Users of a node, by its management. A passive node changes its files, too."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def rows(self) -> list[dict[str, Any]]:
        """Users with their roles, in the order of their names. Raises NotActive."""
        require_active(self.place)
        return items(self.place, "users")

    def add(self, name: str, password: str, roles: Sequence[str]) -> None:
        """Add a user. Raises BrokerError."""
        invoke(self.place, "broker", "addUser", name, password, ",".join(roles))

    def remove(self, name: str) -> None:
        """Remove a user. Raises BrokerError: there is none of the name."""
        invoke(self.place, "broker", "removeUser", name)

    def reset(self, name: str, password: str | None, roles: Sequence[str] | None) -> None:
        """Change the password or the roles; None keeps. Raises BrokerError: there is no such user."""
        invoke(self.place, "broker", "resetUser", name, password, None if roles is None else ",".join(roles))

    def note(self) -> str:
        """Text that says where and when a change takes effect."""
        return f"{self.place.url}: it is in force"


class UserTargets:
    """The nodes whose users a command changes: each has files of its own."""

    def __init__(self, nodes: Sequence[Users], *, only_here: bool) -> None:
        """Args:
        nodes: At least one; of a pair both, so that a failover changes no login.
        only_here: Whether the other node of the pair is left as it is on purpose.
        """
        self._nodes = nodes
        self._only_here = only_here

    def rows(self) -> list[dict[str, Any]]:
        """Users of the active node, or of the files of an instance. Raises BrokerError."""
        if len(self._nodes) == 1:
            return self._nodes[0].rows()
        places = [each.place for each in self._nodes if isinstance(each, UsersOfNode)]
        return (UsersOfNode(serving(places)) if places else self._nodes[0]).rows()

    def change(self, done: str, change: Callable[[Users], None]) -> None:
        """Make a change on every node, say the outcome of each, and end the command with exit code 1 if a node of the
        pair has not been changed.

        Args:
            done: The outcome, as in "user alice added".
            change: Changes the users of one node.

        Raises:
            BrokerError: the only node refuses.
        """
        failed = False
        for each in self._nodes:
            try:
                change(each)
                echo(f"{done}: {each.note()}")
            except BrokerError as error:
                if len(self._nodes) == 1:
                    raise
                failed = True
                place = each.place.url if isinstance(each, UsersOfNode) else "the instance"
                echo(f"NOT {done} at {place}: {error}", err=True)
        if failed:
            echo("the nodes of the pair differ now if another one was changed: repeat the command with the --url of the"
                 " node that was not, and --only-here", err=True)  # fmt: skip
        elif len(self._nodes) == 1 and not self._only_here:
            other = self._other_node()
            if other is not None:
                failed = True
                echo(
                    f"the other node of the pair, {other}, has files of its own, which are NOT changed and count after"
                    " a failover. Repeat the command with its --url, give both (--url A,B, or a context of both nodes),"
                    " or say --only-here",
                    err=True,
                )
        if failed:
            raise SystemExit(1)

    def _other_node(self) -> str | None:
        """The other node of the pair as the only node knows it; None: there is none, or files were changed."""
        node = self._nodes[0]
        if not isinstance(node, UsersOfNode):
            return None
        peer = node.place.ask("/api/v1/node")["peer"]
        return None if peer is None else shown_peer(peer)


def users_options(command: F) -> F:
    """``--instance``, ``--url`` and ``--token-file``; the command gets the argument ``users``, a ``UserTargets``."""

    @wraps(command)
    def with_users(instance: Path | None, url: str | None, token_file: Path | None, **options: Any) -> Any:
        nodes = _nodes(instance, url, token_file)
        return command(users=UserTargets(nodes, only_here=options.pop("only_here", False)), **options)

    instance_option = click.option(
        "--instance",
        type=click.Path(path_type=Path, file_okay=False),
        help="Instance directory whose files are changed, running or not; default without --url and context: that of"
        " `understudy run`.",
    )
    url_option = click.option(
        "--url", help="Management URLs of the nodes, separated by commas: of a pair both, because each has its files."
    )
    for option in (token_file_option, url_option, instance_option):
        with_users = option(with_users)
    with_users.__doc__ = inspect.cleandoc(command.__doc__ or "")
    return with_users  # type: ignore[return-value]  # click adds options to the function and returns it


only_here_option = click.option(
    "--only-here", is_flag=True, help="Exit with code 0 although the other node of the pair keeps its users."
)


def _nodes(instance: Path | None, url: str | None, token_file: Path | None) -> list[Users]:
    if instance is not None and url is None:
        return [UsersOfInstance(instance)]
    chosen = current_context(os.environ)
    if url is not None or chosen is None or not chosen["nodes"]:
        if url is None:
            return [UsersOfInstance(default_directory(os.environ))]
        return [UsersOfNode(each) for each in Place.all_of(instance, url, token_file)]
    found = list[Users]()
    for node in chosen["nodes"]:
        try:
            found.append(UsersOfNode(Place.of_context_node(node, chosen, token_file)))
        except Unreachable:
            # an instance of this host that does not run: its files are changed directly
            found.append(UsersOfInstance(Path(node["instance"])))
    return found
