"""Instance directories on disk: the files of a new one are written here."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from understudy.config.instance_files import (
    CONFIG_FILE,
    ROLES_FILE,
    TOKEN_FILE,
    USERS_FILE,
    InstanceOptions,
    broker_xml,
    roles_file,
    users_file,
)
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.runtime.base.environment import SystemEntropy
from understudy.security.password_hashes import PasswordHash

_TOKEN_BYTES: Final = 24


def config_of(directory: Path) -> Path:
    """The broker.xml of an instance directory."""
    return directory / "etc" / CONFIG_FILE


def token_of(config: Path) -> Path | None:
    """The management token beside a broker.xml, or None."""
    token = config.parent / TOKEN_FILE
    return token if token.exists() else None


def default_options() -> InstanceOptions:
    """The instance of ``understudy run`` without arguments: loopback, port 61616, no login."""
    return InstanceOptions(name="understudy", role=None)


def preview(directory: Path, options: InstanceOptions) -> LoadedConfig:
    """The configuration that ``create_instance`` would write, read back; nothing is written.

    Raises:
        ConfigError: an option makes a configuration that cannot be used.
    """
    data = broker_xml(options).encode()
    return read_broker_xml(data, file=str(config_of(directory)), base_directory=str(directory))


def create_instance(
    directory: Path, options: InstanceOptions, *, user: str = "", password: str = "", replace: bool = False
) -> Path:
    """Write a new instance and return its broker.xml. Its ``etc`` directory appears complete or not at all.

    Args:
        directory: Made with its parents when it does not exist; other files in it are left alone.
        options: What to write.
        user: The first user; used when the options name a role.
        password: Password of the user; only its salted hash is written.
        replace: Replace an existing ``etc`` directory. The store is never touched.

    Raises:
        ConfigError: the instance exists, or an option or the directory cannot be used.
    """
    target = config_of(directory)
    if target.exists() and not replace:
        raise ConfigError("exists already", file=str(target), hint="--force replaces the configuration")
    preview(directory, options)
    files = {CONFIG_FILE: broker_xml(options), TOKEN_FILE: secrets.token_urlsafe(_TOKEN_BYTES) + "\n"}
    if options.role is not None:
        files[USERS_FILE] = users_file(user, str(PasswordHash.make(password, SystemEntropy())))
        files[ROLES_FILE] = roles_file(user, options.role)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_etc(target.parent, files)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=error.filename or str(directory)) from error
    return target


def write_etc(etc: Path, files: Mapping[str, str]) -> None:
    """Write the files into a new directory, sync them, and put it in the place of ``etc``. Raises OSError."""
    made = Path(tempfile.mkdtemp(prefix=".etc-", dir=etc.parent))
    try:
        for name, text in files.items():
            descriptor = os.open(made / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        if etc.exists():
            replaced = etc.with_name(f"{etc.name}.replaced")
            shutil.rmtree(replaced, ignore_errors=True)
            etc.rename(replaced)
        made.rename(etc)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
