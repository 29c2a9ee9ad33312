"""The acceptors of a node that waits, for its last replica (ADR 0064); clients are refused. Implements ``Listener``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from understudy.errors import BrokerError
from understudy.ha.replication.ports import Authority
from understudy.ha.replication.standing import WaitingCopy
from understudy.ports import SealableConnection
from understudy.protocols.amqp091.waiting_connection import WaitingAmqp091Connection
from understudy.protocols.core.waiting_connection import WaitingConnection
from understudy.protocols.handlers import served
from understudy.runtime.base.parts import NodeParts
from understudy.runtime.base.process import upgrade_server
from understudy.runtime.net.acceptor import Acceptor, StreamLayer
from understudy.session.prefixes import AddressPrefixes
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import ReplicaProblem
from understudy.wire.detect import Protocol as Wire

log = logging.getLogger(__name__)


class WaitingAcceptors:
    """The configured acceptors, as long as the node waits. Implements ``Listener``."""

    def __init__(self, parts: NodeParts, authority: Authority) -> None:
        """Begin without listening.

        Args:
            authority: Decides what a registration proves.
        """
        self._parts = parts
        self._authority = authority
        self._acceptors: list[Acceptor] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None

    def open(self) -> None:
        if not self._acceptors:
            self._opening = self._start(self._open())

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        acceptors, self._acceptors = self._acceptors, []
        for acceptor in acceptors:
            acceptor.stop_listening()
            self._start(_end(acceptor))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._parts.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open(self) -> None:
        configuration, environment = self._parts.configuration.current, self._parts.environment
        for each in configuration.acceptors:
            handlers = served({Wire.CORE: self._connected, Wire.AMQP091: self._send_elsewhere}, each.protocols)
            if not handlers:
                continue
            acceptor = Acceptor(
                each,
                self._parts.turn,
                handlers,
                configuration.connection_ttl_check_interval_ms,
                layer=StreamLayer(
                    environment.streams(), self._parts.tls.port(each, lambda: environment.worker(self._parts.turn))
                ),
                server=upgrade_server(self._parts.process, configuration.name),
            )
            self._acceptors.append(acceptor)
            try:
                await acceptor.bind()
                await acceptor.open()
            except OSError as error:
                self._acceptors.remove(acceptor)
                log.warning("a node that waits cannot listen", extra={"url": each.url, "error": str(error)})

    def _connected(self, connection: SealableConnection, prefixes: AddressPrefixes) -> WaitingConnection:
        credentials = self._parts.credentials
        assert credentials is not None, "the configuration has a cluster-connection"
        return WaitingConnection(connection, credentials, self._heard, self._parts.environment.clock)

    def _send_elsewhere(self, connection: SealableConnection, prefixes: AddressPrefixes) -> WaitingAmqp091Connection:
        return WaitingAmqp091Connection(connection, self._parts.topology.endpoints, self._parts.environment.clock)

    def _heard(self, registration: packets.ReplicaRegistration) -> tuple[ReplicaProblem, str]:
        connector, node_id = registration.connector, registration.copy_of or registration.node_id
        if not self._acceptors:
            return ReplicaProblem.NOT_ACTIVE, "this node does not wait any more"
        if node_id is None or registration.copied_at < 0:
            return ReplicaProblem.NOT_ACTIVE, "this node waits, too"
        copy = WaitingCopy(node_id, registration.copied_at, f"{connector.host}:{connector.port}")
        try:
            proved = self._authority.copy_waits(copy)
        except BrokerError as error:
            return ReplicaProblem.NOT_ACTIVE, str(error)
        if not proved:
            return ReplicaProblem.NOT_ACTIVE, "this node waits: your copy is not that of its last replica"
        log.info("the last replica of this node waits, too", extra={"replica": copy.place, "sequence": copy.copied_at})
        return ReplicaProblem.ACTIVATES, "this node was the last active one and activates"


async def _end(acceptor: Acceptor) -> None:
    await acceptor.close()
    if acceptor.tls is not None:
        acceptor.tls.handshakes.close()
