"""A rehearsal of lines of the management CLI: a node validates each after those before it, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from understudy.cli.console.session import Answer, Send
from understudy.errors import ConfigError
from understudy.limits import COMPOSITE_STEPS_MAX
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import VALIDATE_ONLY
from understudy.management.dmr.parameters import READS
from understudy.management.dmr.requests import failure
from understudy.management.dmr.values import Value


class Rehearsal:
    """A node that validates. Reads see the configuration that the changes before them would make."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._changes: list[Operation] = []
        """Changes that were accepted; each request repeats them, because the node keeps none."""

    def send(self, operations: Sequence[Operation], composite: bool) -> Answer:
        """The answer that the node would give. Raises ConfigError: there are too many changes; BrokerError."""
        changes = [each for each in operations if each.name not in READS]
        if not changes and not self._changes:
            return self._send(operations, composite)
        before = len(self._changes)
        steps = [*self._changes, *operations]
        if len(steps) > COMPOSITE_STEPS_MAX:
            raise ConfigError(f"more than {COMPOSITE_STEPS_MAX} operations cannot be validated together")
        answer = self._send([_validated(each) for each in steps], True)
        if answer["outcome"] != "success":
            return _failure(answer, before, composite=composite)
        self._changes += changes
        results = answer["result"]
        assert isinstance(results, Mapping)
        own = {f"step-{number}": results[f"step-{before + number}"] for number in range(1, len(operations) + 1)}
        headers = {"response-headers": answer["response-headers"]} if "response-headers" in answer else {}
        if composite:
            return {"outcome": "success", "result": own, **headers}
        only = own["step-1"]
        assert isinstance(only, Mapping)
        return {**only, **headers}

    def reload(self, operation: Operation) -> Answer:
        """The answer to a reload. Raises BrokerError."""
        return self._send([_validated(operation)], False)


def _validated(operation: Operation) -> Operation:
    return replace(operation, headers={**operation.headers, VALIDATE_ONLY: "true"})


def _failure(answer: Answer, before: int, *, composite: bool) -> Answer:
    """The failure of a request without the steps that it repeated.

    Args:
        answer: The failure.
        before: The number of repeated steps.
        composite: Whether the operations of the line are a composite.
    """
    number, text = _failed_step(answer["failure-description"])
    return failure(text, max(number - before, 1) if composite and number else None)


def _failed_step(description: Value) -> tuple[int, str]:
    """The number of the failed step with its reason; 0: the reader of the broker refuses all steps together."""
    if isinstance(description, Mapping):
        for steps in description.values():
            if isinstance(steps, Mapping):
                for name, text in steps.items():
                    return int(name.rpartition("-")[2]), str(text)
    return 0, str(description)
