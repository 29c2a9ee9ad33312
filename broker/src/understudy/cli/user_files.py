"""The files of users and roles of a node, beside its broker.xml under the names that Artemis uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from understudy.config.instance_files import CERTIFICATE_ROLES_FILE, CERTIFICATE_USERS_FILE, ROLES_FILE, USERS_FILE
from understudy.config.model import Configuration
from understudy.config.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.environment import SystemClock, SystemEntropy
from understudy.runtime.node import BrokerNode
from understudy.runtime.reloading import ConfigurationFiles
from understudy.runtime.users_file import UsersFile
from understudy.security.authorization import (
    NO_USERS,
    CertificateTexts,
    RoleSecurity,
    SecurityPolicy,
    UserTexts,
    authenticator_of,
    security_policy,
)


def security_of(configuration: Configuration, folder: Path) -> SecurityPolicy:
    """Users, roles and permissions of a node.

    Args:
        configuration: As read from broker.xml.
        folder: Directory of broker.xml.

    Raises:
        ConfigError: security is enabled and a file is missing or cannot be used.
    """
    texts = user_texts(folder) if configuration.security_enabled else NO_USERS
    rehashed = UsersFile(folder / USERS_FILE).rehashed
    return security_policy(configuration, SystemEntropy(), SystemClock(), texts, rehashed=rehashed)


def watched_files(
    node: BrokerNode,
    security: SecurityPolicy,
    config: Path,
    read: Callable[[], LoadedConfig],
    included: Iterable[str] = (),
) -> ConfigurationFiles:
    """The files of a node that are reloaded while it runs.

    Args:
        node: The node.
        security: Made by ``security_of``.
        config: Path of broker.xml.
        read: Reads that file.
        included: Files that it includes.
    """
    folder = config.parent
    rehashed = UsersFile(folder / USERS_FILE).rehashed

    def read_users() -> Callable[[], None]:
        assert isinstance(security, RoleSecurity)
        changed = authenticator_of(
            node.configuration, SystemEntropy(), SystemClock(), user_texts(folder), rehashed=rehashed
        )
        return partial(security.change_users, changed)

    files = ConfigurationFiles(
        node,
        (config, *map(Path, included)),
        read,
        user_files(folder) if isinstance(security, RoleSecurity) else (),
        read_users,
        period_ms=node.configuration.configuration_file_refresh_period_ms,
    )
    node.serving.reload = files.ask
    return files


def user_files(folder: Path) -> tuple[Path, ...]:
    """The files of users and roles, and those of certificates if one of the two exists."""
    return folder / USERS_FILE, folder / ROLES_FILE, *(_certificate_files(folder) or ())


def user_texts(folder: Path) -> UserTexts:
    """The contents of the files. Raises ConfigError: one is missing or cannot be read."""
    users, roles = folder / USERS_FILE, folder / ROLES_FILE
    certificates = None
    found = _certificate_files(folder)
    if found is not None:
        certificates = CertificateTexts(_text(found[0]), str(found[0]), _text(found[1]), str(found[1]))
    return UserTexts(_text(users), str(users), _text(roles), str(roles), certificates)


def _certificate_files(folder: Path) -> tuple[Path, Path] | None:
    users, roles = folder / CERTIFICATE_USERS_FILE, folder / CERTIFICATE_ROLES_FILE
    return (users, roles) if users.exists() or roles.exists() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"security is enabled: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is no UTF-8: {error.reason}", file=str(path)) from error
