"""Operations on the addresses and queues of one active node, over its management interface.

What is to be done is decided in ``destinations``; here it is asked for, and errors get the name of the node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ansible_collections.understudy.broker.plugins.module_utils.destinations import (
    Call,
    Plan,
    address_state,
    page_filter,
    queue_state,
    row_of,
)
from ansible_collections.understudy.broker.plugins.module_utils.management import Reply

Given = TypeVar("Given")
Result = TypeVar("Result")

NOT_ACTIVE = 503
EVERYTHING = -1
"""Page number and page size that request all rows."""


class Client(Protocol):
    """The part of ``ManagementClient`` that is used."""

    def invoke(self, operation: str, *parameters: object, resource: str = "broker") -> Reply: ...


class Refused(Exception):
    """The node did not do as it was asked; the message names the node, the operation and the reason."""


class NoSuchResource(Refused):
    """There is no address or queue of that name, or not any more."""


class NodeIsPassive(Refused):
    """The node is not active, so nothing can be managed at it."""


class Administration:
    """The addresses and queues of one node."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def perform(self, call: Call) -> object:
        """The result of an operation.

        Raises:
            NodeIsPassive: nothing can be managed here.
            NoSuchResource: the address or queue is gone.
            Refused: it was refused or failed, or the node did not answer.
        """
        reply = self._client.invoke(call.operation, *call.parameters, resource=call.resource)
        if reply.status == NOT_ACTIVE:
            raise NodeIsPassive(f"{self._name} is not active: {reply.refusal}")
        if reply.status != 200:
            error = NoSuchResource if reply.code == "resource-not-found" else Refused
            raise error(f"{self._name} refuses {call.operation} of {call.resource}: {reply.refusal}")
        return reply.body.get("result")

    def queue(self, name: str) -> dict[str, object] | None:
        """A queue as it is; None: there is none. Raises Refused."""
        row = self._row("listQueues", name)
        return None if row is None else self._read(queue_state, row)

    def address(self, name: str) -> dict[str, object] | None:
        """An address as it is; None: there is none. Raises Refused."""
        row = self._row("listAddresses", name)
        return None if row is None else self._read(address_state, row)

    def address_settings(self, name: str) -> Mapping[str, object]:
        """The settings that apply to an address. Raises Refused."""
        text = self.perform(Call("broker", "getAddressSettingsAsJSON", (name,)))
        return self._read(_mapping, text)

    def rows(self, operation: str) -> list[Mapping[str, object]]:
        """All rows of ``listQueues`` or ``listAddresses``. Raises Refused."""
        page = self._read(_mapping, self.perform(Call("broker", operation, (None, EVERYTHING, EVERYTHING))))
        data = page.get("data")
        return [row for row in data if isinstance(row, Mapping)] if isinstance(data, list) else []

    def _row(self, operation: str, name: str) -> Mapping[str, object] | None:
        page = self.perform(Call("broker", operation, (page_filter(name), EVERYTHING, EVERYTHING)))
        return self._read(lambda given: row_of(given, name), page)

    def _read(self, read: Callable[[Given], Result], given: Given) -> Result:
        try:
            return read(given)
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{self._name} answered in a form that is not known: {error!r}"
            raise Refused(f"{problem}; is its release that of the collection?") from error


def _mapping(given: object) -> Mapping[str, object]:
    found = json.loads(given) if isinstance(given, str) else given
    if not isinstance(found, Mapping):
        raise ValueError("no object")
    return found


@dataclass(frozen=True)
class Change:
    """One carried out plan."""

    plan: Plan
    results: tuple[object, ...]
    """Results of the operations of the plan; empty in check mode."""
    present: Mapping[str, object] | None
    """The object in the end, in check mode in the beginning."""
    purges: bool = False

    @property
    def removed(self) -> int:
        """Messages that a purge has removed."""
        return sum(int(str(each)) for each in self.results) if self.purges else 0

    @property
    def changed(self) -> bool:
        """Whether anything has changed, or would."""
        return self.removed > 0 if self.purges and self.results else bool(self.plan.calls)

    @property
    def diff(self) -> dict[str, object]:
        """State before and after the change, in the form in which Ansible shows a difference."""
        return {"before": dict(self.plan.before), "after": dict(self.plan.after)}


Look = Callable[[], "tuple[Mapping[str, object] | None, Plan]"]


def carry_out(administration: Administration, look: Look, *, dry_run: bool, purges: bool = False) -> Change:
    """Look, act, and look again.

    Args:
        administration: Access to the addresses and queues of the node.
        look: Gives the present state and the plan that follows from it.
        dry_run: Do nothing.
        purges: Whether the operations remove messages and give their number. Otherwise a second plan must be empty;
            after a purge new messages may have come.

    Raises:
        Refused: an operation failed, or the plan has a problem, or changed something else than it should have.
    """
    present, plan = look()
    if plan.problem:
        raise Refused(plan.problem)
    if dry_run or not plan.calls:
        return Change(plan, (), present, purges)
    results = tuple(administration.perform(call) for call in plan.calls)
    present, rest = look()
    if rest.calls and not purges:
        raise Refused(f"the broker accepted {', '.join(call.operation for call in plan.calls)}, but {_say(rest)}")
    return Change(plan, results, present, purges)


def _say(rest: Plan) -> str:
    return "; ".join(f"{key} is {rest.before.get(key)!r} instead of {value!r}" for key, value in rest.after.items())
