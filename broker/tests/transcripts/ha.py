"""Transcripts of HA: the life of nodes, the shared-store policy, the lock files and the steps of an activation.

Real are ``NodeLife``, ``SharedStorePolicy``, ``NodeLock`` on a simulated volume, and ``runtime.node.activation``. The
work of the node is simulated: each step of an activation takes ``STEP_MS``; following and announcing are only reported.
Time moves by ``advance`` and ``until`` only.

Each line of output begins with the time in milliseconds and the node; a line without a node is about the store.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any, Final

from transcripts.script import arguments, options
from understudy.errors import BrokerError, DiskFailed
from understudy.ha.life.activation import Step
from understudy.ha.life.node import NodeLife
from understudy.ha.life.policy import Compose, Decisions, Done, Role
from understudy.ha.shared.lock_proof import LockProof
from understudy.ha.shared.policy import SharedStoreOptions, SharedStorePolicy
from understudy.ports import Timer
from understudy.runtime.node.activation import Activation
from understudy.store.node_lock import NodeLock
from understudy.testing.manual_time import ManualTime
from understudy.testing.sim.disk import SimDisk, SimVolume

DIRECTORY: Final = "/store"
#: What a step of an activation, or its undo, takes.
STEP_MS: Final = 10
#: Commands that wait for a state give up after that.
WAIT_MS_MAX: Final = 60_000
_STATE_FILE: Final = f"{DIRECTORY}/server.lock"
_LOCKS: Final = {f"{DIRECTORY}/serverlock.1": "primary lock", f"{DIRECTORY}/serverlock.2": "backup lock"}
_LOGGERS: Final = ("understudy.ha", "understudy.runtime.node.activation")
_FLAGS: Final = {"failover_on_shutdown", "allow_failback", "restart_backup"}


class _Delay:
    """Awaited by a step that takes a while; the driver goes on with the coroutine when it is over."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _Disk(SimDisk):
    """A disk that can stop answering with anything but errors."""

    broken: str | None = None

    def _check(self) -> None:
        super()._check()
        if self.broken is not None:
            raise DiskFailed(self.broken)


class _Lock:
    """Implements ``ports.FileLock``; reports changes in the order in which they are made."""

    def __init__(self, pair: HaDriver, path: str, name: str) -> None:
        self._pair = pair
        self._lock = pair.volume.lock(pair.lock_path(path, name), name)

    def try_acquire(self) -> bool:
        self._pair.look()
        held = self._lock.try_acquire()
        self._pair.look()
        return held

    def release(self) -> None:
        self._pair.look()
        self._lock.release()
        self._pair.look()

    def verify(self) -> bool:
        return self._lock.verify()


