"""Requests to a node with its token: operations and messages of an active node, and changes of the users of a node that
is not active, which has files of its own (ADR 0173).
"""

from __future__ import annotations

from functools import partial
from typing import Final, cast

from understudy.broker import Broker
from understudy.errors import BrokerError, ManagementError, NotActive
from understudy.management.model.queues import Message
from understudy.management.operations.invocation import Answer, InvocationRequest, Requester, log_change
from understudy.management.snapshot.routing import message_page
from understudy.management.view import Browsed
from understudy.runtime.node.node import BrokerNode
from understudy.terms import Permission


class _TokenSecurity:
    """Grants all permissions to callers with the token of the node."""

    user = "token"
    permission_ms = 0

    def check(self, permission: Permission, address: str, queue: str | None = None) -> None:
        return

    def allows(self, permission: Permission, address: str, queue: str | None = None) -> bool:
        return True


_TOKEN: Final = _TokenSecurity()


def browse(node: BrokerNode, queue: str, selector: str | None, skip: int, limit: int, answer: Browsed) -> None:
    """Read waiting messages of a queue (``NodeView.browse``). Raises NotActive."""

    def done(result: object, error: BrokerError | None) -> None:
        answer(cast(list[Message], result) if error is None else error)

    invocations = _active_broker(node).invocations
    read = partial(message_page, name=queue, selector=selector, skip=skip, limit=limit)
    invocations.node.timers.call_later(0, partial(invocations.run, read, done))


def invoke(node: BrokerNode, request: InvocationRequest, answer: Answer) -> None:
    """Carry out an operation (``NodeView.invoke``). Raises NotActive."""
    if node.broker is None:
        _change_users(node, request, answer)
        return
    broker = node.broker

    def done(result: object, error: BrokerError | None) -> None:
        context = broker.store.context
        context.when_durable(context.appended, answer, result, error)

    # in a turn of the node, whose end writes the batch
    broker.invocations.node.timers.call_later(
        0, partial(broker.invocations.carry_out, request, _requester_of(request), done)
    )


def _active_broker(node: BrokerNode) -> Broker:
    if node.broker is None:
        raise NotActive(f"the node is {node.state}")
    return node.broker


def _requester_of(request: InvocationRequest) -> Requester:
    return Requester(_TOKEN, request.peer, request.request_id)


def _change_users(node: BrokerNode, request: InvocationRequest, answer: Answer) -> None:
    """Change the users of a node that is not active. Raises NotActive for every other operation."""
    # loaded already: the whole table of operations is loaded before a request, and only then
    from understudy.management.operations.users import NO_USERS_FILE, change_of, shown_error

    files, named = node.serving.files, request.resource == "broker" and not request.is_attribute
    try:
        found = change_of(request.name, request.parameters, node.environment.entropy) if named else None
    except BrokerError as error:
        answer(None, error)
        return
    if found is None:
        raise NotActive(f"the node is {node.state}")
    if files is None or files.change_users is None:
        answer(None, ManagementError(NO_USERS_FILE))
        return
    row, change = found
    log_change(_requester_of(request), request.resource, row, request.parameters)
    files.change_users(change, lambda error: answer(None, shown_error(error)))
