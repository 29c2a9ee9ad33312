"""The lines of the management CLI carried out one after the other: operations, commands, batches and blocks.

Not here: the connection to the node and the command line (``command``), and the prompt (``prompt``).
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from understudy import __version__
from understudy.cli.console.batches import Batches
from understudy.cli.console.lines import Block, Counted, collect, first_word, is_block, joined
from understudy.errors import BrokerError, ConfigError, ManagementError
from understudy.management.dmr.conditions import holds
from understudy.management.dmr.grammar import Address, Command, Operation, format_address, parse_address, parse_line
from understudy.management.dmr.values import Value, to_json

Answer = Mapping[str, Value]
"""The answer of a node to an operation or a batch."""
Send = Callable[[Sequence[Operation], bool], Answer]
"""Has a node carry out operations; the second argument says whether they are one composite."""

#: Lines that the command ``history`` shows; earlier ones are forgotten.
HISTORY_LINES_MAX: Final = 500
_NODE: Final = "--node="
_CONDITION: Final = re.compile(r"\((?P<condition>.*)\)\s*of\s+(?P<line>.+)", re.DOTALL)
_LOOP: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)\s+in\s+(?P<line>.+)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_SETTING: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)


class Failed(BrokerError):
    """A line that a node answered with a failure, which has been shown."""

    code = "management-failed"


class Session:
    """A session of the management CLI."""

    def __init__(
        self,
        send: Send,
        reload: Callable[[Operation], Answer],
        show: Callable[[Answer], None],
        say: Callable[[str], None],
        *,
        echo_lines: bool = False,
    ) -> None:
        """Args:
        send: Has a node carry out operations.
        reload: Has a node reload, and waits for it.
        show: Prints an answer.
        say: Prints a line.
        echo_lines: Whether each line is printed before it is carried out.
        """
        self._send = send
        self._reload = reload
        self._show = show
        self._say = say
        self._echo_lines = echo_lines
        self.node: Address = ()
        """The current node, where relative addresses start."""
        self._batches = Batches(self._batched, self._execute, say)
        self.ended = False
        """Whether ``quit`` was given."""
        self._variables: dict[str, str] = {}
        self._history: deque[str] = deque(maxlen=HISTORY_LINES_MAX)
        self._keeps_history = True
        self._commands: Mapping[str, Callable[[Command], None]] = {
            **self._batches.commands,
            "cd": self._change_node,
            "connect": lambda command: None,
            "echo": lambda command: self._say(" ".join(command.arguments)),
            "echo-dmr": self._echo_request,
            "help": self._help,
            "history": self._show_history,
            "ls": self._list,
            "pwd": lambda command: self._say(format_address(self.node)),
            "quit": self._quit,
            "read-attribute": self._read_attribute,
            "read-operation": self._read_operation,
            "reload": self._reload_node,
            "set": self._set,
            "unset": self._unset,
            "version": lambda command: self._say(f"Understudy {__version__}"),
        }

    @property
    def batch(self) -> list[Operation] | None:
        """The operations of the open batch; None: no batch is open."""
        return self._batches.open

    @property
    def command_names(self) -> list[str]:
        """Names of the commands, sorted."""
        return sorted((*self._commands, "if", "try", "for"))

    def run(self, lines: Iterable[str], file: str | None = None) -> None:
        """Carry out lines until one fails or ``quit``.

        Args:
            file: Script that has the lines, named by errors.

        Raises:
            Failed: a node answered with a failure.
            ConfigError: a line cannot be read.
            BrokerError: the node does not answer.
        """
        read = Counted(lines)
        following = joined(read)
        try:
            for line in following:
                self.carry_out(line, following)
                if self.ended:
                    return
            self._batches.check_run()
        except ConfigError as error:
            if file is None or error.file is not None:
                raise
            raise ConfigError(str(error), file=file, line=read.number) from error

    def carry_out(self, line: str, following: Iterator[str]) -> None:
        """Carry out one line, or the block that it begins, whose lines are the following ones. Raises as ``run``."""
        if self._echo_lines and line.strip():
            self._say(line)
        if self._keeps_history and line.strip():
            self._history.append(line.strip())
        if is_block(line):
            self._run_block(collect(line, following))
            return
        self._carry_out(self._parsed(line))

    def _parsed(self, line: str) -> Operation | Command | None:
        return parse_line(self._substituted(line), self.node)

    def _substituted(self, line: str) -> str:
        """The line with the values of variables that are set; other texts with a dollar stay."""
        return _VARIABLE.sub(lambda match: self._variables.get(match[1] or match[2], match[0]), line)

    def _carry_out(self, found: Operation | Command | None) -> None:
        if isinstance(found, Operation):
            self._carry_out_operation(found)
        elif found is not None:
            name = {"cn": "cd", "pwn": "pwd", "exit": "quit", "q": "quit"}.get(found.name, found.name)
            handler = self._commands.get(name)
            if handler is None:
                raise ConfigError(f"there is no command {found.name!r}", hint="`help` lists them")
            handler(found)

    def _carry_out_operation(self, operation: Operation) -> None:
        if operation.name == "reload" and not operation.address:
            if self.batch is not None:
                raise ConfigError("reload is not possible in a batch")
            self._answered(self._reload(operation))
        elif self.batch is not None:
            self._batches.add(operation)
        else:
            self._answered(self._send([operation], False))

    def _answered(self, answer: Answer) -> None:
        self._show(answer)
        _check(answer)

    def _batched(self, line: str) -> Operation | None:
        """The operation of a line of a batch; None: the line is empty or a comment."""
        found = self._parsed(line)
        if found is not None and not isinstance(found, Operation):
            raise ConfigError(f"{line.strip()!r} is no operation")
        if found is not None and found.name == "reload" and not found.address:
            raise ConfigError("reload is not possible in a batch")
        return found

    def _execute(self, operations: Sequence[Operation]) -> None:
        """Carry operations out as one."""
        answer = self._send(operations, True)
        if answer.get("outcome") == "success":
            self._say("The batch executed successfully")
        self._answered(answer)

    # --- blocks ----------------------------------------------------------------------------------

    def _run_block(self, block: Block) -> None:
        if self.batch is not None:
            raise ConfigError(f"{block.word!r} is not possible in a batch")
        if block.word == "for":
            self._run_loop(block)
        elif block.word == "try":
            self._run_try(block)
        else:
            match = _CONDITION.fullmatch(block.head)
            if match is None:
                raise ConfigError(f"if {block.head}: if (CONDITION) of OPERATION is expected")
            answer = self._send([self._operation(match["line"])], False)
            fulfilled = holds(self._substituted(match["condition"]), answer)
            self._run_part(block.parts["if" if fulfilled else "else"] if fulfilled or "else" in block.parts else [])

    def _operation(self, line: str) -> Operation:
        found = self._parsed(line)
        if not isinstance(found, Operation):
            raise ConfigError(f"{line.strip()!r} is no operation")
        return found

    def _run_part(self, lines: Sequence[str]) -> None:
        """Carry out the operations of a part of a block as one batch."""
        operations = []
        for line in lines:
            if is_block(line):
                raise ConfigError(f"{first_word(line)!r} is not possible in a part of if or try: it runs as one batch")
            found = self._parsed(line)
            if isinstance(found, Command) and found.name == "echo":
                self._carry_out(found)
            elif found is not None:
                operations.append(self._operation(line))
        if operations:
            self._answered(self._send(operations, len(operations) > 1))

    def _run_try(self, block: Block) -> None:
        if "catch" not in block.parts and "finally" not in block.parts:
            raise ConfigError("try needs catch or finally")
        try:
            self._run_part(block.parts["try"])
        except Failed:
            if "catch" not in block.parts:
                raise
            self._run_part(block.parts["catch"])
        finally:
            self._run_part(block.parts.get("finally", []))

    def _run_loop(self, block: Block) -> None:
        match = _LOOP.fullmatch(block.head)
        if match is None:
            raise ConfigError(f"for {block.head}: for NAME in OPERATION is expected")
        answer = self._send([self._operation(match["line"])], False)
        _check(answer, self._show)
        values = answer.get("result")
        if not isinstance(values, list):
            raise ConfigError(f"{match['line']!r} does not give a list")
        kept = self._variables.get(match["name"])
        for value in values:
            self._variables[match["name"]] = str(value)
            lines = iter(block.parts["for"])
            for line in lines:
                self.carry_out(line, lines)
        self._variables.pop(match["name"], None)
        if kept is not None:
            self._variables[match["name"]] = kept

    # --- commands --------------------------------------------------------------------------------

    def _quit(self, command: Command) -> None:
        self.ended = True

    def _change_node(self, command: Command) -> None:
        if not command.rest:
            self._say(format_address(self.node))
            return
        address = parse_address(command.rest, self.node)
        if address:
            answer = self._send([Operation(address, "read-children-types")], False)
            _check(answer, self._show)
        self.node = address

    def _list(self, command: Command) -> None:
        words = [word for word in command.arguments if word != "-l"]
        address = parse_address(words[0], self.node) if words else self.node
        answer = self._send([Operation(address, "read-resource", {"include-runtime": True})], False)
        _check(answer, self._show)
        result = answer.get("result")
        if isinstance(result, Mapping):
            for name, value in result.items():
                self._say(name if isinstance(value, Mapping) else f"{name}={_shown(value)}")

    def _read_attribute(self, command: Command) -> None:
        if len(command.arguments) != 1:
            raise ConfigError("read-attribute NAME is expected")
        answer = self._send([Operation(self.node, "read-attribute", {"name": command.arguments[0]})], False)
        _check(answer, self._show)
        self._say(_shown(answer.get("result")))

    def _read_operation(self, command: Command) -> None:
        node = [word.removeprefix(_NODE) for word in command.arguments if word.startswith(_NODE)]
        names = [word for word in command.arguments if not word.startswith("--")]
        if len(node) + len(names) != len(command.arguments) or len(node) > 1 or len(names) > 1:
            raise ConfigError(f"read-operation [{_NODE}ADDRESS] [NAME] is expected")
        address = parse_address(node[0], self.node) if node else self.node
        if names:
            self._answered(self._send([Operation(address, "read-operation-description", {"name": names[0]})], False))
            return
        answer = self._send([Operation(address, "read-operation-names")], False)
        _check(answer, self._show)
        found = answer.get("result")
        for name in found if isinstance(found, list) else ():
            self._say(str(name))

    def _show_history(self, command: Command) -> None:
        if command.arguments == ("--clear",):
            self._history.clear()
        elif command.arguments in (("--enable",), ("--disable",)):
            self._keeps_history = command.arguments == ("--enable",)
        elif command.arguments:
            raise ConfigError("history [--clear|--enable|--disable] is expected")
        else:
            for line in self._history:
                self._say(line)

    def _reload_node(self, command: Command) -> None:
        given = {name.removeprefix("--"): True for name in command.arguments}
        self._carry_out_operation(Operation((), "reload", dict(given)))

    def _echo_request(self, command: Command) -> None:
        operation = self._operation(command.rest)
        self._show(
            {
                "address": [{kind: name} for kind, name in operation.address],
                "operation": operation.name,
                **operation.arguments,
            }
        )

    def _set(self, command: Command) -> None:
        if not command.arguments:
            for name, value in sorted(self._variables.items()):
                self._say(f"{name}={value}")
        for each in command.arguments:
            match = _SETTING.fullmatch(each)
            if match is None:
                raise ConfigError(f"{each!r}: NAME=VALUE is expected")
            self._variables[match["name"]] = match["value"]

    def _unset(self, command: Command) -> None:
        for name in command.arguments:
            if self._variables.pop(name, None) is None:
                raise ConfigError(f"the variable {name!r} is not set")

    def _help(self, command: Command) -> None:
        self._say("Operations: [ADDRESS]:NAME(PARAMETER=VALUE, ...), for example")
        self._say("  /subsystem=messaging-activemq/server=default:read-resource(recursive=true)")
        self._say(f"Commands: {', '.join(self.command_names)}")


def _check(answer: Answer, show: Callable[[Answer], None] | None = None) -> None:
    """Raise Failed if an answer is a failure; ``show`` prints it first."""
    if answer.get("outcome") != "success":
        if show is not None:
            show(answer)
        raise Failed(failure_text(answer))


def failure_text(answer: Answer) -> str:
    """Why a node has not carried out a request, in one line: of a batch the steps that failed, with their reasons."""
    description = answer.get("failure-description", "the node did not answer with success")
    if not isinstance(description, Mapping):
        return str(description)
    steps = (steps for steps in description.values() if isinstance(steps, Mapping))
    return "; ".join(f"{name}: {text}" for each in steps for name, text in each.items()) or json.dumps(
        to_json(description)
    )


def _shown(value: Value) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


def answer_of(value: Value) -> Answer:
    """The answer in a parsed text. Raises ManagementError: it is none."""
    if not isinstance(value, Mapping) or "outcome" not in value:
        raise ManagementError("the node did not answer as a management CLI", hint="is it an Understudy node?")
    return value
