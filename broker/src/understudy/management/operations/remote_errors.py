"""Texts of errors of files of the instance for remote clients."""

from __future__ import annotations

from understudy.errors import BrokerError, ConfigError


def without_directory(error: BrokerError) -> str:
    """The text of an error of a file for a remote client: file, element and line, but not the directory."""
    text, file = str(error), error.file if isinstance(error, ConfigError) else None
    return text.replace(file, file.rpartition("/")[2]) if file else text
