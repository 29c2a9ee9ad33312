"""A managed node over the routing tests' world, and requests to it as a client encodes them."""

from __future__ import annotations

import json
from typing import Any

from support.bridged import Listener
from support.core import NODE, CoreNode
from support.routing import World
from understudy.cluster.bridges.bridges import Bridges
from understudy.cluster.membership.connectors import Connectors
from understudy.cluster.membership.services import ClusterServices
from understudy.config.model import Configuration
from understudy.errors import ManagementError
from understudy.management.doors.messages import ManagementRequests
from understudy.management.events.message_counters import MessageCounters
from understudy.management.events.notifications import Notifications
from understudy.management.node_settings import NodeSettings
from understudy.management.operations.invocation import HandingOver, Invocations, ManagedNode
from understudy.management.operations.resources import CONTROLS
from understudy.message import Message, MessageType
from understudy.properties import PropertyValue, decode_simple_string, encode_simple_string
from understudy.session.session import ServerSession

REPLIES = "replies"


class ManagedWorld(CoreNode):
    """A node with management and notifications, as ``broker`` puts it together."""

    def __init__(
        self,
        *,
        automatic: bool = True,
        world: World | None = None,
        configuration: dict[str, Any] | None = None,
        **services: Any,
    ) -> None:
        super().__init__(automatic=automatic, world=world, **services)
        self.configuration = Configuration(**(configuration or {}))
        self.office = self.world.office
        self.failed_over = self.failed_back = 0
        self.scaled_down: list[str | None] = []
        self.refuses_failback = False
        self.notifications = Notifications(
            self.office,
            NODE,
            self.configuration.management_notification_address,
            sessions=not self.configuration.suppress_session_notifications,
        )
        self.office.directory.listeners.append(self.notifications)
        self.office.diverts.listeners.append(self.notifications)
        self.world.registry.listeners.append(self.notifications)
        self.services.connections.listener = self.services.access.listener = self.notifications
        clock = self.world.clock
        security = self.services.access.policy.settings
        security.configure(self.configuration.security_settings, self.configuration.wildcards)
        self.settings = NodeSettings(self.office, security, self.world.registry, self.world.store)  # type: ignore[arg-type]
        self.settings.restore(self.world.store.found())
        self.counters = MessageCounters(
            self.office.directory,
            clock,
            clock,
            enabled=False,
            period_ms=10_000,
            days=10,  # type: ignore[arg-type]
        )
        self.office.directory.listeners.append(self.counters)
        self.managed = ManagedNode(
            services=self.services,
            topology=self.topology,
            configuration=self.configuration,
            timers=clock,
            handing_over=HandingOver(self._fail_over, self._fail_back, self._scale_down),
            global_max_size_bytes=1_000_000,
            activated_ms=clock.monotonic_ms(),
            counters=self.counters,
            settings=self.settings,
            bridges=Bridges(
                self.configuration,
                ClusterServices(self.topology, connectors=Connectors(self.configuration.connectors)),
                self.services,
                clock,
                Listener(),
            ),
        )
        self.invocations = Invocations(self.managed, lambda: CONTROLS)
        self.requests = ManagementRequests(self.configuration.management_address, self.invocations)
        self.services.sessions.management = self.requests

    def _fail_over(self) -> None:
        self.failed_over += 1

    def _fail_back(self) -> None:
        if self.refuses_failback:
            raise ManagementError("no failback: a test says so")
        self.failed_back += 1

    def _scale_down(self, connector: str | None) -> None:
        self.scaled_down.append(connector)

    def session(self, **options: Any) -> ServerSession:
        """A session that can manage."""
        return self.world.session(management=self.requests, **options)

    def settle(self) -> None:
        """Run operations that work in slices to their end."""
        for _ in range(200):
            self.world.clock.advance(1)
            self.world.turn()

    def ask(self, resource: str, operation: str, *values: object, session: ServerSession | None = None) -> Any:
        """The result of an operation; raises AssertionError with the text of a failure."""
        succeeded, result = self.reply_to(request(resource, operation, *values), session=session)
        assert succeeded, result
        return result

    def refused(self, resource: str, operation: str, *values: object) -> str:
        """The text of an operation that must fail."""
        succeeded, result = self.reply_to(request(resource, operation, *values))
        assert not succeeded, result
        return str(result)

    def reply_to(self, message: Message, session: ServerSession | None = None) -> tuple[bool, Any]:
        """Whether it succeeded, and the result."""
        replies: list[Message] = []
        asking = session or self.session()
        self.requests.handle(message, asking.state.security, "10.0.0.9:4711", replies.append)
        for _ in range(1_000):
            if replies:
                break
            self.world.clock.advance(1)
        if session is None:
            asking.close(failed=False)
        (reply,) = replies
        return outcome(reply)


def request(resource: str, operation: str, *values: object, **properties: PropertyValue) -> Message:
    """A request as ``ManagementHelper.putOperationInvocation`` makes it."""
    named: dict[str, PropertyValue] = {"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}
    body = b"\x01" + encode_simple_string(json.dumps(values)) if values else b"\x00"
    return Message(
        body, address="activemq.management", type=MessageType.DEFAULT, durable=False, properties=named | properties
    )


def outcome(reply: Message) -> tuple[bool, Any]:
    """Whether a reply says that it succeeded, and its value."""
    succeeded = reply.properties["_AMQ_OperationSucceeded"]
    assert isinstance(succeeded, bool)
    if reply.body[:1] == b"\x00":
        return succeeded, None
    text, end = decode_simple_string(reply.body, 1, len(reply.body))
    assert end == len(reply.body)
    (value,) = json.loads(text)
    return succeeded, value