class Host:
    """One incarnation of a node. Implements ``ha.life.policy.NodePort`` and ``Standby``, and ``ports.Timers``."""

    def __init__(self, pair: HaDriver, name: str, chosen: SharedStoreOptions) -> None:
        self.name = name
        self.announced = False
        self.alive = True
        self.paused = False
        self.step_failures: dict[str, str] = {}
        """Step of an activation to the error with which it fails."""
        self._pair = pair
        self._held: list[Callable[[], None]] = []
        """Timers that were due while the process was stopped."""
        self._activating = False
        self._deactivated: Done | None = None
        self._after_activation: Callable[[], None] | None = None
        self.disk = _Disk(pair.volume, name)
        self.lock = NodeLock(self.disk, DIRECTORY, lambda path: _Lock(pair, path, name), pair)
        self.activation = Activation(pair.time)
        self._options = chosen
        self.life = NodeLife(self._make_policy, self, self)

    def _make_policy(self, life: Decisions) -> SharedStorePolicy:
        self.policy = SharedStorePolicy(
            self._options, life, self, self.lock, LockProof(self.lock, self._pair.time), self._pair.time, self
        )
        return self.policy

    def do(self, work: Callable[[], object]) -> None:
        """Run something on the node's loop: its log lines and effects are reported with its name."""
        if not self.alive:
            return
        if self.paused:
            self._held.append(lambda: self.do(work))
            return
        with self._pair.running(self):
            work()

    def resume(self) -> None:
        """SIGCONT: everything that was due is called, in order."""
        self.paused = False
        held, self._held = self._held, []
        for work in held:
            work()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """See ``ports.Timers``."""
        return self._pair.time.call_later(delay_ms, lambda: self.do(callback))

    # --- Standby -------------------------------------------------------------------------------

    def follow(self) -> None:
        """See ``Standby``."""
        self._pair.report("follows the log")

    def stop_following(self) -> None:
        """See ``Standby``."""
        self._pair.report("stops following")

    def announce(self) -> None:
        """See ``Standby``."""
        self.announced = True
        self._pair.report("announces itself")

    def withdraw(self) -> None:
        """See ``Standby``."""
        if self.announced:
            self.announced = False
            self._pair.report("withdraws its announcement")

    def peer_is_announced(self) -> bool:
        """See ``Standby``."""
        return self._pair.is_announced_to(self)

    # --- NodePort ------------------------------------------------------------------------------

    def activate(self, compose: Compose, done: Done) -> None:
        """See ``NodePort``."""
        opening = [self._step("read the log"), self._step("begin epoch", "close the store")]
        serving = [self._step("load the broker", "unload the broker"), self._step("open acceptors", "close acceptors")]
        steps = compose(opening, serving)
        self._pair.report("activates: " + ", ".join(step.name for step in steps))
        self._activating = True
        self._run(self._carry_out(steps, done))

    async def _carry_out(self, steps: Any, done: Done) -> None:
        failure: BrokerError | None = None
        try:
            await self.activation.run(steps)
        except BrokerError as error:
            failure = error
        self._activating = False
        waiting, self._after_activation = self._after_activation, None
        done(failure)
        if waiting is not None:
            waiting()

    def deactivate(self, done: Done) -> None:
        """See ``NodePort``."""
        under_way, self._deactivated = self._deactivated is not None, done
        if under_way:
            return
        if self._activating:
            self._after_activation = lambda: self._run(self._undo())
        else:
            self._run(self._undo())

    async def _undo(self) -> None:
        error = await self.activation.undo()
        done, self._deactivated = self._deactivated, None
        assert done is not None
        done(error)

    def stopped(self, error: BrokerError | None) -> None:
        """See ``NodePort``."""
        self._pair.report(f"ended: {_error(error)}" if error is not None else "ended cleanly")
        self.lock.close()
        self.alive = False

    def _step(self, name: str, undo: str | None = None) -> Step:
        return Step(name, lambda: self._act(name, name), (lambda: self._act(undo, undo)) if undo is not None else None)

    def _act(self, name: str, shown: str) -> Awaitable[None]:
        async def act() -> None:
            await _Delay()
            if name in self.step_failures:
                self._pair.report(f"step failed: {shown}")
                raise DiskFailed(self.step_failures.pop(name))
            self._pair.report(f"step: {shown}")

        return act()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with a coroutine until it waits; then again after ``STEP_MS``."""
        try:
            work.send(None)
        except StopIteration:
            return
        self.call_later(STEP_MS, lambda: self._run(work))


class _Handler(logging.Handler):
    """Reports log lines of a node."""

    def __init__(self, pair: HaDriver) -> None:
        super().__init__(logging.INFO)
        self._pair = pair

    def emit(self, record: logging.LogRecord) -> None:
        standard = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime", "taskName"}
        fields = [f"{key}={value}" for key, value in record.__dict__.items() if key not in standard]
        self._pair.report(" ".join([f"{record.levelname}:", record.getMessage(), *fields]))


class HaDriver:
    """Nodes of one store, and their store. Implements ``script.Driver`` and ``ports.Entropy``."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.volume = SimVolume()
        self.volume.disk("setup").make_directory(DIRECTORY)
        self.hosts: dict[str, Host] = {}
        self._options: dict[str, SharedStoreOptions] = {}
        self._cut: set[str] = set()
        """Nodes whose connections to the others are cut."""
        self._exclusive = True
        self._current: Host | None = None
        self._lines: list[str] = []
        self._seen_locks: dict[str, str] = {}
        self._seen_state = ""
        self._tokens = 0
        self._handler = _Handler(self)
        self._levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._handler)
            logging.getLogger(name).setLevel(logging.INFO)

    def close(self) -> None:
        """See ``script.Driver``."""
        for name, level in self._levels.items():
            logging.getLogger(name).removeHandler(self._handler)
            logging.getLogger(name).setLevel(level)

    def token(self, length_bytes: int) -> bytes:
        """See ``ports.Entropy``."""
        self._tokens += 1
        return bytes([self._tokens]) * length_bytes

    # --- reporting -----------------------------------------------------------------------------

    def report(self, text: str) -> None:
        """Add a line of output of the node that runs."""
        self.look()
        name = self._current.name if self._current is not None else "-"
        self._lines.append(f"{self.time.monotonic_ms():>6} {name:<2} {text}")

    def look(self) -> None:
        """Report what changed in the lock files since the last look."""
        now: dict[str, str] = {}
        for path, lock in self.volume.locks.items():
            name = _LOCKS.get(path.partition("@")[0])
            if name is not None:
                now[name] = f"{now[name]}, {lock.owner}" if name in now else lock.owner
        content = self.volume.content(_STATE_FILE)[:1].decode() if _STATE_FILE in self.volume.paths() else ""
        lines = [
            f"{lock}: {self._seen_locks.get(lock, 'free')} -> {now.get(lock, 'free')}"
            for lock in _LOCKS.values()
            if self._seen_locks.get(lock) != now.get(lock)
        ]
        if content != self._seen_state:
            lines.append(f"state of the store: {self._seen_state or 'none'} -> {content or 'none'}")
        self._seen_locks, self._seen_state = now, content
        self._lines += [f"{self.time.monotonic_ms():>6}    [{line}]" for line in lines]

    def running(self, host: Host) -> Any:
        """While a node runs, lines are reported with its name."""
        return _Running(self, host)

    def switch(self, host: Host | None) -> Host | None:
        """Make another node the one that runs; the one before."""
        self.look()
        before, self._current = self._current, host
        return before

    def is_announced_to(self, host: Host) -> bool:
        """Whether the announcement of another node reaches this one."""
        others = [other for other in self.hosts.values() if other is not host and other.alive and other.announced]
        return host.name not in self._cut and any(other.name not in self._cut for other in others)

    def lock_path(self, path: str, name: str) -> str:
        """The path of a lock as a node sees it; one of its own on a file system whose locks exclude no other node."""
        return path if self._exclusive else f"{path}@{name}"

    # --- commands ------------------------------------------------------------------------------

    def command(self, words: list[str]) -> Iterator[str]:
        """See ``script.Driver``."""
        name, *rest = words
        work = getattr(self, "_" + name.replace("-", "_") + "_command", None)
        if work is None:
            raise ValueError(f"no command {name}")
        work(*arguments(rest), **options(rest))
        self.look()
        lines, self._lines = self._lines, []
        yield from lines

    def _node_command(self, name: str, role: str, **chosen: str) -> None:
        """``node NAME primary|backup|primary-only [failover_on_shutdown=yes] [lock_timeout_ms=N]``: configure it."""
        values: dict[str, Any] = {key: value == "yes" if key in _FLAGS else int(value) for key, value in chosen.items()}
        self._options[name] = SharedStoreOptions(Role(role), **values)

    def _start_command(self, name: str) -> None:
        host = self.hosts[name] = Host(self, name, self._options[name])
        assert host.lock.open()
        host.do(host.life.start)

    def _advance_command(self, duration: str) -> None:
        """``advance 5s`` or ``advance 50ms``."""
        self.time.advance(_ms(duration))

    def _until_command(self, name: str, state: str) -> None:
        """``until NAME STATE``: advance to the moment at which the node has the state."""
        host = self.hosts[name]
        end_ms = self.time.monotonic_ms() + WAIT_MS_MAX
        while host.life.state.name != state:
            if self.time.monotonic_ms() >= end_ms:
                raise ValueError(f"{name} is {host.life.state.name}")
            self.time.advance(1)

    def _stop_command(self, name: str, how: str = "") -> None:
        """``stop NAME [failover]``."""
        host = self.hosts[name]
        host.do(lambda: host.life.stop(fail_over=how == "failover"))

    def _crash_command(self, name: str) -> None:
        """Kill the process; the operating system drops its locks."""
        self.hosts[name].alive = False
        self.hosts[name].announced = False
        self.volume.crash_process(name)

    def _pause_command(self, name: str) -> None:
        """SIGSTOP: its timers do not run, and it keeps its locks."""
        self.hosts[name].paused = True

    def _resume_command(self, name: str) -> None:
        """SIGCONT."""
        self.hosts[name].resume()

    def _revoke_command(self, name: str) -> None:
        """The file server takes the locks of a node away, as after a lease that ended."""
        for path in [path for path, lock in self.volume.locks.items() if lock.owner == name]:
            self.volume.revoke_lock(path)

    def _locks_command(self, how: str) -> None:
        """``locks not-exclusive``, before a node is started: the file system gives a lock to several nodes."""
        self._exclusive = how != "not-exclusive"

    def _cut_command(self, name: str) -> None:
        """Cut the connections between a node and the others."""
        self._cut.add(name)

    def _heal_command(self, name: str) -> None:
        self._cut.discard(name)

    def _break_command(self, name: str) -> None:
        """Every operation of a node on the store fails."""
        self.hosts[name].disk.broken = "server.lock: Input/output error"

    def _fail_command(self, name: str, step: str) -> None:
        """``fail NAME STEP``: the next time, that step or undo of an activation fails."""
        self.hosts[name].step_failures[step] = "No space left on device"

    def _write_command(self, state: str) -> None:
        """``write STATE``: another program writes the state of the store."""
        file = self.volume.disk("setup").open(_STATE_FILE)
        file.write(0, [state.encode()])
        file.sync()

    def _remove_command(self, name: str) -> None:
        """``remove server.lock``: the file is removed."""
        self.volume.disk("setup").remove(f"{DIRECTORY}/{name}")

    def _confirm_command(self, name: str) -> None:
        """The node has written a batch, and asks whether it may confirm it."""
        host = self.hosts[name]
        why_not = host.policy.fence.why_not_confirm()
        with self.running(host):
            self.report(f"must not confirm: {_error(why_not)}" if why_not is not None else "may confirm")

    def _status_command(self, *names: str) -> None:
        for name in names or self.hosts:
            with self.running(self.hosts[name]):
                host = self.hosts[name]
                self.report(host.life.state.name if host.alive or host.life.state.name == "STOPPED" else "down")


class _Running:
    """While it is entered, a node runs."""

    def __init__(self, pair: HaDriver, host: Host) -> None:
        self._pair = pair
        self._host = host
        self._before: Host | None = None

    def __enter__(self) -> None:
        self._before = self._pair.switch(self._host)

    def __exit__(self, *_: object) -> None:
        self._pair.switch(self._before)


def _error(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


def _ms(duration: str) -> int:
    return int(duration[:-2]) if duration.endswith("ms") else int(duration[:-1]) * 1000
