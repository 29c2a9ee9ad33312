"""Invocation of operations on managed resources, for requests in messages and over HTTP.

A name like ``queue.orders`` becomes a control, a name and parameters become a row of its table, and
the row is called if the caller has the permission. Operations that read many messages are generators: they are
run in slices between the turns of the loop, so that no request delays the broker however deep
the queue is; a short operation is answered before ``invoke`` returns.

Not here: messages (``requests``), HTTP (``runtime/management/http.py``), the operations (``*_control``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Final, Protocol

from understudy.cluster.balancing.exchange import MemberExchange
from understudy.cluster.bridges.bridges import Bridges
from understudy.cluster.membership.topology import Topology
from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, DiskFull, LimitExceeded, OperationNotFound, ResourceNotFound, StoreError
from understudy.limits import MANAGEMENT_REQUESTS_MAX
from understudy.management.events.message_ages import MessageAges
from understudy.management.events.message_counters import MessageCounters
from understudy.management.events.queue_reports import QueueReports
from understudy.management.node_settings import NodeSettings
from understudy.management.operations.audit import shown_parameters
from understudy.management.operations.table import Operation, Operations
from understudy.ports import Timers
from understudy.protocols.services import ProtocolServices
from understudy.security.user_changes import UserChange
from understudy.session.callback import SessionSecurity
from understudy.terms import Permission

log = logging.getLogger(__name__)

Answer = Callable[[object, BrokerError | None], None]
"""Called once, with the result or the error."""

Reload = Callable[[Callable[[tuple[BrokerError, ...]], None]], None]
"""Reads broker.xml, users, roles and certificates again, and calls back with the errors."""

ChangeUsers = Callable[[UserChange, Callable[[BrokerError | None], None]], None]
"""Changes the files of users and roles, applies them, and calls back with the error."""


@dataclass(frozen=True, slots=True)
class InstanceFiles:
    """Files of the instance of a node, for requests of management."""

    reload: Reload
    change_users: ChangeUsers | None = None
    """None: security is off, or no login module has a users file."""


#: Characters of the id of a request that are kept.
REQUEST_ID_MAX: Final = 64
#: Pause between two slices of an operation, for other work. Milliseconds.
_PAUSE_MS: Final = 1


@dataclass(frozen=True, slots=True)
class InvocationRequest:
    """An operation, or an attribute, of a managed resource (docs/use/management-over-messages.md)."""

    resource: str
    name: str
    is_attribute: bool
    parameters: tuple[object, ...] = ()
    peer: str = ""
    """Address of the requester, for the log."""
    request_id: str = ""
    """Id of the request that its client has given, or that the node has made, for the log."""


@dataclass(frozen=True, slots=True)
class HandingOver:
    """Ends the active role of a node on request."""

    fail_over: Callable[[], None]
    """Function that begins to stop the node, so that the peer takes over."""
    fail_back: Callable[[], None]
    """Begins to yield to the node that it took over from. Raises ManagementError: it cannot."""
    scale_down: Callable[[str | None], None]
    """Begins to stop, and to move its messages to another member: that of a connector first, if one is named. Raises
    ManagementError: it cannot."""


@dataclass(frozen=True, slots=True)
class ManagedNode:
    """An active node, for its controls."""

    services: ProtocolServices
    topology: Topology
    configuration: Configuration
    timers: Timers
    handing_over: HandingOver
    global_max_size_bytes: int
    activated_ms: int
    """Monotonic time of the activation."""
    counters: MessageCounters
    """Message counters of the node's queues."""
    settings: NodeSettings
    """Address settings and security settings, and their changes."""
    files: InstanceFiles | None = None
    """Files of the instance; None if there are none."""
    bridges: Bridges | None = None
    """Core bridges of the node."""
    members: MemberExchange | None = None
    """Exchange of messages with other members of the cluster; None without a cluster connection."""
    queue_reports: QueueReports | None = None
    """Reports of the node's queues to other members; None without a cluster connection."""
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    """Topology of each cluster connection, by name."""
    ages: MessageAges = field(default_factory=MessageAges)
    """Times at which message ids had been given."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The user that calls an operation."""

    security: SessionSecurity
    host: str
    """Address without port, for which failed logins are counted."""
    request_id: str = ""
    """Id of the request for the log; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Control:
    """A resource with the permissions of one requester: first argument of the calls of every table."""

    node: ManagedNode
    requester: Requester


class ControlFinder(Protocol):
    """Finds the controls of one kind of resource."""

    operations: Operations

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> Control:
        """The control of a name. Raises BrokerError: no resource has the name."""
        ...


def log_change(requester: Requester, resource: str, row: Operation, values: Sequence[object]) -> None:
    """Log that a change is requested, with its parameters; secrets are masked."""
    log.info(
        "managed",
        extra={
            "user": requester.security.user,
            "peer": requester.host,
            **({"request": requester.request_id} if requester.request_id else {}),
            "resource": resource,
            "operation": row.name,
            "parameters": shown_parameters(row, values),
        },
    )


class Invocations:
    """Finds, checks and calls operations; runs long ones in slices."""

    def __init__(self, node: ManagedNode, kinds: Callable[[], Sequence[ControlFinder]]) -> None:
        """Args:
        kinds: Returns the kinds of resources, at the first request: a node without requests is spared their modules.
        """
        self.node = node
        self._load = kinds
        self._views = re.compile(node.configuration.view_permission_method_match_pattern)
        self._running = 0
        self._closed = False

    @cached_property
    def _kinds(self) -> dict[str, ControlFinder]:
        return {kind.operations.kind: kind for kind in self._load()}

    def reconfigure(self, configuration: Configuration) -> None:
        """Read the configuration of the node from a changed one, in which elements differ that apply at once."""
        self.node = replace(self.node, configuration=configuration)

    def close(self) -> None:
        """Abandon the pending requests, which get no answer."""
        self._closed = True

    def invoke(
        self, resource: str, operation: str, values: Sequence[object], requester: Requester, answer: Answer
    ) -> None:
        """Call an operation. Errors are passed to ``answer``, too."""
        try:
            kind, name = self._kind_of(resource)
            try:
                row = kind.operations.find(operation, values)
            except OperationNotFound:
                if not self.node.configuration.management_message_rbac:
                    # a resource that is missing is the first error to correct
                    kind(self.node, requester, name)
                raise
            self._call(kind, name, resource, row, values, requester, answer)
        except BrokerError as error:
            self._answer_error(answer, error)

    def read(self, resource: str, attribute: str, requester: Requester, answer: Answer) -> None:
        """Read an attribute of a resource."""
        try:
            kind, name = self._kind_of(resource)
            row = kind.operations.find_attribute(attribute)
            self._call(kind, name, resource, row, (), requester, answer)
        except BrokerError as error:
            self._answer_error(answer, error)

    def carry_out(self, request: InvocationRequest, requester: Requester, answer: Answer) -> None:
        """Call an operation or read an attribute."""
        if request.is_attribute:
            self.read(request.resource, request.name, requester, answer)
        else:
            self.invoke(request.resource, request.name, request.parameters, requester, answer)

    def operations(self, resource: str) -> Operations:
        """The table of a resource. Raises ResourceNotFound."""
        return self._kind_of(resource)[0].operations

    def _kind_of(self, resource: str) -> tuple[ControlFinder, str]:
        first, _, name = resource.partition(".")
        kind = self._kinds.get(first)
        if kind is None or (first == "broker") is bool(name):
            raise ResourceNotFound(f"no resource {resource!r}")
        return kind, name

    def _call(
        self,
        kind: ControlFinder,
        name: str,
        resource: str,
        row: Operation,
        values: Sequence[object],
        requester: Requester,
        answer: Answer,
    ) -> None:
        configuration = self.node.configuration
        permission = row.permission(self._views)
        if configuration.management_message_rbac:
            requester.security.check(permission, f"{configuration.management_rbac_prefix}.{resource}.{row.name}")
        control = kind(self.node, requester, name)
        if permission is Permission.EDIT:
            log_change(requester, resource, row, values)
        self._begin(row.call(control, *values), answer)

    def run(self, work: Callable[[ManagedNode], object], answer: Answer) -> None:
        """Do work for a request of another form, like an operation. Errors are passed to ``answer``, too."""
        try:
            self._begin(work(self.node), answer)
        except BrokerError as error:
            self._answer_error(answer, error)

    def _begin(self, result: object, answer: Answer) -> None:
        """Answer a result; if it is a generator, run it in slices."""
        if not isinstance(result, Generator):
            answer(result, None)
            return
        if self._running >= MANAGEMENT_REQUESTS_MAX:
            raise LimitExceeded(f"{self._running} management requests are already running")
        self._running += 1
        self._slice(result, answer)

    def _answer_error(self, answer: Answer, error: BrokerError) -> None:
        if isinstance(error, StoreError) and not isinstance(error, DiskFull):
            # not an error of one message, which would be quarantined: the store has failed
            self.node.services.sessions.post_office.store.fail(error)
        answer(None, error)

    def _slice(self, work: Generator[None, None, object], answer: Answer) -> None:
        """Run the operation until its next pause."""
        if self._closed:
            work.close()
            return
        try:
            next(work)
        except StopIteration as end:
            self._running -= 1
            answer(end.value, None)
        except BrokerError as error:
            self._running -= 1
            self._answer_error(answer, error)
        else:
            self.node.timers.call_later(_PAUSE_MS, lambda: self._slice(work, answer))
