"""Texts of errors for remote clients, without paths of files of the host.

Errors of the store and of the configuration name files. Their text goes to the log together with a reference; the
client gets a neutral text with the same reference, by which an operator finds the line.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from understudy.errors import AddressFull, BrokerError, ConfigError, DiskFull, LargeMessageFailed, StoreError

log = logging.getLogger(__name__)

#: Different texts that keep their reference, so that a repeated error is logged once.
TEXTS_MAX: Final = 100

_NEUTRAL: Final[tuple[tuple[type[BrokerError], str], ...]] = (
    (DiskFull, "the disk of the broker is full"),
    (StoreError, "the store of the broker has failed"),
    (ConfigError, "the configuration of the broker cannot be used"),
    (LargeMessageFailed, "the body of a large message cannot be stored or read"),
    (BrokerError, "the broker could not read or write its files"),
)


class ErrorTexts:
    """Texts of errors for remote clients."""

    def __init__(self, prefix: str = "E") -> None:
        """Begin with a prefix for the references that errors get."""
        self._prefix = prefix
        self._count = 0
        self._references: OrderedDict[str, str] = OrderedDict()

    def remote(self, error: BrokerError) -> str:
        """The text of an error without names of files; logs the full text, with a reference."""
        naming = next((each for each in (error, error.__cause__) if _names_files(each)), None)
        if naming is None:
            return str(error)
        if naming is not error and isinstance(error, (AddressFull, LargeMessageFailed)):
            # the texts of these errors reveal nothing, but their causes may
            text = str(error)
        else:
            text = next(neutral for kind, neutral in _NEUTRAL if isinstance(error, kind))
        return f"{text} (reference {self._reference(error, naming)} in the log of the broker)"

    def _reference(self, error: BrokerError, naming: BaseException) -> str:
        full = f"{error}: {naming}" if naming is not error else str(error)
        reference = self._references.get(full)
        if reference is None:
            self._count += 1
            reference = self._references[full] = f"{self._prefix}{self._count}"
            log.warning(
                "error of a client's request", extra={"reference": reference, "code": error.code, "error": full}
            )
            if len(self._references) > TEXTS_MAX:
                self._references.popitem(last=False)
        return reference


def _names_files(error: BaseException | None) -> bool:
    if isinstance(error, LargeMessageFailed):
        return bool(error.file)
    return isinstance(error, (StoreError, ConfigError, OSError))


def without_directory(error: BrokerError) -> str:
    """The text of an error of a file for a remote client: file, element and line, but not the directory."""
    text, file = str(error), error.file if isinstance(error, ConfigError) else None
    return text.replace(file, file.rpartition("/")[2]) if file else text
