"""Rows that the queue sink cannot send: counted, described, and written to a directory if there is one.

A task writes under a hidden name of its own and the driver renames the file when Spark commits the write, so that an
attempt that fails or is repeated leaves no rows twice. Works without a running Spark.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

from understudy.dataclass import dataclass
from understudy.errors import ConfigError

#: Characters of a reason, which may quote a value of the row.
_REASON_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Refused:
    """The rows that one task could not send."""

    rows: int
    first: str
    """Place of the first one, and why it cannot be sent."""
    file: str | None
    """Hidden file with all of them; None without a directory."""
    name: str
    """Name of the file after the commit."""


class DeadRows:
    """The rows that one attempt of a task could not send."""

    def __init__(self, directory: str | None, task: str) -> None:
        """
        Args:
            directory: For the rows; None keeps only their number and the first reason.
            task: The same for every attempt of the task, and of no other task: the begin of its duplicate ids.
        """
        self._directory = None if directory is None else Path(directory)
        self._task = task
        self._rows = 0
        self._first = ""
        self._path: Path | None = None
        self._file: TextIO | None = None

    def __enter__(self) -> DeadRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if kind is not None and self._path is not None:
            self._path.unlink(missing_ok=True)

    def add(self, number: int, row: Mapping[str, Any], reason: str) -> None:
        """Keep a row.

        Args:
            number: Of the row in its task.
            row: Values by column, as ``sent_rows`` gives them.
            reason: Why it cannot be sent.

        Raises:
            ConfigError: the directory cannot be written.
        """
        reason = reason if len(reason) <= _REASON_CHARACTERS_MAX else f"{reason[:_REASON_CHARACTERS_MAX]}..."
        self._rows += 1
        self._first = self._first or f"row {number} of {self._task}: {reason}"
        if self._directory is None:
            return
        try:
            if self._file is None:
                self._directory.mkdir(parents=True, mode=0o700, exist_ok=True)
                self._path = self._directory / f".{uuid.uuid4().hex}.new"
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                self._file = os.fdopen(descriptor, "w", encoding="utf-8")
            values = {"reason": reason, "task": self._task, "row": number, "values": row}
            self._file.write(json.dumps(values, default=_plain) + "\n")
        except OSError as error:
            raise _unwritable(self._directory, error) from error

    def refused(self) -> Refused | None:
        """The rows, durable if they are in a file; None if there are none.

        Raises:
            ConfigError: the directory cannot be written.
        """
        if self._file is not None:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())
            except OSError as error:
                assert self._directory is not None
                raise _unwritable(self._directory, error) from error
        if not self._rows:
            return None
        path = None if self._path is None else str(self._path)
        return Refused(self._rows, self._first, path, f"{self._task.replace('/', '-')}.jsonl")


def publish(refused: Iterable[Refused]) -> None:
    """Give the files of committed tasks their names; a batch that is repeated replaces its own.

    Raises:
        ConfigError: a file cannot be renamed.
    """
    for each in refused:
        if each.file is None:
            continue
        path = Path(each.file)
        try:
            os.replace(path, path.parent / each.name)
        except OSError as error:
            raise _unwritable(path.parent, error) from error


def drop(refused: Iterable[Refused]) -> None:
    """Remove the files of tasks whose write is aborted."""
    for each in refused:
        if each.file is not None:
            Path(each.file).unlink(missing_ok=True)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _unwritable(directory: Path, error: OSError) -> ConfigError:
    hint = "all workers and the driver must be able to write there"
    return ConfigError(f"option deadRows: cannot be written: {error.strerror}", file=str(directory), hint=hint)
