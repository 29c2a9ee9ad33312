"""Lock manager over ZooKeeper (artemis-ha s. 4.1), with the nodes that Artemis' Curator uses.

``/<namespace>/<id>/locks/leases/_c_<random>-lease-<number>`` is ephemeral and holds a random token; the one with the
lowest number is the lock. ``/<namespace>/<id>/activation-sequence`` holds eight bytes, a big-endian signed number.

kazoo runs its own threads; requests that wait run on one more, and everything calls back on the loop. A heartbeat reads
the node of each held lock, which proves the session and the token: the lock is provably held until the moment the
request was sent plus the session timeout, less a tenth (at least half a second) because the followers of an ensemble
report sessions to its leader with a delay. When the connection is suspended, the proof ends ``session-percent`` of the
session timeout later at the latest. A lost session makes the manager unavailable.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from understudy.config.lock_options import ZooKeeperLockOptions
from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.locks.distributed_lock import Finished, Held, ManagerListener, Read
from understudy.ha.locks.lease import Lease
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Clock, Executor, Timer, Timers
from understudy.runtime.base.worker import ThreadWorker

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_NUMBER: Final = struct.Struct(">q")
#: Heartbeats within a session timeout.
HEARTBEATS: Final = 6
#: The proof ends earlier than the session by this part of it, and at least by this time.
MARGIN_DIVISOR: Final = 10
MARGIN_MS_MIN: Final = 500


class State(Enum):
    """States of the manager."""

    STOPPED = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    SUSPENDED = auto()
    """The connection is lost, the session may live."""
    UNAVAILABLE = auto()
    """The session is lost, or was never begun, and has not been started again."""


class Event(Enum):
    """Events of the manager."""

    START = auto()
    CONNECTED = auto()
    SUSPENDED = auto()
    LOST = auto()
    """The session has ended. Its argument is the reason."""
    STOP = auto()


_S, _E = State, Event


class ZooKeeperLockManager(Machine[State, Event]):
    """Access of one node to ZooKeeper. Implements ``ha.locks.distributed_lock.LockManager``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.STOPPED

    def __init__(
        self,
        options: ZooKeeperLockOptions,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        clock: Clock,
        timers: Timers,
        begun: Callable[[int, bytes], None] = lambda session, password: None,
    ) -> None:
        """Begin in the state before ``start``.

        Args:
            options: Addresses and times.
            loop: Used for the answers,
            executor: and what calls them.
            clock: Boot time.
            begun: Called with the id and the password of each session.
        """
        super().__init__()
        self.options = options
        self.clock = clock
        self.timers = timers
        self.guid = uuid.uuid4()
        """Id in the names of the lease nodes of this manager."""
        self.session_ms = options.session_ms
        """Session timeout as negotiated."""
        self._loop = loop
        self._begun = begun
        self._executor = executor
        self._listener: ManagerListener | None = None
        self.client: Any = None
        self._worker: ThreadWorker | None = None
        self._timer: Timer | None = None
        self._deadline: Timer | None = None
        self._suspended_ms = 0
        self._locks: dict[str, ZooKeeperLock] = {}

    # --- LockManager -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Provider and addresses, for messages."""
        return f"zookeeper {self.options.connect_string}{self.options.root}"

    def start(self, listener: ManagerListener) -> None:
        self.fire(Event.STOP)
        self._listener = listener
        self.fire(Event.START)

    def stop(self) -> None:
        self.fire(Event.STOP)

    def lock(self, lock_id: str) -> ZooKeeperLock:
        found = self._locks.get(lock_id)
        if found is None:
            found = self._locks[lock_id] = ZooKeeperLock(self, lock_id)
        return found

    def number(self, number_id: str) -> ZooKeeperNumber:
        return ZooKeeperNumber(self, number_id)

    # --- for locks and numbers -----------------------------------------------------------------------

    @property
    def proof_ms(self) -> int:
        """Time after the sending of a request for which its answer proves a lock."""
        return self.session_ms - max(self.session_ms // MARGIN_DIVISOR, MARGIN_MS_MIN)

    def no_answer(self, reason: object) -> LockManagerUnavailable:
        """The error of a request that could not be carried out."""
        text = str(reason) or type(reason).__name__
        return LockManagerUnavailable(f"{self.name}: {text}")

    def run(self, work: Callable[[Any], _T], answer: Callable[[_T | BrokerError], None]) -> None:
        """Call ``work`` with the client on the thread, and ``answer`` with its result or an error."""
        worker, client = self._worker, self.client
        if worker is None or client is None or self.state is not State.CONNECTED:
            self.timers.call_later(0, partial(answer, self.no_answer("not connected")))
            return
        result: list[_T] = []

        def done(error: BaseException | None) -> None:
            if worker is self._worker:
                answer(result[0] if error is None else self.no_answer(error))

        worker.run(lambda: result.append(work(client)), done)

    def wait(self, result: Any) -> Any:
        """The result of an asynchronous call, within the time limit. Called on the thread."""
        return result.get(timeout=self.options.connection_ms / 1000)

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call on the loop. For the threads of kazoo."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._executor.completed, call, *args)

    # --- events of kazoo -------------------------------------------------------------------------------

    def _changed(self, client: Any, state: str) -> None:
        """On a thread of kazoo."""
        self.soon(self._has_changed, client, state)

    def _has_changed(self, client: Any, state: str) -> None:
        if client is not self.client:
            return
        if state == KazooState.SUSPENDED:
            self.fire(Event.SUSPENDED)
        elif state == KazooState.LOST:
            self.fire(Event.LOST, "the session was lost")

    def _negotiated(self, client: Any, session_ms: int) -> None:
        """A connection is established, and its session timeout is known: only now are proofs possible."""
        if client is self.client:
            self.session_ms = session_ms
            self._begun(*client.client_id)
            self.fire(Event.CONNECTED)

    # --- actions -----------------------------------------------------------------------------------------

    def _start(self) -> None:
        options = self.options
        self._worker = ThreadWorker(self._loop, self._executor, 1)
        scheme, _, credential = options.auth.partition(":")
        client = self.client = KazooClient(
            hosts=options.connect_string,
            timeout=options.session_ms / 1000,
            auth_data=[(scheme, credential)] if scheme else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1.0),
            command_retry=KazooRetry(max_tries=0),
            use_ssl=bool(options.tls_ca),
            check_hostname=bool(options.tls_ca),
            ca=options.tls_ca or None,
            certfile=options.tls_certificate or None,
            keyfile=options.tls_key or None,
        )
        client.add_listener(partial(self._changed, client))
        self._observe_session_timeout(client)
        client.start_async()
        attempts = max(options.retries, 0) + 1
        limit_ms = attempts * options.connection_ms + (attempts - 1) * options.retries_ms
        self._deadline = self.timers.call_later(limit_ms, partial(self._too_late, limit_ms))

    def _observe_session_timeout(self, client: Any) -> None:
        """Observe the negotiated session timeout, which kazoo does not keep: a connection waits for two thirds of
        it."""
        connect = client._connection._connect

        def observed(*args: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*args)
            self.soon(self._negotiated, client, int(read_timeout_ms * 3 / 2))
            return read_timeout_ms, connect_timeout_ms

        client._connection._connect = observed

    def _too_late(self, limit_ms: int) -> None:
        self._deadline = None
        if self.state is State.CONNECTING:
            self.fire(Event.LOST, f"no connection within {limit_ms} ms")

    def _begin(self) -> None:
        self._cancel_deadline()
        log.info("zookeeper connected", extra={"zookeeper": self.name, "session_ms": self.session_ms})
        self._beat()
        if self._listener is not None:
            self._listener.available()

    def _resume(self) -> None:
        self._cancel_deadline()
        log.info("zookeeper connected again", extra={"zookeeper": self.name})
        self._beat()

    def _suspend(self) -> None:
        self._suspended_ms = self.clock.monotonic_ms()
        log.warning("zookeeper connection suspended", extra={"zookeeper": self.name})
        limit_ms = self.session_ms * self.options.session_percent // 100
        for lock in self._locks.values():
            lock.fence.shorten(self._suspended_ms + limit_ms)
        self._cancel_deadline()
        self._deadline = self.timers.call_later(self.session_ms, self._suspended_too_long)

    def _suspended_too_long(self) -> None:
        self._deadline = None
        if self.state is State.SUSPENDED:
            self.fire(Event.LOST, f"no connection for a session timeout of {self.session_ms} ms")

    def _beat(self) -> None:
        """Prove every held lock; also after a reconnection, where the token is verified at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.timers.call_later(max(self.session_ms // HEARTBEATS, 1), self._beat)
        if self.state is State.CONNECTED:
            for lock in self._locks.values():
                lock.prove()

    def _lose(self, reason: str) -> None:
        error = self.no_answer(reason)
        log.error("zookeeper unavailable", extra={"zookeeper": self.name, "reason": reason})
        for lock in self._locks.values():
            lock.fence.lose(str(error))
        self._disconnect(release=False)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.unavailable(error)

    def _stop(self) -> None:
        self._listener = None
        for lock in self._locks.values():
            lock.lost = None
            lock.fence.release()
        self._locks.clear()
        self._disconnect(release=True)

    def _disconnect(self, *, release: bool) -> None:
        self._cancel_deadline()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        client, self.client = self.client, None
        worker, self._worker = self._worker, None
        if worker is not None:
            # the end of the session removes the lease nodes; it may wait for threads of kazoo
            worker.run(partial(_end_client, client), lambda error: None)
            worker.close()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    TABLE = table(
        State,
        Event,
        {
            (_S.STOPPED, _E.START): To(_S.CONNECTING, _start),
            (_S.CONNECTING, _E.CONNECTED): To(_S.CONNECTED, _begin),
            (_S.CONNECTING, _E.LOST): To(_S.UNAVAILABLE, _lose),
            (_S.CONNECTING, _E.STOP): To(_S.STOPPED, _stop),
            (_S.CONNECTED, _E.SUSPENDED): To(_S.SUSPENDED, _suspend),
            (_S.CONNECTED, _E.LOST): To(_S.UNAVAILABLE, _lose),
            (_S.CONNECTED, _E.STOP): To(_S.STOPPED, _stop),
            (_S.SUSPENDED, _E.CONNECTED): To(_S.CONNECTED, _resume),
            (_S.SUSPENDED, _E.LOST): To(_S.UNAVAILABLE, _lose),
            (_S.SUSPENDED, _E.STOP): To(_S.STOPPED, _stop),
            (_S.UNAVAILABLE, _E.STOP): To(_S.STOPPED, _stop),
        },
        otherwise={
            _E.START: ILLEGAL,
            _E.CONNECTED: IGNORED,
            _E.SUSPENDED: IGNORED,
            _E.LOST: IGNORED,
            _E.STOP: IGNORED,
        },
    )


def _end_client(client: Any) -> None:
    with suppress(KazooException, OSError, KazooTimeoutError):
        client.stop()
        client.close()


class _Answering:
    """A request without an answer so far. Implements ``ha.locks.distributed_lock.Request``."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """End the request without an answer."""
        self.cancelled = True


class ZooKeeperLock:
    """Lock kept in ZooKeeper. Implements ``ha.locks.distributed_lock.DistributedLock``."""

    def __init__(self, manager: ZooKeeperLockManager, lock_id: str) -> None:
        """Begin without holding the lock."""
        self._manager = manager
        self._leases = f"{manager.options.root}/{lock_id}/locks/leases"
        self._name = f"lock {lock_id} of {manager.name}"
        self.lost: Callable[[BrokerError], None] | None = None
        self.fence = Lease(self._name, manager.clock, manager.timers, self._ended)
        self._node = ""
        """Path of the held lease."""
        self._token = b""

    @property
    def late_from_ms(self) -> int:
        return self.fence.late_from_ms

    def try_acquire(self, answer: Held) -> _Answering:
        assert not self.fence.held, "release it first"
        attempt, token = _Answering(), str(uuid.uuid4()).encode()
        sent_ms = self._manager.clock.monotonic_ms()

        def tried(node: str | BrokerError) -> None:
            if isinstance(node, BrokerError):
                if not attempt.cancelled:
                    answer(node)
                return
            if node and (attempt.cancelled or not self.fence.begin(sent_ms + self._manager.proof_ms)):
                self._remove(node, lambda error: None)
                node = ""
            elif node:
                self._node, self._token = node, token
            if not attempt.cancelled:
                answer(bool(node))

        self._manager.run(partial(self._try, token), tried)
        return attempt

    def _try(self, token: bytes, client: Any) -> str:
        """Path of the lease, or an empty text. On the thread.

        A lease whose creation was not answered has the random name of this manager; it is removed first.
        """
        wait, mine = self._manager.wait, f"_c_{self._manager.guid}-lease-"
        client.ensure_path(self._leases)
        for child in wait(client.get_children_async(self._leases)):
            if child.startswith(mine):
                with suppress(NoNodeError):
                    wait(client.delete_async(f"{self._leases}/{child}"))
        node = wait(client.create_async(f"{self._leases}/{mine}", token, ephemeral=True, sequence=True))
        children = wait(client.get_children_async(self._leases))
        number = node[-10:]
        if all(child[-10:] >= number for child in children):
            return str(node)
        wait(client.delete_async(node))
        return ""

    def verify(self, answer: Held) -> _Answering:
        request, node, token = _Answering(), self._node, self._token

        def look(client: Any) -> bool:
            try:
                data, _ = self._manager.wait(client.get_async(node))
            except NoNodeError:
                return False
            return bool(data == token)

        def looked(result: bool | BrokerError) -> None:
            if not request.cancelled:
                answer(result)

        if self.fence.held:
            self._manager.run(look, looked)
        else:
            self._manager.timers.call_later(0, lambda: looked(False))
        return request

    def release(self, answer: Finished) -> None:
        self.fence.release()
        node, self._node = self._node, ""
        if node:
            self._remove(node, answer)
        else:
            self._manager.timers.call_later(0, lambda: answer(None))

    def _remove(self, node: str, answer: Finished) -> None:
        def remove(client: Any) -> None:
            with suppress(NoNodeError):
                self._manager.wait(client.delete_async(node))

        self._manager.run(remove, answer)

    def prove(self) -> None:
        """Read the node of the lease: the session lives, and the token is ours."""
        self.fence.check()
        if self.fence.held:
            sent_ms, node, token = self._manager.clock.monotonic_ms(), self._node, self._token
            result = self._manager.client.get_async(node)
            result.rawlink(lambda found: self._manager.soon(self._proved, sent_ms, node, token, found))

    def _proved(self, sent_ms: int, node: str, token: bytes, found: Any) -> None:
        if node != self._node:
            return
        error = found.exception
        if error is None and found.value[0] == token:
            self.fence.extend(sent_ms + self._manager.proof_ms)
        elif error is None or isinstance(error, NoNodeError):
            self.fence.lose(f"{self._name}: its node {node} is gone or has another token")

    def _ended(self, error: BrokerError) -> None:
        self._node = ""
        if self.lost is not None:
            self.lost(error)


class ZooKeeperNumber:
    """A number in a node. Implements ``ha.locks.distributed_lock.DistributedNumber``."""

    def __init__(self, manager: ZooKeeperLockManager, number_id: str) -> None:
        """Begin without reading the number."""
        self._manager = manager
        self._path = f"{manager.options.root}/{number_id}/activation-sequence"

    def get(self, answer: Read) -> _Answering:
        return self._run(lambda client: self._read(client)[0], answer)

    def set(self, value: int, answer: Finished) -> _Answering:
        return self._run(partial(self._set, value), answer)

    def compare_and_set(self, expected: int, value: int, answer: Held) -> _Answering:
        return self._run(partial(self._swap, expected, value), answer)

    def _run(self, work: Callable[[Any], _T], answer: Callable[[_T | BrokerError], None]) -> _Answering:
        request = _Answering()

        def done(result: _T | BrokerError) -> None:
            if not request.cancelled:
                answer(result)

        self._manager.run(work, done)
        return request

    # --- on the thread -----------------------------------------------------------------------------

    def _read(self, client: Any) -> tuple[int, int]:
        """The number and the version of its node; -1: there is no node."""
        wait = self._manager.wait
        try:
            # another server of the ensemble may have a newer number
            wait(client.sync_async(self._path))
            data, status = wait(client.get_async(self._path))
        except NoNodeError:
            return 0, -1
        if not data:
            return 0, status.version
        if len(data) != _NUMBER.size:
            raise KazooException(f"{self._path}: {len(data)} bytes instead of {_NUMBER.size}")
        return _NUMBER.unpack(data)[0], status.version

    def _set(self, value: int, client: Any) -> None:
        while True:
            _, version = self._read(client)
            if self._write(client, value, version):
                return

    def _swap(self, expected: int, value: int, client: Any) -> bool:
        while True:
            found, version = self._read(client)
            if found != expected:
                return False
            if self._write(client, value, version):
                return True

    def _write(self, client: Any, value: int, version: int) -> bool:
        wait, data = self._manager.wait, _NUMBER.pack(value)
        try:
            if version < 0:
                wait(client.create_async(self._path, data, makepath=True))
            else:
                wait(client.set_async(self._path, data, version))
        except (BadVersionError, NodeExistsError, NoNodeError):
            return False
        return True
