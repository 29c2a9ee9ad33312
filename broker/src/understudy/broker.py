"""An active broker: creates and connects the objects of all packages; contains no logic of its own.

Created at activation from the recovered store, dropped at deactivation. ``runtime.node.node`` owns it,
passes connections to it and runs its turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from understudy.cluster.balancing.exchange import MessageExchange
from understudy.cluster.membership.services import ClusterServices
from understudy.config.model import Configuration
from understudy.dataclass import dataclass
from understudy.management.doors.messages import ManagementRequests
from understudy.management.events.message_counters import MessageCounters
from understudy.management.events.node_events import NodeEvents
from understudy.management.events.notifications import Notifications
from understudy.management.events.queue_reports import QueueReports
from understudy.management.events.server_dump import ServerDump
from understudy.management.node_settings import NodeSettings
from understudy.management.operations.invocation import (
    ControlFinder,
    HandingOver,
    InstanceFiles,
    Invocations,
    ManagedNode,
)
from understudy.ports import Clock, Entropy, Timers
from understudy.protocols.access import Access, LoginWorkers
from understudy.protocols.amqp091.messages import MessageCarrier
from understudy.protocols.amqp091.protocol import Amqp091Protocol
from understudy.protocols.core.protocol import CoreProtocol
from understudy.protocols.handlers import NodeProtocol
from understudy.protocols.registry import ConnectionRegistry
from understudy.protocols.services import ProtocolServices
from understudy.routing.addresses.deployment import Refusals, deploy
from understudy.routing.addresses.settings import AddressSettingsRepository
from understudy.routing.post_office import PostOffice, RoutingSettings
from understudy.routing.restore import restore, settle
from understudy.security.authorization import SecurityPolicy
from understudy.session.broker_properties import ValidatedUsers
from understudy.session.registry import SessionRegistry
from understudy.session.resource_manager import ResourceManager
from understudy.session.services import SessionServices
from understudy.session.slow_consumers import SlowConsumers
from understudy.store.messages.message_store import MessageStore
from understudy.store.messages.pages import Pages
from understudy.terms import DurabilityContract


@dataclass(frozen=True, slots=True)
class BrokerHost:
    """Ports and limits that the process gives to an active broker."""

    clock: Clock
    timers: Timers
    entropy: Entropy
    login_workers: LoginWorkers
    wake: Callable[[], None]
    """Asks for a turn of the loop."""
    global_max_size_bytes: int
    """Bytes of bodies that may be in memory over all addresses."""
    pages: Pages | None = None
    """Files for what leaves memory and is not in the log; None: it stays in memory."""


class Broker:
    """One active broker: queues, sessions, management and acceptors over an activated store."""

    def __init__(
        self,
        configuration: Configuration,
        store: MessageStore,
        security: SecurityPolicy,
        cluster: ClusterServices,
        host: BrokerHost,
        *,
        handing_over: HandingOver,
        files: InstanceFiles | None = None,
    ) -> None:
        self.store = store
        clock, timers = host.clock, host.timers
        self.post_office = self._post_office(configuration, host)
        self.post_office.routing.exchanges.carrier = MessageCarrier()
        registry: SessionRegistry[Any] = SessionRegistry(configuration.resource_limits)
        self.settings = NodeSettings(self.post_office, security.settings, registry, store)
        self.settings.restore(store.state)
        restore(self.post_office, store.state)
        self.slow_consumers = SlowConsumers(clock, timers)
        self.counters = self._message_counters(configuration, clock, timers)
        self.notifications = self._notifications(configuration)
        self.resources = self._resources(configuration, clock, timers)
        self.resources.restore(store.state)
        settle(self.post_office, configuration.internal_naming_prefix)
        deploy(self.post_office, configuration.addresses, configuration.diverts)
        self.post_office.auto_deletion.sweep_at_activation()
        self.services = ProtocolServices(
            node_id=store.node_id,
            clock=clock,
            entropy=host.entropy,
            sessions=SessionServices(
                self.post_office,
                registry,
                self.resources,
                clock,
                ValidatedUsers(configuration.populate_validated_user, configuration.reject_empty_validated_user),
            ),
            access=Access(security, clock, host.login_workers, self.notifications),
            connections=ConnectionRegistry(self.notifications),
            connection_ttl_override_ms=configuration.connection_ttl_override_ms,
            epoch=store.epoch,
        )
        self.cluster = cluster
        self.exchange = MessageExchange(configuration, cluster, self.services, timers, self.notifications)
        self.queue_reports = self._queue_reports()
        self.protocols: list[NodeProtocol] = [
            CoreProtocol(self.services, clock, timers),
            Amqp091Protocol(self.services, cluster),
        ]
        """Make the table of protocols of each acceptor (``protocols.handlers.Handlers``)."""
        self.server_dump = ServerDump(self.services, timers, configuration.server_dump_interval_ms)
        self.invocations = self._be_managed(configuration, host, handing_over, files)

    def _post_office(self, configuration: Configuration, host: BrokerHost) -> PostOffice:
        settings = RoutingSettings(
            AddressSettingsRepository.from_configuration(
                configuration.address_settings, configuration.wildcards, _durability_contract(configuration)
            ),
            id_cache_size=configuration.id_cache_size,
            persist_id_cache=configuration.persist_id_cache,
            global_max_size_bytes=host.global_max_size_bytes,
            global_max_messages=configuration.global_max_messages,
            wildcard_routing=configuration.wildcards.routing_enabled,
            message_expiry_scan_period_ms=configuration.message_expiry_scan_period_ms,
            address_queue_scan_period_ms=configuration.address_queue_scan_period_ms,
        )
        return PostOffice(
            store=self.store,
            settings=settings,
            clock=host.clock,
            timers=host.timers,
            pages=host.pages,
            wake=host.wake,
            entropy=host.entropy,
        )

    def _be_managed(
        self,
        configuration: Configuration,
        host: BrokerHost,
        handing_over: HandingOver,
        files: InstanceFiles | None,
    ) -> Invocations:
        """Take management requests and send notifications from now on."""
        activated_ms = self.services.clock.monotonic_ms()
        node = ManagedNode(
            services=self.services,
            topology=self.cluster.topology,
            topologies={name: each.topology for each in self.cluster.networks for name in each.connections},
            configuration=configuration,
            timers=host.timers,
            handing_over=handing_over,
            global_max_size_bytes=host.global_max_size_bytes,
            activated_ms=activated_ms,
            counters=self.counters,
            settings=self.settings,
            files=files,
            bridges=self.exchange.bridges,
            members=self.exchange.members,
            queue_reports=self.queue_reports,
        )
        invocations = Invocations(node, _kinds_of_resources)
        self.services.sessions.management = ManagementRequests(configuration.management_address, invocations)
        self.services.sessions.registry.listeners.append(self.notifications)
        self.store.readers.listeners.append(
            # closed later, because the call comes while confirmations are being released
            lambda reader: host.timers.call_later(
                0,
                partial(self.notifications.reader_dropped, reader.name, reader.position.sequence, str(reader.dropped)),
            )
        )
        return invocations

    def _queue_reports(self) -> QueueReports | None:
        members = self.exchange.members
        if members is None:
            return None
        reports = QueueReports(self.post_office, self.notifications, members.bindings.by_name, members.groups)
        members.bindings.listeners.append(reports)
        return reports

    def _resources(self, configuration: Configuration, clock: Clock, timers: Timers) -> ResourceManager:
        return ResourceManager(
            self.post_office,
            clock,
            timers,
            timeout_ms=configuration.transaction_timeout_ms,
            scan_period_ms=configuration.transaction_timeout_scan_period_ms,
        )

    def _message_counters(self, configuration: Configuration, clock: Clock, timers: Timers) -> MessageCounters:
        return MessageCounters(
            self.post_office.directory,
            clock,
            timers,
            enabled=configuration.message_counter_enabled,
            period_ms=configuration.message_counter_sample_period_ms,
            days=configuration.message_counter_max_day_history,
        )

    def _notifications(self, configuration: Configuration) -> Notifications:
        events = NodeEvents()
        notifications = Notifications(
            self.post_office,
            self.store.node_id,
            configuration.management_notification_address,
            sessions=not configuration.suppress_session_notifications,
        )
        self.post_office.directory.listeners += [self.slow_consumers, self.counters, notifications, events]
        self.slow_consumers.listeners += [notifications, events]
        self.post_office.diverts.listeners += [notifications, events]
        return notifications

    def reconfigure(self, configuration: Configuration) -> Refusals:
        """Take addresses, queues, diverts, address settings, security settings and connection factories of a changed
        broker.xml. Returns why some of them are left out; the others are applied.
        """
        self.settings.configure(configuration)
        self.invocations.reconfigure(configuration)
        return deploy(self.post_office, configuration.addresses, configuration.diverts)

    def stop_accepting(self, *, critical: bool = False) -> None:
        """Refuse new sessions; present ones continue until they are closed.

        Args:
            critical: The node stops because of an error; the reason is sent to clients.
        """
        self.services.connections.accepting = False
        self.services.connections.critical_stop = critical

    def end_sessions(self) -> None:
        """End sessions that wait for their clients, after the connections were closed; their messages return to the
        queues.
        """
        for protocol in self.protocols:
            protocol.close()

    def when_idle(self, call: Callable[[], None]) -> None:
        """Make a call when the broker has no session, perhaps at once; it may be called more than once."""
        self.services.connections.on_idle = call
        self.services.connections.check_idle()

    def close(self) -> None:
        """End timers and sessions that wait for their clients; connections were closed before."""
        self.exchange.close()
        self.invocations.close()
        self.settings.close()
        self.server_dump.close()
        self.end_sessions()
        self.slow_consumers.close()
        self.counters.close()
        self.resources.close()
        self.post_office.close()


def _durability_contract(configuration: Configuration) -> DurabilityContract:
    """Contract of addresses that have none of their own; without replication it does not matter."""
    replication = configuration.ha_policy.replication
    return DurabilityContract("replica-disk" if replication is None else replication.durability_contract)


def _kinds_of_resources() -> Sequence[ControlFinder]:
    """The kinds of managed resources. Their modules and the model are loaded with the first request."""
    from understudy.management.operations.resources import CONTROLS

    return CONTROLS
