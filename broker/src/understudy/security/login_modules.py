"""Decides a login over several login modules, with the flags of JAAS.

Source: ``javax.security.auth.login.Configuration``. The modules are asked in their order. A *required* or *requisite*
one must prove the password, and a requisite one that does not ends the login. A *sufficient* one that proves it ends
the login with success, unless a required one before it did not. An *optional* one adds its roles. If no module is
required or requisite, one of the others must prove the password.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from understudy.dataclass import dataclass
from understudy.security.directory import Directory, DirectoryUnavailable, look_up

REQUIRED: Final = "required"
REQUISITE: Final = "requisite"
SUFFICIENT: Final = "sufficient"
OPTIONAL: Final = "optional"


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One module that checks logins."""

    flag: str
    directory: Directory | None = None
    """Directory server whose users the module checks; None: the users file."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of the modules."""

    proved: bool
    by_users_file: bool = False
    """Whether the users file proved the password; then its roles count, too."""
    roles: frozenset[str] = frozenset()
    """Roles of the directories."""
    unavailable: tuple[str, ...] = ()
    """Reason why directories gave no answer."""


Ask = Callable[[Directory, str, str | None], frozenset[str] | None]
"""Asks a directory, like ``directory.look_up``."""


class _DirectoryNeeded(Exception):
    """A module cannot be asked yet."""


def _not_yet(directory: Directory, user: str, password: str | None) -> frozenset[str] | None:
    raise _DirectoryNeeded


def decide_without_directory(modules: Sequence[LoginModule], user: str, right: bool) -> Decision | None:
    """The outcome if no directory has to be asked, else None.

    Args:
        modules: Modules in their order.
        user: User name of the login.
        right: Whether the password is that of the users file.
    """
    try:
        return decide(modules, user, "", right, ask=_not_yet)
    except _DirectoryNeeded:
        return None


def decide(
    modules: Sequence[LoginModule],
    user: str,
    password: str,
    right: bool,
    *,
    ask: Ask = look_up,
) -> Decision:
    """The outcome of all modules; blocks while directories are asked.

    Args:
        modules: Modules in their order.
        user: User name of the login.
        right: Whether the password is that of the users file.
        ask: Asks a directory.
    """
    chain = _Chain(user, password, right, ask)
    for module in modules:
        if not chain.goes_on(module):
            break
    return chain.decision()


class _Chain:
    """A login that the modules check one after the other."""

    def __init__(self, user: str, password: str, right: bool, ask: Ask) -> None:
        self._user = user
        self._password = password
        self._right = right
        self._ask = ask
        self._proved = self._failed = self._by_users_file = False
        self._roles: set[str] = set()
        self._unavailable: list[str] = []

    def goes_on(self, module: LoginModule) -> bool:
        """Ask a module. Whether the next one is asked as well."""
        outcome = self._outcome(module)
        if outcome:
            self._proved = True
            return module.flag != SUFFICIENT or self._failed
        if outcome is None:
            return True
        if module.flag in (REQUIRED, REQUISITE):
            self._failed = True
        return module.flag != REQUISITE

    def _outcome(self, module: LoginModule) -> bool | None:
        """Whether the module proved the password; None: it proves none, by its configuration."""
        if module.directory is None:
            self._by_users_file |= self._right
            return self._right
        proves = module.directory.options.authenticate
        if not proves and not self._proved:
            return None
        try:
            roles = self._ask(module.directory, self._user, self._password if proves else None)
        except DirectoryUnavailable as error:
            self._unavailable.append(str(error))
            return False
        self._roles |= roles or frozenset()
        return None if not proves else roles is not None

    def decision(self) -> Decision:
        """Result of the login so far."""
        return Decision(
            self._proved and not self._failed,
            self._by_users_file,
            frozenset(self._roles),
            tuple(self._unavailable),
        )
