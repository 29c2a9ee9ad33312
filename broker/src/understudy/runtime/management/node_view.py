"""A ``BrokerNode`` as the doors of management see it.

Loaded with the management server (``runtime.management.http``): a node without management does not need it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from understudy.errors import BrokerError
from understudy.management.doors.http import COLLECTIONS
from understudy.management.model.cluster import Cluster
from understudy.management.model.node import Node, Quarantine, Readers
from understudy.management.operations.invocation import Answer, InvocationRequest
from understudy.management.snapshot.collections import rows_of
from understudy.management.snapshot.rows import Rows
from understudy.management.view import Browsed, Promoted
from understudy.runtime.management import node_requests
from understudy.runtime.management.cluster_view import read_cluster
from understudy.runtime.management.node_values import NodeReader, promotion_of
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.node.promotions import Promotions


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
        node_requests.browse(self._node, queue, selector, skip, limit, answer)

    def invoke(self, request: InvocationRequest, answer: Answer) -> None:
        node_requests.invoke(self._node, request, answer)

    def request_promotion(self, answer: Promoted) -> None:
        self._promotions.promote(
            lambda outcome: answer(outcome if isinstance(outcome, BrokerError) else promotion_of(outcome))
        )

    def request_activation(self) -> None:
        self._node.take_stopped()

    def request_stop(self, *, failover: bool) -> None:
        task = asyncio.get_running_loop().create_task(self._node.stop(failover=failover))
        self._stopping.append(task)
