"""What the peer benchmark is to show, and whether it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.peers import Target

#: Start-up, and memory without load.
START_SECONDS_MAX = 0.5
IDLE_MIB_MAX = 80
BROKER_CPU_US_MAX = 10
#: Python calls and modules of the broker for a lone blocking durable send (``calls``).
CALLS_MAX = 45
MODULES_MAX = 14


@dataclass(frozen=True)
class Goal:
    """One line of the verdict."""

    text: str
    wanted: str
    found: str
    met: bool | None
    """None = nothing to compare with."""


def judge(targets: Sequence[Target]) -> list[Goal]:
    """All goals for which there are figures."""
    by_name = {target.name: target for target in targets if not target.skipped}
    ours = by_name.pop("understudy", None)
    if ours is None:
        return []
    peers = list(by_name.values())
    goals = []
    for name, factor in (("rabbitmq-quorum", 3.0), ("artemis", 2.0)):
        rivals = [by_name[name]] if name in by_name else []
        goals.append(_ratio(ours, rivals, "pipelined", factor, name))
    for case, factor in (("blocking", 1.3), ("blocking-16", 2.0), ("queues-100", 2.0)):
        goals.append(_ratio(ours, peers, case, factor, "the best peer"))
    goals += [_lower(ours, peers, figure) for figure in ("p50_us", "p99_us")]
    cpu_us = ours.median("pipelined", "broker_cpu_us")
    goals.append(_below("broker CPU per message, pipelined", cpu_us, BROKER_CPU_US_MAX, "us"))
    goals.append(_below("start-up until it answers", ours.broker.started_s or None, START_SECONDS_MAX, "s"))
    goals.append(_below("resident memory, idle", ours.broker.idle_mib or None, IDLE_MIB_MAX, "MiB"))
    return [goal for goal in goals if goal is not None]


def _ratio(ours: Target, rivals: Sequence[Target], case: str, factor: float, whom: str) -> Goal | None:
    own = ours.median(case, "per_s")
    if own is None:
        return None
    rates = [rate for rival in rivals if (rate := rival.median(case, "per_s"))]
    wanted = f"at least {factor:g} times {whom}"
    if not rates:
        return Goal(case, wanted, "nobody to compare with", None)
    ratio = own / max(rates)
    return Goal(case, wanted, f"{ratio:.2f}", ratio >= factor)


def _lower(ours: Target, rivals: Sequence[Target], figure: str) -> Goal | None:
    own = ours.median("latency", figure)
    if own is None:
        return None
    best = min((value for rival in rivals if (value := rival.median("latency", figure))), default=None)
    name = f"latency {figure[:3]}"
    if best is None:
        return Goal(name, "below the best peer's", "nobody to compare with", None)
    return Goal(name, "below the best peer's", f"{own:.0f} of {best:.0f} us", own < best)


def _below(text: str, value: float | None, limit: float, unit: str) -> Goal | None:
    if value is None:
        return None
    return Goal(text, f"at most {limit:g} {unit}", f"{value:.2f} {unit}", value <= limit)
