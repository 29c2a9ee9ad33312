"""The summary of a script of the management CLI for programs: answers, and the configuration before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from understudy.cli.console.session import Answer, Send, failure_text
from understudy.errors import BrokerError, ManagementError
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import masked
from understudy.management.dmr.values import to_json

_EVERYTHING: Final = Operation((), "read-resource", {"recursive": True})
_STATE: Final = Operation((), "read-attribute", {"name": "server-state"})


class Summary:
    """The collected answers and printed lines of one script."""

    def __init__(self, send: Send, reload: Callable[[Operation], Answer], *, rehearsed: bool = False) -> None:
        """Read the configuration before the script.

        Args:
            send: Has the node carry out operations.
            reload: Has the node reload.
            rehearsed: Whether the node validates only, so that its state does not change.

        Raises:
            BrokerError: the node does not answer.
        """
        self._rehearsed = rehearsed
        self._send = send
        self._reload = reload
        self._reloaded = False
        self._secret = False
        self._answers: list[Any] = []
        self._printed: list[str] = []
        self._before = self._read(_EVERYTHING)

    def send(self, operations: Sequence[Operation], composite: bool) -> Answer:
        """Have the node carry out operations, and note whether a value among them is one that no answer shows."""
        self._secret = self._secret or any(masked(each) != each for each in operations)
        return self._send(operations, composite)

    def reload(self, operation: Operation) -> Answer:
        """Have the node reload, and note that it did."""
        answer = self._reload(operation)
        self._reloaded = self._reloaded or answer["outcome"] == "success"
        return answer

    def show(self, answer: Answer) -> None:
        """Collect an answer."""
        self._answers.append(to_json(answer))

    def say(self, line: str) -> None:
        """Collect a printed line."""
        self._printed.append(line)

    def finish(self, problem: str | None) -> dict[str, Any]:
        """The summary, with the configuration of now.

        Args:
            problem: Why the script ended early; None: it did not.
        """
        try:
            after, state = self._read(_EVERYTHING), self._read(_STATE)
        except BrokerError as error:
            # the first problem of a script is the one to tell
            after, state, problem = None, None, problem or str(error)
        needed = state == "reload-required"
        if self._rehearsed and not self._reloaded and after != self._before:
            # an answer asks for a reload also where a line writes the present value
            needed = needed or any("response-headers" in answer for answer in self._answers)
        return {
            "answers": self._answers,
            "printed": self._printed,
            "before": self._before,
            "after": after,
            "secret_written": self._secret,
            "reloaded": self._reloaded,
            "reload_required": needed,
            "problem": problem,
        }

    def _read(self, operation: Operation) -> Any:
        answer = self._send([operation], False)
        if answer["outcome"] != "success":
            raise ManagementError(failure_text(answer))
        return to_json(answer["result"])
