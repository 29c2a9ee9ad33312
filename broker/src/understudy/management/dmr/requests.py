"""Requests and answers of the HTTP form: ``{"operation": ..., "address": [...], ...}`` (ADR 0171).

Not here: HTTP (``runtime.management.http``) and carrying them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import COMPOSITE_STEPS_MAX
from understudy.management.dmr.grammar import Address, Operation
from understudy.management.dmr.kinds import Effect
from understudy.management.dmr.operations import Outcome
from understudy.management.dmr.resources import DEFAULT_SERVER
from understudy.management.dmr.values import Value, from_json

_HEADERS: Final = "operation-headers"
#: Members of a request that are no parameters.
_OWN: Final = frozenset({"operation", "address", "steps", _HEADERS, "json.pretty"})
#: Operations that GET may ask for, with the operation that each stands for.
_GET: Final = {
    "resource": "read-resource",
    "attribute": "read-attribute",
    "resource-description": "read-resource-description",
    "operation-names": "read-operation-names",
    "operation-description": "read-operation-description",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request: an operation, or the steps of a composite."""

    operations: tuple[Operation, ...]
    composite: bool = False
    pretty: bool = False
    """Whether the JSON of the answer is on several lines."""

    @property
    def is_reload(self) -> bool:
        """Whether the request asks for a reload of the broker."""
        return not self.composite and self.operations[0].name == "reload" and not self.operations[0].address


def parse_request(value: Any) -> Request:
    """The request of a JSON object.

    Raises:
        ConfigError: the value is no request; the message names the member.
    """
    if not isinstance(value, dict):
        raise ConfigError("the body is no JSON object")
    pretty = bool(value.get("json.pretty"))
    if value.get("operation") != "composite":
        return Request((_operation(value, ""),), pretty=pretty)
    steps = value.get("steps")
    if not isinstance(steps, list) or not 0 < len(steps) <= COMPOSITE_STEPS_MAX:
        raise ConfigError(f"'steps' is no list of 1 to {COMPOSITE_STEPS_MAX} operations")
    return Request(
        tuple(_operation(each, f"step-{number}: ") for number, each in enumerate(steps, 1)),
        composite=True,
        pretty=pretty,
    )


def _operation(value: Any, place: str) -> Operation:
    if not isinstance(value, dict) or not isinstance(value.get("operation"), str):
        raise ConfigError(f"{place}'operation' is no text")
    if place and value["operation"] in ("composite", "reload"):
        raise ConfigError(f"{place}{value['operation']} cannot be a step")
    headers = value.get(_HEADERS, {})
    if not isinstance(headers, dict):
        raise ConfigError(f"{place}'{_HEADERS}' is no object")
    arguments = {name: from_json(each) for name, each in value.items() if name not in _OWN}
    return Operation(
        _address(value.get("address", []), place),
        value["operation"],
        arguments,
        {str(name): _header(each) for name, each in headers.items()},
    )


def _header(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _address(value: Any, place: str) -> Address:
    """The address of objects with one member each, or of types and names in turn."""
    if isinstance(value, list) and all(isinstance(each, dict) and len(each) == 1 for each in value):
        steps = [step for each in value for step in each.items()]
    elif isinstance(value, list) and len(value) % 2 == 0:
        steps = list(zip(value[::2], value[1::2], strict=True))
    else:
        steps = [(None, None)]
    if any(not isinstance(part, str) or not part for step in steps for part in step):
        raise ConfigError(f'{place}\'address\' is no list such as [{{"subsystem": "messaging-activemq"}}]')
    return tuple(steps)


def parse_get(path: str, query: Sequence[tuple[str, str]]) -> Request:
    """The request of a GET; the path is that after ``/management``. Raises ConfigError."""
    parts = [unquote(part) for part in path.split("/") if part]
    if len(parts) % 2:
        raise ConfigError(f"the path ends with the type {parts[-1]!r}: add the name of the resource")
    parameters, headers = dict[str, Value](), dict[str, str]()
    name = "resource"
    for key, value in query:
        if key == "operation":
            name = value
        elif key.startswith("operation-header-"):
            headers[key.removeprefix("operation-header-")] = value or "true"
        elif key != "json.pretty":
            parameters[key] = value or True
    if name not in _GET:
        raise ConfigError(f"operation {name!r} is not possible with GET", hint=f"{', '.join(_GET)}; POST for others")
    address = tuple(zip(parts[::2], parts[1::2], strict=True))
    return Request(
        (Operation(address, _GET[name], parameters, headers),), pretty=any(k == "json.pretty" for k, _ in query)
    )


def servers_of(request: Request) -> dict[str, str | None]:
    """Servers below which the operations of a request are, with their names in broker.xml; None: ``core``."""
    names = {each.address[1][1] for each in request.operations if len(each.address) > 2}
    return {name: None if name == DEFAULT_SERVER else name for name in names}


def request_json(operations: Sequence[Operation], *, composite: bool) -> dict[str, Any]:
    """The JSON object of a request."""
    values = [_operation_json(each) for each in operations]
    return {"operation": "composite", "address": [], "steps": values} if composite else values[0]


def _operation_json(operation: Operation) -> dict[str, Any]:
    value: dict[str, Any] = {
        "operation": operation.name,
        "address": [{kind: name} for kind, name in operation.address],
        **operation.arguments,
    }
    if operation.headers:
        value[_HEADERS] = dict(operation.headers)
    return value


def success(request: Request, outcomes: Sequence[Outcome], waits_for: str | None = None) -> Mapping[str, Value]:
    """The answer to a request whose operations were all carried out.

    Args:
        request: A request, or the steps of a composite.
        outcomes: The outcome of each operation.
        waits_for: The missing element, for which the change waits; None: it counts.
    """
    answer: dict[str, Value] = {"outcome": "success"}
    if request.composite:
        answer["result"] = {f"step-{number}": _step(each) for number, each in enumerate(outcomes, 1)}
    else:
        answer |= _step(outcomes[0])
    if waits_for is not None or any(each.effect is Effect.RELOAD for each in outcomes):
        headers: dict[str, Value] = {"operation-requires-reload": True, "process-state": "reload-required"}
        if waits_for is not None:
            headers["warnings"] = [{"warning": waits_for, "level": "WARNING"}]
        answer["response-headers"] = headers
    return answer


def _step(outcome: Outcome) -> dict[str, Value]:
    # a change has no result; a read of an undefined attribute has the result undefined
    return {"outcome": "success"} | ({} if outcome.effect is not None else {"result": outcome.result})


def failure(text: str, step: int | None = None) -> Mapping[str, Value]:
    """The answer to a request that was not carried out; nothing of it has an effect.

    Args:
        text: The reason.
        step: The number of the step of a composite that failed, from 1.
    """
    if step is None:
        return {"outcome": "failed", "failure-description": text, "rolled-back": True}
    return {
        "outcome": "failed",
        "failure-description": {
            "WFLYCTL0062: Composite operation failed and was rolled back. Steps that failed:": {
                f"Operation step-{step}": text
            }
        },
        "rolled-back": True,
    }
