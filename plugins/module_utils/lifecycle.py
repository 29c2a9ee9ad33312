"""One action on one broker instance, and the state that is waited for afterwards (the gate).

``Instance`` compares the wanted state with the present one, acts, and waits. Action and gate are one call because
Ansible orders tasks by host lists: with a task for each, all hosts would act before the first gate is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState
from ansible_collections.understudy.broker.plugins.module_utils.service import LOG_FILE, PROCESS, SYSTEMD, ServiceStatus
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock, wait_until

SETTLE_S = 3.0
"""A supervisor needs a moment to write its first record; a process missing after that has failed to start."""

CRASHES_MAX = 3
"""A broker that has ended so often since its start is not waited for any longer."""

LOGS = {PROCESS: LOG_FILE, SYSTEMD: "the journal of its unit"}
LOG_LINES = 20
"""Lines of the log that a failure shows."""

DEFAULT_GATES = {"started": "ready", "restarted": "ready", "stopped": "stopped", "killed": "stopped"}


class Service(Protocol):
    """What both back ends offer (``service.py``)."""

    def status(self) -> ServiceStatus: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def last_lines(self, count: int) -> list[str]: ...


@dataclass(frozen=True)
class Seen:
    """Process and broker at one moment."""

    service: ServiceStatus
    broker: NodeState

    def as_dict(self) -> dict[str, object]:
        return {"service": self.service.as_dict(), "broker": self.broker.as_dict()}


@dataclass(frozen=True)
class Outcome:
    """What was done, when, and how it ended."""

    changed: bool
    failed: bool
    message: str
    acted_at_ms: int | None
    """Wall clock just before the last action; None if there was nothing to do."""
    elapsed_ms: int
    seen: Seen


GATES: dict[str, Callable[[Seen], bool]] = {
    "active": lambda seen: seen.broker.ready and seen.broker.state == "active",
    "passive": lambda seen: seen.broker.ready and seen.broker.following,
    "ready": lambda seen: seen.broker.ready,
    "stopped": lambda seen: seen.service.down,
}


class Instance:
    """One instance: its process (``service``) and the management interface (``ask``)."""

    def __init__(self, service: Service, ask: Callable[[], NodeState], clock: Clock) -> None:
        self._service = service
        self._ask = ask
        self._clock = clock

    def see(self) -> Seen:
        """The process first: a broker that does not run is not asked."""
        service = self._service.status()
        if not service.running:
            return Seen(service, NodeState(False, False, "stopped", reason=service.last_exit))
        return Seen(service, self._ask())

    def reach(self, state: str, gate: str, timeout_s: float, *, dry_run: bool) -> Outcome:
        """Bring the instance to ``state`` and wait for ``gate``, all within ``timeout_s``."""
        before = self.see()
        acts = self._acts(state, before)
        if dry_run:
            message = f"would {' and '.join(acts)}" if acts else "nothing to do"
            return Outcome(bool(acts), False, message, None, 0, before)
        began_s = self._clock.now_s()
        acted_at_ms = None
        for act in acts:
            left_s = timeout_s - (self._clock.now_s() - began_s)
            acted_at_ms = self._clock.wall_ms()
            getattr(self._service, act)()
            if act == "start":
                break
            ended = wait_until(self._service.status, lambda status: status.down, left_s, self._clock)
            if not ended.met:
                seen = Seen(ended.answer, before.broker)
                return self._outcome(acts, acted_at_ms, began_s, seen, f"did not {act} within {timeout_s:g} s")
        left_s = max(0.0, timeout_s - (self._clock.now_s() - began_s))
        settled_s = self._clock.now_s() + SETTLE_S
        restarts: list[int] = []

        def hopeless(seen: Seen) -> bool:
            if gate == "stopped":
                return False
            restarts.append(seen.service.restarts)
            crashes = restarts[-1] - min(restarts)  # the count begins again with a start
            gone = seen.service.down and self._clock.now_s() >= settled_s
            return gone or seen.broker.refused or ("start" in acts and crashes >= CRASHES_MAX)

        waited = wait_until(self.see, GATES[gate], left_s, self._clock, hopeless=hopeless)
        crashes = restarts[-1] - min(restarts) if restarts else 0
        problem = "" if waited.met else self._complain(gate, timeout_s, waited.answer, crashes)
        return self._outcome(acts, acted_at_ms, began_s, waited.answer, problem)

    @staticmethod
    def _acts(state: str, seen: Seen) -> list[str]:
        if state == "started":
            return [] if not seen.service.down else ["start"]
        if state == "restarted":
            return ["start"] if seen.service.down else ["stop", "start"]
        verb = "stop" if state == "stopped" else "kill"
        return [] if seen.service.down else [verb]

    def _outcome(self, acts: list[str], acted_at_ms: int | None, began_s: float, seen: Seen, problem: str) -> Outcome:
        elapsed_ms = round((self._clock.now_s() - began_s) * 1000)
        return Outcome(bool(acts), bool(problem), problem, acted_at_ms, elapsed_ms, seen)

    def _complain(self, gate: str, timeout_s: float, seen: Seen, crashes: int) -> str:
        if seen.service.down and gate != "stopped":
            ending = seen.service.last_exit or "it left no trace of an exit"
            problem = f"the broker is not running and nothing will start it again: {ending}"
        elif crashes >= CRASHES_MAX:
            problem = (
                f"the broker has ended {crashes} times since its start: {seen.service.last_exit or 'no exit is known'}"
            )
        elif seen.broker.refused:
            problem = (
                f"not {gate}, and waiting does not help: the broker says {seen.broker.state} ({seen.broker.reason}). "
                "Compare broker_witness_secret and broker_lock_manager_properties with the witness"
            )
        else:
            reason = f" ({seen.broker.reason})" if seen.broker.reason else ""
            problem = f"not {gate} within {timeout_s:g} s: the broker says {seen.broker.state}{reason}"
        return problem + self.log_tail(seen.service.backend)

    def log_tail(self, backend: str) -> str:
        """The end of the log, to go into a message of failure; empty if there is none."""
        lines = self._service.last_lines(LOG_LINES)
        return "\n".join([f"\nThe last lines of {LOGS[backend]}:", *lines]) if lines else ""
