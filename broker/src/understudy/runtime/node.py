"""A broker node: the policy decides, the node follows, activates, yields and stops.

It runs on whatever asyncio loop runs it, real or simulated, and reaches files, locks, clocks and
randomness only through its ``Environment``. It is the only place that puts a ``Broker`` together
with sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from understudy.broker import Broker
from understudy.cluster.announcer import BackupAnnouncer
from understudy.cluster.announcer import State as AnnouncerState
from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.topology import Topology
from understudy.config.model import Configuration
from understudy.errors import BrokerError, ConfigError, DiskFailed, StoreError, Unreachable
from understudy.ha.activation import Done
from understudy.ha.shared_store import Event, Role, SharedStoreOptions, SharedStorePolicy, State
from understudy.management.invocation import Reload
from understudy.runtime.acceptor import Acceptor
from understudy.runtime.connector import LoopDialer
from understudy.runtime.descriptors import ConnectionBudget
from understudy.runtime.environment import Environment
from understudy.runtime.store_watch import StoreWatch
from understudy.runtime.turn import Turn
from understudy.security.authorization import SecurityPolicy
from understudy.session.prefixes import prefixes_of
from understudy.store.batch import Sync
from understudy.store.follower import Follower
from understudy.store.large_messages import LargeMessages
from understudy.store.message_store import MessageStore
from understudy.store.node_lock import NodeLock
from understudy.store.pages import Pages
from understudy.store.retention import Retention, RetentionSettings
from understudy.store.settings import StoreSettings
from understudy.wire.core.transport import TransportConfiguration

log = logging.getLogger(__name__)

#: After an unreadable store, before following it anew from its beginning.
FOLLOW_RETRY_MS: Final = 1_000
#: While another node chooses the node id of a new store: how often and how many times to ask.
LOCK_OPEN_RETRY_MS: Final = 50
LOCK_OPEN_ATTEMPTS: Final = 200
#: After the activation, before the disks are looked at again, all of them: the first clients come before that.
FIRST_DISK_CHECK_MS: Final = 500
#: Log bytes applied per step, so that a long log does not keep the loop from answering.
FOLLOW_STEP_BYTES: Final = 8 * 1024 * 1024

_VISIBLE: Final = {
    State.STOPPED: "stopped",
    State.QUEUED: "passive",
    State.PASSIVE: "passive",
    State.ACTIVATING: "starting",
    State.ACTIVE: "active",
    State.FAILING_BACK: "stopping",
    State.YIELDED: "passive",
    State.STOPPING: "stopping",
}


class BrokerNode:
    """One server of a pair, or a single one. Implements ``ha.activation.ActivationPort``."""

    def __init__(
        self,
        configuration: Configuration,
        environment: Environment,
        security: SecurityPolicy,
        *,
        on_active: Callable[[], None] | None = None,
        instance_directory: str | None = None,
    ) -> None:
        self.configuration = configuration
        self.environment = environment
        self.topology = Topology()
        self.broker: Broker | None = None
        self.acceptors: list[Acceptor] = []
        self.follower: Follower | None = None
        self.following_error: str | None = None
        self.reload: Reload | None = None
        """Reads broker.xml again for management; set by the caller that runs the node."""
        self._security = security
        self._on_active = on_active
        self._loop = asyncio.get_running_loop()
        self.started_ms = environment.clock.monotonic_ms()
        self._watch = StoreWatch(environment.disk, configuration, instance_directory)
        self._turn = Turn(self._loop, environment.timers)
        self._ended: asyncio.Future[BrokerError | None] = self._loop.create_future()
        self._state_changed = asyncio.Event()
        self._clients_left: asyncio.Event | None = None
        """Set when a graceful stop need not wait any longer; None before one begins."""
        self._activation: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._follow_timer: asyncio.TimerHandle | None = None
        self._disk_timer: asyncio.TimerHandle | None = None
        self.store: MessageStore | None = None
        self._releases: list[Callable[[], None]] = []
        """Let the writers of the activation under way begin their work."""
        self._ends: list[Callable[[], None]] = []
        """Close the writers and workers of this activation that nothing else closes."""
        self._credentials = self._cluster_credentials()
        self.lock = NodeLock(
            environment.disk,
            configuration.node_manager_lock_directory,
            environment.file_lock,
            environment.entropy,
        )
        self.policy = _NodePolicy(self, self._policy_options())
        self._announcer = self._make_announcer()

    # --- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare the directories and the node id, then let the policy begin.

        A primary with wait-for-activation (the default) has started when it is active; every other
        node when its policy runs (artemis-ha s. 1, 2.2). Returns early when the node ends before.

        Raises:
            StoreError: the store cannot be used; the text says why.
            ConfigError: a directory is missing that is not to be made.
        """
        disk = self.environment.disk
        self._watch.check()
        for element, directory in self.configuration.directories_not_made():
            if not disk.exists(directory):
                raise ConfigError(f"{directory} is missing and is not to be made", path=f"core/{element}")
        for directory in self.configuration.store_directories():
            disk.make_directory(directory)
        await self._open_lock()
        self.policy.start()
        policy = self.configuration.ha_policy
        if policy.wait_for_activation and self.policy.options.role is not Role.BACKUP:
            await self.wait_for("active", "stopped")

    async def _open_lock(self) -> None:
        for _ in range(LOCK_OPEN_ATTEMPTS):
            if self.lock.open():
                return
            await asyncio.sleep(LOCK_OPEN_RETRY_MS / 1000)
        raise DiskFailed("another node has been choosing the node id for too long", hint="does it hang?")

    async def stop(self, *, failover: bool = False) -> None:
        """Stop cleanly and wait for the end; see ``SharedStorePolicy.stop``.

        With graceful-shutdown-enabled an active node first waits for its clients to leave, as long as
        graceful-shutdown-timeout says; stopping it again meanwhile ends the wait. The node keeps and
        proves its lock until then.
        """
        if self.policy.state is State.STOPPED:
            return
        if self.configuration.graceful_shutdown_enabled and self.policy.state is State.ACTIVE:
            await self._wait_for_clients()
        self.policy.stop(fail_over=failover)
        await self.wait_ended()

    async def _wait_for_clients(self) -> None:
        if self._clients_left is not None:
            self._clients_left.set()
            return
        assert self.broker is not None
        self._clients_left = asyncio.Event()
        self.policy_changed()
        self.broker.stop_accepting()
        for acceptor in self.acceptors:
            acceptor.stop_listening()
        timeout_ms = self.configuration.graceful_shutdown_timeout_ms
        log.info("waiting for clients to leave", extra={"sessions": self.broker.services.session_count()})
        self.broker.when_idle(self._clients_left.set)
        try:
            await asyncio.wait_for(self._clients_left.wait(), timeout_ms / 1000 if timeout_ms >= 0 else None)
        except TimeoutError:
            log.warning("clients did not leave in time", extra={"timeout_ms": timeout_ms})

    async def wait_ended(self) -> BrokerError | None:
        """Wait until the node has ended by itself or by ``stop``; the error that ended it."""
        return await asyncio.shield(self._ended)

    async def wait_for(self, *states: str) -> str:
        """Wait for one of ``active``, ``passive``, ``stopped`` …; the state reached."""
        while self.state not in states:
            self._state_changed.clear()
            await self._state_changed.wait()
        return self.state

    @property
    def state(self) -> str:
        """``starting``, ``active``, ``passive``, ``stopping`` or ``stopped``."""
        if self._clients_left is not None and self.policy.state is State.ACTIVE:
            return "stopping"
        return _VISIBLE[self.policy.state]

    @property
    def announced_to(self) -> TransportConfiguration | None:
        """The active node that knows we stand by."""
        return None if self._announcer is None else self._announcer.connected_to

    def policy_changed(self) -> None:
        """The policy took a transition."""
        self._state_changed.set()

    # --- ActivationPort: passive ---------------------------------------------------------------

    def follow(self) -> None:
        self._follow_step()

    def stop_following(self) -> None:
        if self._follow_timer is not None:
            self._follow_timer.cancel()
            self._follow_timer = None
        if self.follower is not None:
            self.follower.close()
            self.follower = None

    def announce(self) -> None:
        if self._announcer is not None and self._announcer.state is AnnouncerState.IDLE:
            self._announcer.start(self.lock.node_id)

    def withdraw(self) -> None:
        if self._announcer is not None:
            self._announcer.stop()

    def peer_is_announced(self) -> bool:
        if self._announcer is None:
            # no cluster-connection, so a backup cannot announce itself: the state byte has to do
            return True
        member = self.topology.member(self.lock.node_id)
        return member is not None and member.backup is not None

    def stopped(self, error: BrokerError | None) -> None:
        if error is not None:
            log.error("node ended", extra={"code": error.code, "error": str(error)})
        self.lock.close()
        if not self._ended.done():
            self._ended.set_result(error)

    def _follow_step(self) -> None:
        delay_ms = self._watch.pace.delay_ms
        if self._watch.pace.needs_poll(self.follower):
            delay_ms = self._poll_log()
        self._follow_timer = self._loop.call_later(delay_ms / 1000, self._follow_step)

    def _poll_log(self) -> int:
        """Read what the active node has written; milliseconds until the next look."""
        try:
            if self.follower is None:
                self.follower = self._watch.follower()
            applied = self.follower.poll(FOLLOW_STEP_BYTES)
            self._watch.pace.polled(applied)
            self.following_error = None
            # what could not be read now, such as a damaged record, can be read later at the earliest
            return 0 if applied and not self.follower.caught_up else self._watch.pace.delay_ms
        except StoreError as error:
            # the store may be in the middle of a change by its owner: say it, start over
            if self.following_error != str(error):
                log.warning("cannot follow the store", extra={"error": str(error)})
            self.following_error = str(error)
            if self.follower is not None:
                self.follower.close()
                self.follower = None
            return FOLLOW_RETRY_MS

    # --- ActivationPort: active ----------------------------------------------------------------

    def activate(self, done: Done) -> None:
        self._activation = self._spawn(self._activate(done))

    async def _activate(self, done: Done) -> None:
        began_ms = self.environment.clock.monotonic_ms()
        try:
            await self._open()
        except BrokerError as error:
            done(error)
            return
        except OSError as error:
            done(DiskFailed(f"cannot activate: {error}"))
            return
        finally:
            self._activation = None
            # what they were given meanwhile can wait until the node listens
            while self._releases:
                self._releases.pop()()
        log.info(
            "active",
            extra={
                "node_id": self.lock.node_id,
                "epoch": self.store.epoch if self.store else None,
                "took_ms": self.environment.clock.monotonic_ms() - began_ms,
            },
        )
        done(None)
        if self._on_active is not None:
            self._on_active()

    async def _open(self) -> None:
        environment, configuration = self.environment, self.configuration
        if self._follow_timer is not None:
            self._follow_timer.cancel()
            self._follow_timer = None
        self._watch.check_identity()
        follower = self.follower or self._watch.follower()
        self.follower = None
        if not follower.quiet():
            while follower.poll(FOLLOW_STEP_BYTES) and not follower.caught_up:
                await asyncio.sleep(0)
        # one for the journal, one for the bodies of large messages, for which the journal never waits, and one for
        # the removal of files
        writers = [environment.log_writer(self._turn, self.policy) for _ in range(3)]
        for each in writers:
            each.hold()
        self._releases = [each.release for each in reversed(writers)]
        writer, large_writer, housekeeper = writers
        worker = environment.worker(self._turn)
        self._ends = [large_writer.close, worker.close]
        settings = self._store_settings()
        self.store = MessageStore.activate(
            follower,
            disk=environment.disk,
            directory=configuration.journal_directory,
            writer=writer,
            clock=environment.clock,
            node_id=self.lock.node_id,
            settings=settings,
            housekeeper=housekeeper,
            large=LargeMessages(
                environment.disk,
                configuration.large_messages_directory,
                large_writer,
                environment.clock,
                why_not_remove=self.policy.why_not_confirm,
                retention=Retention(environment.disk, settings.retention) if settings.retention is not None else None,
                unfinished_max=environment.descriptors.large_messages_max if environment.descriptors else None,
            ),
            on_failure=self._store_failed,
        )
        self._watch.activated(self.store, housekeeper)
        self.store.watch((configuration.large_messages_directory, configuration.paging_directory))
        self.broker = Broker(
            # read again: the file may have changed while the log was followed to its end
            self.configuration,
            self.store,
            self._security,
            self.topology,
            self._credentials,
            clock=environment.clock,
            timers=self._turn,
            entropy=environment.entropy,
            worker=worker,
            wake=self._turn.request,
            global_max_size_bytes=self._global_max_size_bytes(),
            fail_over=self._fail_over,
            reload=self.reload,
            pages=Pages(environment.disk, configuration.paging_directory, self.store.epoch),
        )
        self.broker.post_office.paging.bodies_max_bytes = self._bodies_max_bytes()
        self._turn.work = self.broker.post_office.turn
        self._turn.congestion = self.store.congestion
        self._turn.on_error = self._store_failed
        own = self._own_connector()
        if own is not None:
            self.topology.set_primary(self.store.node_id, own, environment.clock.wall_ms())
        await self._open_acceptors(self.broker)
        # the directory of the journal was looked at when the store was activated
        self._disk_timer = self._loop.call_later(FIRST_DISK_CHECK_MS / 1000, self._check_disk)

    async def _open_acceptors(self, broker: Broker) -> None:
        descriptors = self.environment.descriptors
        allowed = sum(acceptor.connections_allowed for acceptor in self.configuration.acceptors)
        budget = ConnectionBudget(allowed)
        if descriptors is not None:
            budget = ConnectionBudget(min(allowed, descriptors.connections_max), lambda: descriptors.low)
            log.info(
                "file descriptors",
                extra={"limit": descriptors.limit, "connections_max": budget.connections_max, "wanted": allowed},
            )
        for configuration in self.configuration.acceptors:
            acceptor = Acceptor(
                configuration,
                self._turn,
                partial(broker.make_handler, prefixes_of(configuration)),
                self.configuration.connection_ttl_check_interval_ms,
                budget=budget,
                descriptors=descriptors,
            )
            try:
                await acceptor.open()
            except OSError as error:
                place = f"acceptor {configuration.name!r} cannot listen on {configuration.url}"
                raise Unreachable(f"{place}: {error.strerror or error}") from error
            self.acceptors.append(acceptor)

    def reconfigure(self, configuration: Configuration) -> None:
        """Take what a running node takes of a changed broker.xml (``config.changes``): at once while it is active,
        else when it activates.

        Raises:
            BrokerError: it cannot be carried out; see ``Broker.reconfigure``.
        """
        if self.broker is not None:
            self.broker.reconfigure(configuration)
            self._turn.request()
        else:
            self._security.settings.configure(configuration.security_settings)
        self.configuration = configuration

    def _fail_over(self) -> None:
        self._spawn(self.stop(failover=True))

    def _store_failed(self, error: BaseException) -> None:
        failure = error if isinstance(error, BrokerError) else DiskFailed(str(error))
        self._loop.call_soon(self.policy.fail, failure)

    def _check_disk(self) -> None:
        if self.store is not None:
            self._turn.completed(self.store.check_disk)
            self._disk_timer = self._loop.call_later(self.configuration.disk_scan_period_ms / 1000, self._check_disk)

    def deactivate(self, done: Done) -> None:
        self._spawn(self._deactivate(done))

    async def _deactivate(self, done: Done) -> None:
        error: BrokerError | None = None
        try:
            await self._close()
        except BrokerError as failure:
            error = failure
        done(error)

    async def _close(self) -> None:
        if self._activation is not None:
            await asyncio.wait([self._activation])
        if self._disk_timer is not None:
            self._disk_timer.cancel()
        if self.broker is not None:
            self.broker.stop_accepting(critical=self.policy.error is not None)
        for acceptor in self.acceptors:
            acceptor.stop_listening()
        for acceptor in self.acceptors:
            await acceptor.close()
        self.acceptors.clear()
        if self.broker is not None:
            self.broker.close()
        self._turn.work = self._turn.congestion = None
        self.broker = None
        self.topology.clear()
        store, self.store = self.store, None
        if store is not None:
            closed: asyncio.Future[None] = self._loop.create_future()
            store.close(lambda: closed.set_result(None))
            await closed
            self._watch.closed(store)
        while self._ends:
            self._ends.pop()()

    # --- parts ---------------------------------------------------------------------------------

    def _spawn(self, work: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # a bug of ours: end rather than go on half-built
            log.critical("internal error", exc_info=task.exception())
            self.policy.fail(StoreError(f"internal error: {task.exception()!r}"))

    def _policy_options(self) -> SharedStoreOptions:
        policy = self.configuration.ha_policy
        return SharedStoreOptions(
            role=Role(policy.role.value),
            failover_on_shutdown=policy.failover_on_shutdown,
            allow_failback=policy.allow_failback,
            restart_backup=policy.restart_backup,
            lock_timeout_ms=self.configuration.journal_lock_acquisition_timeout_ms,
        )

    def _store_settings(self) -> StoreSettings:
        configuration = self.configuration
        retention = None
        if configuration.journal_retention_directory is not None:
            retention = RetentionSettings(
                configuration.journal_retention_directory,
                configuration.journal_retention_period_ms,
                configuration.journal_retention_storage_limit_bytes,
            )
        return StoreSettings(
            segment_bytes=configuration.journal_file_size_bytes,
            ahead=configuration.journal_min_files - 1,
            sync=self._sync(),
            retention=retention,
            id_cache_size=configuration.id_cache_size,
            disk_usage_percent_max=configuration.max_disk_usage_percent,
            disk_free_bytes_min=configuration.min_disk_free_bytes,
            delivery_count_max=configuration.max_redelivery_records,
            count_before_delivery=configuration.persist_delivery_count_before_delivery,
            compact_segments_min=configuration.journal_compact_min_files,
            compact_percent=configuration.journal_compact_percentage_percent,
        )

    def _sync(self) -> Sync:
        """When batches are synced; said loudly at every activation if not always."""
        configuration = self.configuration
        if configuration.journal_datasync and configuration.journal_sync_non_transactional:
            return Sync.ALWAYS
        commits = configuration.journal_datasync and configuration.journal_sync_transactional
        log.warning(
            "SYNC IS OFF: confirmed messages%s are lost when this machine loses power or its kernel dies, and a backup"
            " on another machine may not see the last of them; set journal-datasync, journal-sync-transactional and"
            " journal-sync-non-transactional to true",
            " outside of transactions" if commits else "",
        )
        return Sync.COMMITS if commits else Sync.SELDOM

    def _bodies_max_bytes(self) -> int:
        """Bodies of waiting messages in memory before further ones that the log has stay there only."""
        if self.configuration.global_max_size_bytes >= 0:
            return self.configuration.global_max_size_bytes
        return min(self._global_max_size_bytes(), self.environment.waiting_bodies_bytes)

    def _global_max_size_bytes(self) -> int:
        """global-max-size; by default half of the memory that the process may use."""
        configured = self.configuration.global_max_size_bytes
        return configured if configured >= 0 else self.environment.memory_bytes // 2

    def _cluster_credentials(self) -> ClusterCredentials | None:
        if not self.configuration.cluster_connections:
            return None
        return ClusterCredentials(
            self.configuration.cluster_user, self.configuration.cluster_password, self.environment.entropy
        )

    def connector(self, name: str) -> TransportConfiguration:
        """A configured connector as it travels to others; KeyError if there is none of the name."""
        connector = self.configuration.connector(name)
        return TransportConfiguration(
            name, parameters={"host": connector.host, "port": str(connector.port), **connector.parameters}
        )

    def _own_connector(self) -> TransportConfiguration | None:
        connections = self.configuration.cluster_connections
        return self.connector(connections[0].connector_ref) if connections else None

    def _make_announcer(self) -> BackupAnnouncer | None:
        own = self._own_connector()
        if own is None or self._credentials is None:
            return None
        connection = self.configuration.cluster_connections[0]
        return BackupAnnouncer(
            own=own,
            candidates=[self.connector(name) for name in connection.static_connectors],
            credentials=self._credentials,
            dialer=LoopDialer(self._loop, self._turn),
            clock=self.environment.clock,
            timers=self._turn,
            retry_interval_ms=connection.retry_interval_ms,
        )


class _NodePolicy(SharedStorePolicy):
    """The policy with its transitions visible to callers that wait for a state."""

    def __init__(self, node: BrokerNode, options: SharedStoreOptions) -> None:
        environment = node.environment
        super().__init__(options, node, node.lock, environment.lock_clock or environment.clock, environment.timers)
        self._owner = node

    def state_changed(self, origin: State, target: State, event: Event) -> None:
        log.info("ha state", extra={"from": origin.name, "to": target.name, "cause": event.name})
        self._owner.policy_changed()
