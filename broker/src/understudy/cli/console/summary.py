"""The summary of a script of the management CLI for programs: answers, and the configuration before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from understudy.cli.console.session import Answer, Send
from understudy.errors import BrokerError, ManagementError
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import masked
from understudy.management.dmr.values import to_json

_EVERYTHING: Final = Operation((), "read-resource", {"recursive": True})
_STATE: Final = Operation((), "read-attribute", {"name": "server-state"})


class Summary:
    """The collected answers and printed lines of one script."""

    def __init__(self, send: Send) -> None:
        """Read the configuration before the script. Raises BrokerError: the node does not answer."""
        self._send = send
        self._secret = False
        self._answers: list[Any] = []
        self._printed: list[str] = []
        self._before = self._read(_EVERYTHING)

    def send(self, operations: Sequence[Operation], composite: bool) -> Answer:
        """Have the node carry out operations, and note whether a value among them is one that no answer shows."""
        self._secret = self._secret or any(masked(each) != each for each in operations)
        return self._send(operations, composite)

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
        asked = [answer for answer in self._answers if isinstance(answer, dict) and "response-headers" in answer]
        return {
            "answers": self._answers,
            "printed": self._printed,
            "before": self._before,
            "after": after,
            "secret_written": self._secret,
            "reload_required": state == "reload-required" or bool(asked),
            "problem": problem,
        }

    def _read(self, operation: Operation) -> Any:
        answer = self._send([operation], False)
        if answer["outcome"] != "success":
            raise ManagementError(str(answer.get("failure-description")))
        return to_json(answer["result"])
