"""The batches of a session of the management CLI: the open one, and those that are held back.

Not here: carrying a batch out, which is one request to the node (``session``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from understudy.cli.console.lines import joined, lines_of
from understudy.errors import ConfigError
from understudy.limits import COMPOSITE_STEPS_MAX
from understudy.management.dmr.grammar import Command, Operation

_FILE: Final = "--file="
#: Batches that one session holds back.
HELD_BATCHES_MAX: Final = 100


class Batches:
    """The operations of the open batch, and the batches that are held back by their names."""

    def __init__(
        self,
        operation: Callable[[str], Operation | None],
        execute: Callable[[list[Operation]], None],
        say: Callable[[str], None],
    ) -> None:
        """Args:
        operation: The operation of a line; None: the line is empty or a comment. Raises ConfigError.
        execute: Carries operations out as one. Raises Failed, and BrokerError: the node does not answer.
        say: Prints a line.
        """
        self._operation = operation
        self._execute = execute
        self._say = say
        self.open: list[Operation] | None = None
        """The operations of the open batch; None: no batch is open."""
        self._held: dict[str, list[Operation]] = {}
        """Batches by their names; the name is empty for the one that was held back without a name."""
        self.commands: Mapping[str, Callable[[Command], None]] = {
            "batch": self._begin,
            "clear-batch": lambda command: self._opened().clear(),
            "discard-batch": self._discard,
            "edit-batch-line": self._edit_line,
            "holdback-batch": self._hold_back,
            "list-batch": self._list,
            "move-batch-line": self._move_line,
            "remove-batch-line": self._remove_line,
            "run-batch": self._run,
        }

    def add(self, operation: Operation) -> None:
        """Add an operation to the open batch. Raises ConfigError: none is open, or it is full."""
        batch = self._opened()
        if len(batch) >= COMPOSITE_STEPS_MAX:
            raise ConfigError(f"a batch has at most {COMPOSITE_STEPS_MAX} operations")
        batch.append(operation)

    def check_run(self) -> None:
        """Raise ConfigError if a batch with operations was not run, since its changes would be missing silently."""
        left = [each for each in (self.open, *self._held.values()) if each]
        if left:
            held = "" if self.open else ", but is held back"
            raise ConfigError(f"a batch of {len(left[0])} operations was not run{held}", hint="end it with run-batch")

    def _opened(self) -> list[Operation]:
        if self.open is None:
            raise ConfigError("no batch is open", hint="begin one with `batch`")
        return self.open

    def _begin(self, command: Command) -> None:
        if command.arguments == ("-l",):
            for name in sorted(self._held):
                self._say(name or "(without a name)")
            return
        if self.open is not None:
            raise ConfigError("a batch is open already")
        name, file = _name_and_file(command)
        if file is not None:
            self.open = self._read(file)
        elif name in self._held:
            self.open = self._held.pop(name)
        elif name:
            raise ConfigError(f"no batch {name!r} is held back", hint="`batch -l` lists them")
        else:
            self.open = []

    def _hold_back(self, command: Command) -> None:
        batch = self._opened()
        name, file = _name_and_file(command)
        if file is not None:
            raise ConfigError("holdback-batch [NAME] is expected")
        if name in self._held:
            held = f"a batch {name!r}" if name else "a batch without a name"
            raise ConfigError(f"{held} is held back already", hint="give another name")
        if len(self._held) >= HELD_BATCHES_MAX:
            raise ConfigError(f"at most {HELD_BATCHES_MAX} batches are held back")
        self._held[name] = batch
        self.open = None

    def _list(self, command: Command) -> None:
        for number, operation in enumerate(self._opened(), 1):
            self._say(f"#{number} {operation}")

    def _discard(self, command: Command) -> None:
        self._opened()
        self.open = None

    def _edit_line(self, command: Command) -> None:
        batch = self._opened()
        number, _, line = command.rest.partition(" ")
        place = _place(number, batch)
        edited = self._operation(line)
        if edited is None:
            raise ConfigError("edit-batch-line NUMBER OPERATION is expected")
        batch[place] = edited
        self._say(f"#{place + 1} {edited}")

    def _move_line(self, command: Command) -> None:
        batch = self._opened()
        if len(command.arguments) != 2:
            raise ConfigError("move-batch-line NUMBER NEW-NUMBER is expected")
        moved, place = (_place(number, batch) for number in command.arguments)
        batch.insert(place, batch.pop(moved))

    def _remove_line(self, command: Command) -> None:
        batch = self._opened()
        if len(command.arguments) != 1:
            raise ConfigError("remove-batch-line NUMBER is expected")
        del batch[_place(command.arguments[0], batch)]

    def _run(self, command: Command) -> None:
        name, file = _name_and_file(command)
        if name:
            raise ConfigError("run-batch [--file=FILE] is expected")
        if file is None:
            self._execute(_whole(self._opened()))
            # after a failure the batch stays, so that it can be corrected
            self.open = None
        elif self.open is not None:
            raise ConfigError("a batch is open already", hint="run it, or hold it back, before another one")
        else:
            self._execute(_whole(self._read(file)))

    def _read(self, file: Path) -> list[Operation]:
        """The operations of a file. Raises ConfigError: it cannot be read, or has another line or too many."""
        found = []
        for number, line in enumerate(joined(lines_of(file)), 1):
            try:
                operation = self._operation(line)
            except ConfigError as error:
                raise ConfigError(f"operation {number}: {error}", file=str(file), hint=error.hint) from error
            if operation is not None:
                found.append(operation)
        if len(found) > COMPOSITE_STEPS_MAX:
            raise ConfigError(f"{len(found)} operations, a batch has at most {COMPOSITE_STEPS_MAX}", file=str(file))
        return found


def _name_and_file(command: Command) -> tuple[str, Path | None]:
    """The name and the file that are given to a command. Raises ConfigError: there is more."""
    if len(command.arguments) > 1:
        raise ConfigError(f"{command.name}: one name or {_FILE}FILE is expected")
    given = "".join(command.arguments)
    if given.startswith(_FILE):
        return "", Path(given.removeprefix(_FILE))
    if given.startswith("-"):
        raise ConfigError(f"{command.name} has no option {given!r}")
    return given, None


def _place(number: str, batch: list[Operation]) -> int:
    """The place of a line, from 0. Raises ConfigError: the batch has no line of this number."""
    if not number.isdecimal() or not number.isascii() or len(number) > 9 or not 1 <= int(number) <= len(batch):
        raise ConfigError(f"the batch has no line {number!r}", hint="`list-batch` shows the lines with their numbers")
    return int(number) - 1


def _whole(batch: list[Operation]) -> list[Operation]:
    if not batch:
        raise ConfigError("the batch has no operation")
    return batch
