"""A ``BrokerNode`` as the doors of management see it.

Loaded with the management server (``runtime.management.http``): a node without management does not need it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, cast

from understudy.broker import Broker
from understudy.errors import BrokerError, ManagementError, NotActive
from understudy.management.doors.http import COLLECTIONS
from understudy.management.model.cluster import Cluster
from understudy.management.model.node import Node, Quarantine, Readers
from understudy.management.model.queues import Message
from understudy.management.operations.invocation import Answer, InvocationRequest, Requester, log_change
from understudy.management.snapshot.collections import rows_of
from understudy.management.snapshot.routing import message_page
from understudy.management.snapshot.rows import Rows
from understudy.management.view import Browsed, Promoted
from understudy.runtime.management.cluster_view import read_cluster
from understudy.runtime.management.node_values import NodeReader, promotion_of
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.node.promotions import Promotions
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


class LiveNodeView:
    """View of a ``BrokerNode``, read from its present state. Implements ``management.view.NodeView``."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self._promotions = Promotions(node.parts, node.policy)
        self._reader = NodeReader(node, self._promotions)
        self.heartbeat = self._reader.heartbeat
        """Runs while the management server runs."""
        self._stopping: list[asyncio.Task[None]] = []

    def node(self) -> Node:
        return self._reader.read()

    def cluster(self) -> Cluster:
        return read_cluster(self._node.parts, self._node.broker, self._node.serving.colocation)

    def readers(self) -> Readers:
        return self._reader.readers()

    def quarantine(self) -> Quarantine:
        return self._reader.quarantine()

    def rows(self, collection: str) -> Rows[Any]:
        kind = COLLECTIONS[collection].kind
        if collection == "acceptors":
            return Rows.of_items(kind, self._reader.acceptors())
        broker = self._node.broker
        return rows_of(collection, kind, None if broker is None else broker.invocations.node)

    # -- requests ---------------------------------------------------------------------------------

    def browse(self, queue: str, selector: str | None, skip: int, limit: int, answer: Browsed) -> None:
        def done(result: object, error: BrokerError | None) -> None:
            answer(cast(list[Message], result) if error is None else error)

        invocations = self._active_broker().invocations
        read = partial(message_page, name=queue, selector=selector, skip=skip, limit=limit)
        invocations.node.timers.call_later(0, partial(invocations.run, read, done))

    def invoke(self, request: InvocationRequest, answer: Answer) -> None:
        if self._node.broker is None:
            self._change_users(request, answer)
            return
        broker = self._active_broker()

        def done(result: object, error: BrokerError | None) -> None:
            context = broker.store.context
            context.when_durable(context.appended, answer, result, error)

        requester = Requester(_TOKEN, request.peer, request.request_id)
        # in a turn of the node, whose end writes the batch
        broker.invocations.node.timers.call_later(0, partial(broker.invocations.carry_out, request, requester, done))

    def _change_users(self, request: InvocationRequest, answer: Answer) -> None:
        """Change the users of a node that is not active: its files are its own (ADR 0173).

        Raises:
            NotActive: the request is another one.
        """
        # loaded already, as the whole table of operations is before a request
        from understudy.management.operations.users import NO_USERS_FILE, change_of, shown_error

        node, files = self._node, self._node.serving.files
        try:
            named = request.resource == "broker" and not request.is_attribute
            found = change_of(request.name, request.parameters, node.environment.entropy) if named else None
            if found is None:
                raise NotActive(f"the node is {node.state}")
            if files is None or files.change_users is None:
                raise ManagementError(NO_USERS_FILE)
        except NotActive:
            raise
        except BrokerError as error:
            answer(None, error)
            return
        row, change = found
        log_change(Requester(_TOKEN, request.peer, request.request_id), request.resource, row, request.parameters)
        files.change_users(change, lambda error: answer(None, shown_error(error)))

    def _active_broker(self) -> Broker:
        broker = self._node.broker
        if broker is None:
            raise NotActive(f"the node is {self._node.state}")
        return broker

    def request_promotion(self, answer: Promoted) -> None:
        self._promotions.promote(
            lambda outcome: answer(outcome if isinstance(outcome, BrokerError) else promotion_of(outcome))
        )

    def request_activation(self) -> None:
        self._node.take_stopped()

    def request_stop(self, *, failover: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._node.stop(failover=failover))
        self._stopping.append(task)
