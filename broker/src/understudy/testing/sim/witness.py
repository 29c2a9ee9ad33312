"""A witness in the simulation: the shipped server and client on the simulated network, with a disk of its own.

``SimWitness`` is the host and process of the witness; faults cut its host from others (``SimNetwork.part``), kill it,
pause it or cut its power. ``lock_manager`` is the client of a node, in the node's process and by the node's clocks.
"""

from __future__ import annotations

from typing import Final

from understudy.errors import BrokerError
from understudy.ha.locks.replaced_file import replace_file
from understudy.ha.witness.client import WitnessLockManager
from understudy.ha.witness.frames import IDENTITY_BYTES
from understudy.ha.witness.options import GroupConfiguration, WitnessClientOptions
from understudy.ha.witness.state import STATE_FILE, WitnessState
from understudy.ports import Clock, Entropy, Timers
from understudy.runtime.base.turn import Turn
from understudy.runtime.locks.witness_dialer import LoopWitnessDialer
from understudy.runtime.locks.witness_server import WitnessPorts, WitnessServer
from understudy.testing.sim.disk import SimVolume
from understudy.testing.sim.environment import SimClock, SimEntropy, SimTimers, Skew
from understudy.testing.sim.loop import Death, SimLoop, SimProcess
from understudy.testing.sim.storage import CrashPoint, ObservedWorker, ProcessDisk, ProcessLock
from understudy.testing.sim.writer import SimWorker

PORT: Final = 61_619
SECRET: Final = b"the secret of every simulated witness"
_DIRECTORY: Final = "/witness"


class SimWitness:
    """The witness of a simulation; its host is ``host``, which the network must know."""

    def __init__(
        self,
        loop: SimLoop,
        host: str = "witness",
        *,
        lease_ms: int = 6_000,
        lease_max_ms: int = 10_000,
        skew: Skew,
        group: bytes = b"",
    ) -> None:
        """Begin without a running process.

        Args:
            host: Name of the machine.
            lease_ms: Lease of its clients.
            lease_max_ms: Longest lease that it grants.
            group: Id of the group whose first members it is one of; empty: it is a single witness.
        """
        self.host = host
        self.process: SimProcess | None = None
        self.crash_point = CrashPoint(loop.random(f"crash point of the {host}"))
        """Kills the process at one of its next disk operations, once armed."""
        self.failures: list[BrokerError] = []
        """Errors that ended the witness."""
        self._loop = loop
        self._lease_ms = lease_ms
        self._lease_max_ms = lease_max_ms
        self._skew = skew
        self._volume = SimVolume()
        self._volume.disk(host).make_directory(_DIRECTORY)
        self._faults = loop.random(f"disk of the {host}")
        if group:
            identity = loop.random(f"identity of {host}").randbytes(IDENTITY_BYTES)
            state = WitnessState(identity, configuration=1, group=group)
            replace_file(self._volume.disk(host), _DIRECTORY, STATE_FILE, state.encode())

    def start(self) -> None:
        """Start the process, after a power loss also the host; harmless if it runs."""
        if self.process is not None and self.process.alive:
            return
        self._loop.network.power_on(self.host)
        process = self.process = self._loop.new_process(self.host, self.host)
        process.on_death(self._died)
        process.create_task(self._run(process))

    def kill(self, death: Death = Death.KILLED) -> None:
        """Kill the process of the witness."""
        if self.process is not None:
            self.process.kill(death)

    def lose_state(self) -> None:
        """Replace the disk of the witness by an empty one; the process must not run."""
        assert self.process is None or not self.process.alive
        self._volume = SimVolume()
        self._volume.disk(self.host).make_directory(_DIRECTORY)

    def _died(self, death: Death) -> None:
        if death is Death.POWER_LOST:
            self._volume.power_loss(self._faults, self.host)
        else:
            self._volume.crash_process(self.host)

    async def _run(self, process: SimProcess) -> None:
        loop, skew = self._loop, self._skew
        timers, clock = SimTimers(loop, skew), SimClock(loop, skew)
        disk = ProcessDisk(self._volume.disk(self.host), process, loop, self.crash_point)
        turn = Turn(loop, timers, lambda: clock.monotonic_ms() * 1_000_000)
        ports = WitnessPorts(
            disk,
            lambda path: ProcessLock(self._volume.lock(path, self.host), path, disk),
            clock,
            timers,
            SimEntropy(loop.random(f"entropy {process.label}")),
            ObservedWorker(SimWorker(timers, loop.random(f"worker {process.label}")), turn),
        )
        server = WitnessServer(_DIRECTORY, SECRET, self._lease_max_ms, ports)
        turn.on_error = server.fail
        await server.listen(self.host, PORT)
        error = await server.run()
        if error is not None:
            self.failures.append(error)

    def lock_manager(
        self,
        name: str,
        turn: Turn,
        clock: Clock,
        timers: Timers,
        entropy: Entropy,
        group: GroupConfiguration | None = None,
    ) -> WitnessLockManager:
        """The client of a node; made and used in the node's process.

        Args:
            clock: Clock of the node's host.
            timers: Timers of the node's host.
            group: Shared by the clients of the members of a group; None: a single witness.
        """
        options = WitnessClientOptions([self.place], SECRET, name, self._lease_ms, group=group)
        return WitnessLockManager(options, LoopWitnessDialer(self._loop, turn), clock, timers, entropy)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port of the witness."""
        return self.host, PORT
