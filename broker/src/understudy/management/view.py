"""Interface of a node for the doors of management. Every member returns at once, in every state of the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from understudy.errors import BrokerError
from understudy.management.model.cluster import Cluster
from understudy.management.model.node import Node, Promotion, Quarantine, Readers, Server
from understudy.management.model.queues import Message
from understudy.management.operations.invocation import Answer, InvocationRequest
from understudy.management.snapshot.rows import Rows

Promoted = Callable[[Promotion | BrokerError], None]
"""Called once with the record of a promotion, or with the reason why there is none."""
Browsed = Callable[[Sequence[Message] | BrokerError], None]
"""Called once with a page of messages, or with the reason why there is none."""


class NodeView(Protocol):
    """A node, active or not."""

    def node(self) -> Node:
        """The node itself."""
        ...

    def cluster(self) -> Cluster:
        """Members, links, and groups of discovery."""
        ...

    def readers(self) -> Readers:
        """Named readers of the log; without values on a node that is not active."""
        ...

    def quarantine(self) -> Quarantine:
        """Entries of the quarantine, at most ``QUARANTINE_SHOWN_MAX``; none on a node that is not active."""
        ...

    def rows(self, collection: str) -> Rows[Any]:
        """The rows of a collection (``doors.http.COLLECTIONS``); of an active broker none on other nodes."""
        ...

    def browse(self, queue: str, selector: str | None, skip: int, limit: int, answer: Browsed) -> None:
        """Read waiting messages of a queue in slices; ``answer`` is called once.

        Raises:
            NotActive: the node is not active.
        """
        ...

    def invoke(self, request: InvocationRequest, answer: Answer) -> None:
        """Call a management operation; ``answer`` is called once, with the result or the error, after everything it
        wrote is durable.

        Raises:
            NotActive: only an active node can be managed.
        """
        ...

    def request_stop(self, *, failover: bool) -> None:
        """Begin to stop and return at once; with ``failover`` the peer takes over."""
        ...

    def request_promotion(self, answer: Promoted) -> None:
        """Let the data of a passive node count as the newest, and activate; ``answer`` is called once.

        Raises:
            ManagementError: the node is not one of a replicated pair.
        """
        ...

    def request_activation(self) -> None:
        """Let the backup of a shared store activate although its primary was stopped cleanly (ADR 0107).

        Raises:
            ManagementError: the node is no backup of a shared store, or activates by itself.
        """
        ...


class ServersView(Protocol):
    """The servers of the process of a node (ADR 0075)."""

    def all(self) -> Sequence[Server]:
        """Every server, those that have ended included; that of ``core`` first."""
        ...

    def messages(self, name: str | None) -> int | None:
        """Number of messages in the queues of a server, None is that of ``core``. The result None: it is not active, so
        the number is unknown; 0: the process has no such server.
        """
        ...

    def start(self, name: str) -> None:
        """Start a server that has ended.

        Raises:
            ManagementError: there is none of the name, it has not ended, or the process is being stopped.
            BrokerError: its configuration cannot be used.
        """
        ...
