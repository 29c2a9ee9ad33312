"""The files of users and roles of a node, beside its broker.xml under the names that Artemis uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from understudy.config.bootstrap_file import Bootstrap, read_bootstrap
from understudy.config.instance_files import (
    BOOTSTRAP_FILE,
    CERTIFICATE_ROLES_FILE,
    CERTIFICATE_USERS_FILE,
    LOGIN_FILE,
    ROLES_FILE,
    USERS_FILE,
)
from understudy.config.logins.login_config import Logins, read_logins
from understudy.config.model import Configuration
from understudy.config.password_codec import KEY_VARIABLE
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.base.environment import SystemClock, SystemEntropy
from understudy.runtime.logins.user_files import UserFiles
from understudy.runtime.logins.users_file import UsersFile
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process.reloading import ConfigurationFiles
from understudy.security.authorization import (
    NO_USERS,
    CertificateTexts,
    RoleSecurity,
    SecurityPolicy,
    UserTexts,
    authenticator_of,
    security_policy,
)
from understudy.security.login_modules import LoginModule


def security_of(configuration: Configuration, folder: Path) -> SecurityPolicy:
    """Users, roles and permissions of a node.

    Args:
        configuration: Configuration as read from broker.xml.
        folder: Directory of broker.xml.

    Raises:
        ConfigError: security is enabled and a file is missing or cannot be used.
    """
    if not configuration.security_enabled:
        return security_policy(configuration, SystemEntropy(), SystemClock(), NO_USERS)
    logins = logins_beside(folder)
    rehashed = UsersFile(user_files(folder, logins)[0]).rehashed
    texts = replace(user_texts(folder, logins), modules=login_modules(logins))
    return security_policy(with_guest(configuration, logins), SystemEntropy(), SystemClock(), texts, rehashed=rehashed)


def watched_files(
    node: BrokerNode,
    security: SecurityPolicy,
    config: Path,
    read: Callable[[], LoadedConfig],
    included: Iterable[str] = (),
) -> ConfigurationFiles:
    """The files of a node that are reloaded while it runs.

    Args:
        security: Made by ``security_of``.
        config: Path of broker.xml.
        read: Reads that file.
        included: Files that it includes.
    """
    folder = config.parent
    has_roles = isinstance(security, RoleSecurity)
    logins = logins_beside(folder) if has_roles else Logins()
    modules = login_modules(logins)
    rehashed = UsersFile(user_files(folder, logins)[0]).rehashed

    def read_users() -> Callable[[], None]:
        assert isinstance(security, RoleSecurity)
        configuration = with_guest(node.configuration, logins)
        texts = replace(user_texts(folder, logins), modules=modules)
        changed = authenticator_of(configuration, SystemEntropy(), SystemClock(), texts, rehashed=rehashed)
        return partial(security.change_users, changed)

    files = ConfigurationFiles(
        node,
        (config, *map(Path, included)),
        read,
        _read_files(folder, logins) if has_roles else (),
        read_users,
        period_ms=node.configuration.configuration_file_refresh_period_ms,
    )
    has_users_file = has_roles and logins.has_users_file
    node.serving.files = files.on_request(users_and_roles(folder, logins) if has_users_file else None)
    return files


def logins_beside(folder: Path) -> Logins:
    """The logins of ``login.config``, or the usual ones without that file; modules that are left aside are warnings.

    Raises:
        ConfigError: the file, or bootstrap.xml, cannot be read or is damaged.
    """
    login, bootstrap = folder / LOGIN_FILE, folder / BOOTSTRAP_FILE
    if not login.exists():
        return Logins()
    found = read_bootstrap(_text(bootstrap).encode(), str(bootstrap)) if bootstrap.exists() else Bootstrap()
    return read_logins(_text(login), found.realms, str(login), os.environ.get(KEY_VARIABLE))


def login_modules(logins: Logins) -> tuple[LoginModule, ...]:
    """The modules that check passwords, if one of them asks a directory.

    Raises:
        ConfigError: the package for directories is not installed, or a trust store cannot be used.
    """
    if not logins.passwords:
        return ()
    try:
        # ldap3 is an optional dependency
        from understudy.runtime.logins.ldap import LdapDirectory
    except ImportError as error:
        place = next(each.ldap.place for each in logins.passwords if each.ldap is not None)
        raise ConfigError(
            f"{place}: LDAPLoginModule needs the package ldap3: {error}", hint="pip install 'understudy[ldap]'"
        ) from error
    return tuple(
        LoginModule(each.flag, None if each.ldap is None else LdapDirectory(each.ldap)) for each in logins.passwords
    )


def with_guest(configuration: Configuration, logins: Logins) -> Configuration:
    """The configuration with the guest of ``login.config``, unless broker.xml has one."""
    if logins.guest_user is None or configuration.guest_login:
        return configuration
    return replace(
        configuration,
        guest_login=True,
        guest_user=logins.guest_user,
        guest_role=logins.guest_role,
        guest_login_on_wrong_credentials=logins.guest_on_wrong_credentials,
    )


def user_files(folder: Path, logins: Logins) -> tuple[Path, ...]:
    """The files of users and roles, and those of certificates if one of the two exists or is named.

    The first two are not read if no login module is for them (``Logins.has_users_file``).
    """
    users, roles = folder / (logins.users_file or USERS_FILE), folder / (logins.roles_file or ROLES_FILE)
    return users, roles, *(_certificate_files(folder, logins) or ())


def users_and_roles(folder: Path, logins: Logins) -> UserFiles:
    """The files of users with passwords, and of their roles."""
    return UserFiles(*user_files(folder, logins)[:2])


def _read_files(folder: Path, logins: Logins) -> tuple[Path, ...]:
    """The files of ``user_files`` that are read."""
    return user_files(folder, logins)[0 if logins.has_users_file else 2 :]


def user_texts(folder: Path, logins: Logins) -> UserTexts:
    """The contents of the files. Raises ConfigError: one is missing or cannot be read."""
    users, roles, *found = user_files(folder, logins)
    certificates = None
    if found:
        certificates = CertificateTexts(_text(found[0]), str(found[0]), _text(found[1]), str(found[1]))
    if not logins.has_users_file:
        return UserTexts("", str(users), "", str(roles), certificates)
    return UserTexts(_text(users), str(users), _text(roles), str(roles), certificates)


def _certificate_files(folder: Path, logins: Logins) -> tuple[Path, Path] | None:
    users = folder / (logins.certificate_users_file or CERTIFICATE_USERS_FILE)
    roles = folder / (logins.certificate_roles_file or CERTIFICATE_ROLES_FILE)
    named = logins.certificate_users_file is not None
    return (users, roles) if named or users.exists() or roles.exists() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"security is enabled: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is no UTF-8: {error.reason}", file=str(path)) from error
