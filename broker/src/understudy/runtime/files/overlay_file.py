"""The file of the overlay of broker.xml: read with it, and written as a whole by one writer at a time (ADR 0170).

A reader finds the overlay before a change or after it, whatever ends the process meanwhile. A file that starts with a
point may remain after a crash; nothing reads it. Not here: the meaning of the file (``config.edit.overlay``).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from understudy.config.edit.overlay import OVERLAY_FILE, Override, format_overlay, parse_overlay
from understudy.errors import ConfigError
from understudy.limits import OVERLAY_BYTES_MAX
from understudy.runtime.files.replacement import replace, sync_directory


def overlay_of(config: Path) -> Path:
    """The path of the overlay of a broker.xml."""
    return config.parent / OVERLAY_FILE


def read_overlay(config: Path) -> tuple[Override, ...]:
    """The overlay of a broker.xml; empty if there is no file. Raises ConfigError: it cannot be read or used."""
    path = overlay_of(config)
    try:
        with path.open("rb") as file:
            data = file.read(OVERLAY_BYTES_MAX + 1)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(path)) from error
    return parse_overlay(data, str(path))


@contextmanager
def overlay_writer(config: Path) -> Iterator[None]:
    """Keep other writers of the overlay away, in this process and in others. The directory is made if it is missing.

    Raises:
        ConfigError: another writer is at work, or the directory cannot be made.
    """
    directory = overlay_of(config).parent
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        hint = "the user of the broker needs to write in this directory"
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(directory), hint=hint) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        message = "another change of the configuration is being made"
        raise ConfigError(message, file=str(directory), hint="repeat the command") from None
    finally:
        os.close(descriptor)


def write_overlay(config: Path, overrides: Sequence[Override]) -> None:
    """Write the overlay of a broker.xml as a whole. The caller has ``overlay_writer``.

    Raises:
        ConfigError: there are too many entries, or the file cannot be written; the old overlay counts.
    """
    path, data = overlay_of(config), format_overlay(overrides)
    try:
        replace(path, data)
        # the first time, the directory itself is new as well
        sync_directory(path.parent.parent)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error
