"""A broker node: its policy decides, this carries out. One per identity: several may live in one process.

A node has an identity (the node id of its store), a configuration, a lock, a life (``ha.life.node``), an executor of
its own (``Turn``) and three parts: ``NodeStandby`` while another node is active, ``OpenedStore`` and ``Serving`` while
this one is. It runs on whatever asyncio loop runs it, real or simulated, and reaches files, locks, clocks and
randomness only through its ``Environment``.

Resources of the process, such as signals, belong to ``runtime.process.server``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from understudy.broker import Broker
from understudy.config.model import Configuration
from understudy.errors import BrokerError, ConfigError, DiskFailed, ManagementError, StoreError
from understudy.ha.life.node import NodeLife
from understudy.ha.life.policy import Compose, Done, NodeState, Policy, Role
from understudy.runtime.base.environment import Environment
from understudy.runtime.base.process import Process
from understudy.runtime.management.protection import NodeProtection
from understudy.runtime.node.activation import Activation
from understudy.runtime.node.assembly import make_parts
from understudy.runtime.node.serving import Serving
from understudy.runtime.node.sides import make_sides
from understudy.runtime.node.standby import NodeStandby
from understudy.security.authorization import SecurityPolicy
from understudy.store.messages.message_store import MessageStore

log = logging.getLogger(__name__)

#: While another node chooses the node id of a new store: how often and how many times to ask.
LOCK_OPEN_RETRY_MS: Final = 50
LOCK_OPEN_ATTEMPTS: Final = 200


class BrokerNode:
    """One server of a pair, or a single one. Implements ``NodePort`` and ``Owner``."""

    def __init__(
        self,
        configuration: Configuration,
        environment: Environment,
        security: SecurityPolicy,
        *,
        on_active: Callable[[], None] | None = None,
        instance_directory: str | None = None,
        process: Process | None = None,
    ) -> None:
        """Nothing is opened yet; on the loop.

        Args:
            configuration: Configuration from its broker.xml.
            environment: The node's share of the process.
            on_active: Called after each activation.
            instance_directory: Absolute, where it notes which store it uses; None: it does not.
            process: The other servers of the process, with the backups that it hosts; None: it is alone and hosts none.
        """
        self.environment = environment
        self.started_ms = environment.clock.monotonic_ms()
        self._on_active = on_active
        self._ended: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        self._state_changed = asyncio.Event()
        self._clients_left: asyncio.Event | None = None
        """Set when a graceful stop need not wait any longer; None before one begins."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._activating: asyncio.Task[None] | None = None
        """Carries out an activation."""
        self._deactivated: Done | None = None
        """Called at the end of the deactivation under way; None: none is."""
        self.parts = make_parts(configuration, environment, security, instance_directory, process)
        self.standby = NodeStandby(self.parts, self)
        self.activation = Activation(environment.clock, lambda: self.error)
        sides = make_sides(self.parts, self.standby, self)
        self.opened, self.replication = sides.opened, sides.replication
        self.serving = Serving(self.parts, sides.opened, self, sides.scale_down, sides.replication)
        self.life = NodeLife(sides.make_policy, self.standby, self, self._life_changed)
        self.protection = NodeProtection(
            self.parts, self.life, self.standby, self.opened, self.serving, self.replication, self.activation
        )
        """Says which node takes over."""

    def _life_changed(self) -> None:
        self._state_changed.set()
        self.protection.changed()

    # --- properties ---------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        """Present configuration of the node."""
        return self.parts.configuration.current

    @property
    def policy(self) -> Policy:
        """Decides the life of the node."""
        return self.life.policy

    @property
    def store(self) -> MessageStore | None:
        """Store of the node while it is active."""
        return self.opened.store

    @property
    def broker(self) -> Broker | None:
        """Broker of the node while it is active."""
        return self.serving.broker

    @property
    def state(self) -> str:
        """``starting``, ``active``, ``passive``, ``stopping``, ``isolated`` or ``stopped``."""
        if self._clients_left is not None and self.life.state is NodeState.ACTIVE:
            return "stopping"
        return self.life.state.shown

    @property
    def error(self) -> BrokerError | None:
        """The error because of which the node ends, or None."""
        return self.life.error

    @property
    def unopened(self) -> bool:
        """Whether this is a backup that follows a store with which no node was ever active."""
        return self.policy.unopened

    @property
    def isolating(self) -> bool:
        """Whether the node stops serving because its network check failed, and will serve again."""
        return self.life.state is NodeState.ISOLATING

    # --- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Prepare the directories and the node id, then let the policy begin.

        A primary with wait-for-activation (the default) has started when it is active or when the network check has
        stopped it; every other node when its policy runs (artemis-ha s. 1, 2.2). Returns early when the node ends
        before.

        Raises:
            StoreError: the store cannot be used; the text says why.
            ConfigError: a directory is missing that is not to be made, or a TLS file cannot be used.
        """
        disk = self.environment.disk
        self.parts.watch.check()
        self._derive_cluster_key()
        self.parts.tls.read()
        for element, directory in self.configuration.directories_not_made():
            if not disk.exists(directory):
                raise ConfigError(f"{directory} is missing and is not to be made", path=f"core/{element}")
        for directory in self.configuration.store_directories():
            disk.make_directory(directory)
        await self._open_lock()
        if self.replication is not None:
            self.replication.adopt_identity()
        self.parts.discovery.start()
        self.life.start()
        if self.parts.network_check is not None:
            self.parts.network_check.start(self.life.network_checked)
        if self.configuration.ha_policy.wait_for_activation and self.policy.role is not Role.BACKUP:
            await self.wait_for("active", "isolated", "stopped")

    def _derive_cluster_key(self) -> None:
        """Begin to compute the key of the cluster password, which the first link needs."""
        credentials = self.parts.credentials
        if credentials is not None:
            worker = self.environment.worker(self.parts.turn)
            worker.run(credentials.derive_key, lambda error: worker.close())

    async def _open_lock(self) -> None:
        for _ in range(LOCK_OPEN_ATTEMPTS):
            if self.parts.lock.open():
                return
            await asyncio.sleep(LOCK_OPEN_RETRY_MS / 1000)
        raise DiskFailed("another node has been choosing the node id for too long", hint="does it hang?")

    async def stop(self, *, failover: bool = False) -> None:
        """Stop cleanly and wait for the end; see ``NodeLife.stop``.

        With graceful-shutdown-enabled an active node first waits for its clients to leave, as long as
        graceful-shutdown-timeout says; stopping it again meanwhile ends the wait. The node keeps and
        proves its lock until then.
        """
        if self.life.state is NodeState.STOPPED:
            return
        if self.configuration.graceful_shutdown_enabled and self.life.state is NodeState.ACTIVE:
            await self._wait_for_clients()
        self.life.stop(fail_over=failover)
        await self.wait_ended()

    async def _wait_for_clients(self) -> None:
        if self._clients_left is not None:
            self._clients_left.set()
            return
        assert self.broker is not None
        self._clients_left = asyncio.Event()
        self._state_changed.set()
        self.serving.stop_accepting()
        timeout_ms = self.configuration.graceful_shutdown_timeout_ms
        log.info(
            "waiting for clients to disconnect", extra={"sessions": self.broker.services.connections.session_count}
        )
        self.broker.when_idle(self._clients_left.set)
        try:
            await asyncio.wait_for(self._clients_left.wait(), timeout_ms / 1000 if timeout_ms >= 0 else None)
        except TimeoutError:
            log.warning("clients did not disconnect in time", extra={"timeout_ms": timeout_ms})

    async def wait_ended(self) -> BrokerError | None:
        """Wait until the node has ended by itself or by ``stop``; the error that ended it."""
        return await asyncio.shield(self._ended)

    async def wait_for(self, *states: str) -> str:
        """Wait until the node has one of these states (``active``, ``passive``, ``stopped`` …) and return the reached
        one."""
        while self.state not in states:
            self._state_changed.clear()
            await self._state_changed.wait()
        return self.state

    def reconfigure(self, configuration: Configuration) -> tuple[BrokerError, ...]:
        """Apply the elements of a changed broker.xml that a running node accepts (``config.changes``), at once while it
        is active, else when it activates. Returns why some of them are left out; see ``Broker.reconfigure``.
        """
        refused: tuple[BrokerError, ...] = ()
        if self.broker is not None:
            refused = self.broker.reconfigure(configuration)
            self.parts.turn.request()
        else:
            self.parts.security.settings.configure(configuration.security_settings)
        self.parts.configuration.current = configuration
        return refused

    # --- runtime.parts.Owner -------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the node because of an error, in the next iteration of the loop."""
        failure = error if isinstance(error, BrokerError) else DiskFailed(str(error))
        self.parts.loop.call_soon(self.life.fail, failure)

    def fail_over(self) -> None:
        """Stop the node and let another one take over."""
        self._spawn(self.stop(failover=True))

    def fail_back(self) -> None:
        """Yield to the node that this one took over from, after the reply. Raises ManagementError: it cannot."""
        refusal = self.life.refuse_failback()
        if refusal is not None:
            raise ManagementError(f"no failback: {refusal}")
        self.parts.turn.call_later(0, self._fail_back)

    def take_stopped(self) -> None:
        """Activate although the active node was stopped cleanly. Raises ManagementError: the node cannot."""
        refusal = self.life.take_stopped()
        if refusal is not None:
            raise ManagementError(f"the node does not activate: {refusal}")

    def scale_down(self, connector: str | None) -> None:
        """Stop after the reply, and let another member take the messages, whatever ``scale-down`` says.

        Args:
            connector: Name of the connector of the member that is tried first; None: as configured.

        Raises:
            ManagementError: the node is not a single member of a cluster, or has no such connector.
        """
        configuration, connectors = self.configuration, self.parts.configuration.connectors
        if configuration.ha_policy.is_pair or not configuration.cluster_connections:
            raise ManagementError("only a node without a backup, with a cluster-connection, is scaled down on request")
        if connector is not None and connectors.get(connector) is None:
            raise ManagementError(f"there is no connector {connector!r}")
        self.serving.scale_down.request(connector)
        self.parts.turn.call_later(0, self._stop_soon)

    def _stop_soon(self) -> None:
        self._spawn(self.stop())

    def _fail_back(self) -> None:
        if self.life.state is NodeState.ACTIVE:
            self.life.fail_back()

    # --- ha.policy.NodePort --------------------------------------------------------------------

    def activate(self, compose: Compose, done: Done) -> None:
        self._activating = self._spawn(self._activate(compose, done))

    async def _activate(self, compose: Compose, done: Done) -> None:
        clock = self.environment.clock
        began_ms = clock.monotonic_ms()
        failure: BrokerError | None = None
        try:
            opening = [*self.standby.steps(), *self.opened.steps(), *self.serving.opening()]
            await self.activation.run(compose(opening, self.serving.steps()))
        except BrokerError as error:
            failure = error
        finally:
            self._activating = None
            self.opened.release_writers()
        if failure is None:
            took_ms = clock.monotonic_ms() - began_ms
            epoch = self.store.epoch if self.store is not None else None
            log.info("active", extra={"node_id": self.parts.lock.node_id, "epoch": epoch, "took_ms": took_ms})
        done(failure)
        if failure is None and self._on_active is not None:
            self._on_active()

    def deactivate(self, done: Done) -> None:
        under_way, self._deactivated = self._deactivated is not None, done
        if not under_way:
            self._spawn(self._deactivate())

    async def _deactivate(self) -> None:
        if self._activating is not None:
            await asyncio.wait([self._activating])
        error = await self.activation.undo()
        done, self._deactivated = self._deactivated, None
        assert done is not None
        done(error)

    def stopped(self, error: BrokerError | None) -> None:
        if error is not None:
            log.error("node ended", extra={"code": error.code, "error": str(error)})
        if self.parts.network_check is not None:
            self.parts.network_check.stop()
        self.parts.discovery.close()
        self.parts.lock.close()
        if self.serving.colocation is not None:
            self.serving.colocation.close()
        self.policy.close(lambda: self._set_ended(error))

    def _set_ended(self, error: BrokerError | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    # --- tasks ---------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self.parts.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # a bug of ours: end rather than go on half-built
            log.critical("internal error", exc_info=task.exception())
            self.life.fail(StoreError(f"internal error: {task.exception()!r}"))
