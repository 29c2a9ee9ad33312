"""``understudy migrate``: from an instance directory of Artemis to one of Understudy."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from understudy.cli.node.instances import write_etc
from understudy.cli.tables import Column, Kind, Table, View, view_options
from understudy.cli.terminal import Commands, echo
from understudy.config.instance_files import (
    BOOTSTRAP_FILE,
    CERTIFICATE_ROLES_FILE,
    CERTIFICATE_USERS_FILE,
    CONFIG_FILE,
    LOGIN_FILE,
    ROLES_FILE,
    TOKEN_FILE,
    USERS_FILE,
    launcher_properties,
)
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError
from understudy.limits import CONFIG_BYTES_MAX
from understudy.migration.instance import ArtemisInstance, read_instance
from understudy.migration.report import Finding, findings
from understudy.runtime.base.environment import SystemEntropy
from understudy.security.password_hashes import PasswordHash, is_plain
from understudy.security.properties_file import entries, replaced

_TOKEN_BYTES: Final = 24
_DIRECTORY = click.Path(path_type=Path, file_okay=False)


FINDINGS: Final = Table(
    "findings",
    (
        Column("place", Kind.NAME, "File and line, or element.", title="where"),
        Column("have", Kind.TEXT, "Setting of the instance.", title="what you have"),
        Column("here", Kind.TEXT, "Its effect in Understudy.", title="what happens here"),
        Column("action", Kind.TEXT, "Advice.", title="what to do"),
        Column("blocks", Kind.NAME, "Whether the instance cannot be used as it is.", optional=True),
    ),
)


@click.group(cls=Commands)
def migrate() -> None:
    """Compare an instance directory of Artemis with this version, and make an instance of Understudy from it."""


@migrate.command()
@click.argument("directory", type=_DIRECTORY)
@view_options(FINDINGS)
def check(directory: Path, view: View) -> None:
    """Print what of the Artemis instance in DIRECTORY is refused here or behaves otherwise, and what to do.

    Reads broker.xml, login.config, bootstrap.xml, artemis.profile, users and roles in DIRECTORY/etc; changes nothing.
    Exit code: 0 nothing to do, 1 something behaves otherwise, 2 the instance cannot be used as it is.

    \b
    Example: understudy migrate check /var/lib/artemis-instance
    """
    found = findings(_read(directory))
    _print(found, directory, view)
    sys.exit(2 if any(each.blocks for each in found) else 1 if found else 0)


@migrate.command()
@click.argument("directory", type=_DIRECTORY)
@click.argument("target", type=_DIRECTORY)
@click.option("--force", is_flag=True, help="Replace the configuration in TARGET; the old one goes to etc.replaced.")
@view_options(FINDINGS)
def convert(directory: Path, target: Path, force: bool, view: View) -> None:
    """Write an instance of Understudy into TARGET from the Artemis instance in DIRECTORY.

    broker.xml and the files that it includes are taken over unchanged, users and roles as well, with plain passwords
    hashed. Values of artemis.profile become part of the command that is printed. Nothing is written if something would
    make the instance unusable. Messages are not taken over. Exit code as of `check`.

    \b
    Example: understudy migrate convert /var/lib/artemis-instance /var/lib/understudy/node
    """
    if (target / "etc" / CONFIG_FILE).exists() and not force:
        hint = "--force replaces the configuration"
        raise ConfigError("exists already", file=str(target / "etc" / CONFIG_FILE), hint=hint)
    instance = _read(directory)
    found = [each for each in findings(instance) if not _is_converted(each, instance)]
    if any(each.blocks for each in found):
        _print(found, directory, view)
        echo("Nothing was written.", err=True)
        sys.exit(2)
    files = _files(instance, directory / "etc")
    usual = launcher_properties(instance.directory)
    properties = {
        name: value
        for name, value in instance.properties.items()
        if f"${{{name}" in files[CONFIG_FILE] and value != usual.get(name)
    }
    config = str(target / "etc" / CONFIG_FILE)
    read_broker_xml(
        files[CONFIG_FILE].encode(),
        file=config,
        base_directory=str(target),
        properties=launcher_properties(str(target)) | properties,
        read_file=lambda path: files[Path(path).name].encode(),
    )
    try:
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_etc(target / "etc", files)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=error.filename or str(target)) from error
    _print(found, directory, view)
    given = "".join(f" --property {name}={value}" for name, value in sorted(properties.items()))
    echo(f"Written: {target}/etc. Start it with: understudy run --instance {target}{given}", err=view.as_json)
    sys.exit(1 if found else 0)


def _read(directory: Path) -> ArtemisInstance:
    def read_file(path: str) -> bytes:
        with Path(path).open("rb") as file:
            return file.read(CONFIG_BYTES_MAX + 1)

    return read_instance(str(directory.absolute()), read_file)


def _is_converted(finding: Finding, instance: ArtemisInstance) -> bool:
    """Whether the conversion carries out what a finding asks for."""
    plain = {f"{instance.users_file}:{entry.line}" for entry in instance.users if is_plain(entry)}
    return finding.place in plain


def _files(instance: ArtemisInstance, etc: Path) -> dict[str, str]:
    """Contents of the files of the new instance by their names."""
    logins = instance.logins
    files = {
        CONFIG_FILE: (etc / CONFIG_FILE).read_text(),
        TOKEN_FILE: secrets.token_urlsafe(_TOKEN_BYTES) + "\n",
    }
    included = instance.loaded.included if instance.loaded is not None else ()
    names = {
        LOGIN_FILE,
        BOOTSTRAP_FILE,
        logins.roles_file or ROLES_FILE,
        logins.certificate_users_file or CERTIFICATE_USERS_FILE,
        logins.certificate_roles_file or CERTIFICATE_ROLES_FILE,
        *(Path(path).name for path in included),
    }
    for name in sorted(names):
        if (etc / name).exists():
            files[name] = (etc / name).read_text()
    users = etc / (logins.users_file or USERS_FILE)
    if users.exists():
        text = users.read_text()
        entropy = SystemEntropy()
        plain = [entry for entry in entries(text, str(users)) if is_plain(entry)]
        hashes = {entry.key: str(PasswordHash.make(entry.value, entropy)) for entry in plain}
        files[users.name] = replaced(text, str(users), hashes)
    return files


def _print(found: list[Finding], directory: Path, view: View) -> None:
    rows = [asdict(each) | {"place": each.place.removeprefix(f"{directory.absolute()}/")} for each in found]
    if view.as_json:
        view.rows(FINDINGS, [asdict(each) for each in found])
    elif not found:
        echo(f"{directory}: nothing to do")
    else:
        view.rows(FINDINGS, rows, style=lambda row: "bold" if row["blocks"] else "")
        blocking = sum(each.blocks for each in found)
        echo(f"{len(found)} findings, {blocking} of them make the instance unusable until they are corrected")
