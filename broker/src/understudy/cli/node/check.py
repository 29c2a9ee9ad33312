"""Checks of ``understudy run --check`` in addition to broker.xml: logins, and the files of TLS.

Nothing is started. The same files are read again at every start.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from understudy.cli.node.user_files import login_modules, logins_beside, user_files
from understudy.config.changes import changes
from understudy.config.model import Configuration
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.protocols.amqp091.sasl import DEFAULT_LOGIN
from understudy.runtime.base.environment import SystemClock, SystemEntropy
from understudy.runtime.base.file_modes import check_files
from understudy.runtime.management.listener import is_loopback
from understudy.runtime.members.discovery import carrier_of
from understudy.runtime.net.tls_acceptors import TlsAcceptors
from understudy.security.authentication import parse_roles, parse_users
from understudy.security.password_hashes import StoredPassword
from understudy.tls.contexts import client_context


def check_security(configuration: Configuration, folder: Path) -> list[str]:
    """Warnings about users, roles and permissions; empty where security is disabled.

    Args:
        configuration: Configuration as read from broker.xml.
        folder: Directory of broker.xml, where the users and roles files have to be.

    Raises:
        ConfigError: a file that a start needs is missing or cannot be used; all missing files are named.
    """
    if not configuration.security_enabled:
        return []
    logins = logins_beside(folder)
    login_modules(logins)
    if not logins.has_users_file:
        return [*logins.warnings]
    users_file, roles_file, *_ = user_files(folder, logins)
    missing = [str(path) for path in (users_file, roles_file) if not os.access(path, os.R_OK)]
    if missing:
        raise ConfigError(
            f"security-enabled is true, but {' and '.join(missing)} cannot be read; the node would not start",
            file=str(folder / "broker.xml"),
            hint="write both files (`understudy user hash NAME` prints a line of the first), or disable security",
        )
    users = parse_users(users_file.read_text(), file=str(users_file), entropy=SystemEntropy())
    roles = parse_roles(roles_file.read_text(), file=str(roles_file))
    warnings = [*logins.warnings]
    if not users:
        warnings.append(f"{users_file}: has no user, so no client can log in")
    guest, password = DEFAULT_LOGIN
    if guest in users and users[guest].verify(password):
        warnings.append(
            f"{users_file}: user {guest!r} has the password that everyone knows; clients of AMQP 0-9-1 can log in so "
            "from loopback addresses only"
        )
    unknown = sorted(set(roles) - set(users))
    warnings += [f"{roles_file}: user {user!r} is not in {users_file.name}" for user in unknown]
    if logins.passwords:
        # roles of users of the directory are not known before they log in
        return warnings
    return [*warnings, *_permission_warnings(configuration, users, roles)]


def check_plain_logins(configuration: Configuration) -> list[str]:
    """Warnings about acceptors without TLS at which clients of other hosts send their passwords in plain text, over
    CORE and AMQP 0-9-1 alike; empty where security is disabled.
    """
    if not configuration.security_enabled:
        return []
    return [
        f"acceptor {each.name!r} ({each.url}) has no TLS: clients of other hosts send their passwords in plain text; "
        "use it in a network of trusted hosts, or set sslEnabled=true"
        for each in configuration.acceptors
        if each.tls is None and not is_loopback(each.host)
    ]


def check_tls(configuration: Configuration) -> list[str]:
    """Warnings about certificates of acceptors that have expired or expire soon, and about readable keys.

    Raises:
        ConfigError: a file of an acceptor or connector cannot be used; names it.
    """
    acceptors = TlsAcceptors(configuration, SystemClock())
    acceptors.read()
    for connector in configuration.connectors:
        if connector.tls is not None:
            client_context(connector.tls)
    return [*acceptors.expiry_warnings(), *check_files(key_files(configuration), [])]


def check_carriers(configuration: Configuration) -> None:
    """Raises ConfigError: the JGroups stack of a broadcast or discovery group cannot be used."""
    carriers = [each.carrier for each in configuration.broadcast_groups]
    carriers += [each.carrier for each in configuration.discovery_groups]
    for carrier in carriers:
        carrier_of(carrier)


def check_readable(configuration: Configuration, user: str) -> None:
    """Check that the user of the service can read the files of TLS; by a process of root.

    Raises:
        ConfigError: there is no such user, this is not root, or the user cannot read a file; names the first one.
    """
    settings = [each.tls for each in configuration.acceptors] + [each.tls for each in configuration.connectors]
    paths = dict.fromkeys(path for each in settings if each is not None for path in each.files())
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ConfigError(f"--user {user!r}: there is no such user") from None
    before = os.geteuid(), os.getegid(), os.getgroups()
    try:
        os.setgroups(os.getgrouplist(found.pw_name, found.pw_gid))
        os.setegid(found.pw_gid)
        os.seteuid(found.pw_uid)
    except PermissionError:
        raise ConfigError(f"--user {user!r}: only root can check files as another user") from None
    try:
        for path in paths:
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            except OSError as error:
                raise ConfigError(f"user {user!r} cannot read it: {error.strerror}", file=path) from error
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])
        os.setgroups(before[2])


def effects(running: LoadedConfig, changed: LoadedConfig) -> list[str]:
    """Effects of a changed file on a running node: a line ``applies at once: ...`` and a line ``needs a restart: ...``,
    each only if it names an element.
    """
    present = {each.name: each for each in running.configurations()}
    wanted = {each.name: each for each in changed.configurations()}
    several = len(present) > 1 or len(wanted) > 1
    applied: list[str] = []
    restart = [f"server {name!r}" for name in sorted(present.keys() ^ wanted.keys())]
    for name in present.keys() & wanted.keys():
        change = changes(present[name], wanted[name])
        place = f"server {name!r}: " if several else ""
        applied += [f"{place}{element}" for element in change.applied]
        restart += [f"{place}{element}" for element in change.restart]
    lines = {"applies at once": applied, "needs a restart": restart}
    return [f"{title}: {', '.join(elements)}" for title, elements in lines.items() if elements]


def key_files(configuration: Configuration) -> list[str]:
    """Files with private keys."""
    settings = [
        *(acceptor.tls for acceptor in configuration.acceptors),
        *(connector.tls for connector in configuration.connectors),
    ]
    stores = [each.key_store.path for each in settings if each is not None and each.key_store is not None]
    return list(dict.fromkeys(stores))


def _permission_warnings(
    configuration: Configuration, users: Mapping[str, StoredPassword], roles: Mapping[str, frozenset[str]]
) -> list[str]:
    if not configuration.security_settings:
        return ["security-settings: there is none, so no user may do anything"]
    held = {role for user in users for role in roles.get(user, ())}
    return [
        f"security-setting {setting.match!r}: no user of the users file has the role {role!r}"
        for setting in configuration.security_settings
        for role in sorted({role for granted in setting.permissions.values() for role in granted} - held)
    ]
