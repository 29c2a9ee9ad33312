"""Goals of the benchmarks and whether they are met; those of the peer benchmark hold for each shape of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchmarks.peers import Target

#: Start-up, and memory without load.
START_SECONDS_MAX = 0.5
IDLE_MIB_MAX = 70
#: Python calls and modules of the broker for a lone blocking durable send (``calls``).
CALLS_MAX = 45
MODULES_MAX = 14
#: Messages a second: at least so many times one peer's.
AGAINST = (
    ("pipelined", 4.0, "artemis"),
    ("pipelined", 6.0, "rabbitmq-quorum"),
    ("queues-100", 3.0, "artemis"),
    ("non-durable", 4.0, "artemis"),
)
#: Likewise, and the best peer's.
AGAINST_BEST = (("blocking", 1.5), ("blocking-16", 2.0))
#: Likewise over AMQP 0-9-1: at least so many times one kind of queue of RabbitMQ, and the best of them.
AGAINST_AMQP = (("pipelined", 4.0, "rabbitmq-quorum"), ("pipelined", 2.0, "rabbitmq-classic"))
AGAINST_BEST_AMQP = (("blocking", 1.3), ("blocking-16", 1.3))
#: Likewise of each case through the JMS client of Artemis.
AGAINST_JMS = 1.2
#: Likewise of tasks of Celery beside RabbitMQ.
AGAINST_CELERY = 1.0
#: Broker CPU of a pipelined message: at most this share of Artemis's.
CPU_SHARE_MAX = 1 / 6

#: The peer that is no broker (``targets.Floor``).
FLOOR = "floor"
_OURS = "understudy"
#: This broker, with clients of AMQP 0-9-1.
OURS_AMQP = f"{_OURS}-amqp"
_TWIN = f"{_OURS}-python"
_NONE = "no peer to compare with"


class Measured(Protocol):
    """A broker and its figures."""

    name: str

    def median(self, run: str, figure: str) -> float | None:
        """The median of a figure over the rounds of a run; None if no round has it."""
        ...


@dataclass(frozen=True)
class Goal:
    """One line of the verdict."""

    text: str
    wanted: str
    found: str
    met: bool | None
    """None = nothing to compare with."""
    share: str = ""
    """How near we come to the floor, in percent of its throughput; empty: no figure of it."""
    unreachable: str = ""
    """Set where the goal is missed and the floor misses it, too: what the floor has."""


def judge(targets: Sequence[Target], shapes: Sequence[str]) -> list[Goal]:
    """All goals for which there are figures."""
    by_name = {target.name: target for target in targets if not target.skipped}
    over_amqp = _judge_amqp(by_name, shapes)
    ours = by_name.get(_OURS)
    if ours is None:
        return over_amqp
    peers = [target for name, target in by_name.items() if name != FLOOR and not name.startswith(_OURS)]
    floor = by_name.get(FLOOR)
    goals: list[Goal | None] = []
    for shape in shapes:
        for case, factor, name in AGAINST:
            rivals = [by_name[name]] if name in by_name else []
            goals.append(_ratio(ours, rivals, floor, f"{case}/{shape}", factor, name))
        for case, factor in AGAINST_BEST:
            goals.append(_ratio(ours, peers, floor, f"{case}/{shape}", factor, "the best peer"))
        goals += [_lower(ours, peers, floor, f"latency/{shape}", figure) for figure in ("p50_us", "p99_us")]
        goals.append(_cpu(ours, by_name.get("artemis"), f"pipelined/{shape}"))
        goals += _twin(targets, shape)
    goals.append(_below("start-up until a client has a queue", ours.broker.started_s or None, START_SECONDS_MAX, "s"))
    goals.append(_below("resident memory, idle", ours.broker.idle_mib or None, IDLE_MIB_MAX, "MiB"))
    return [goal for goal in goals if goal is not None] + over_amqp


def _judge_amqp(by_name: Mapping[str, Target], shapes: Sequence[str]) -> list[Goal]:
    """The goals of clients of AMQP 0-9-1."""
    ours = by_name.get(OURS_AMQP)
    if ours is None:
        return []
    rivals = [target for name, target in by_name.items() if name.startswith("rabbitmq")]
    goals: list[Goal | None] = []
    for shape in shapes:
        for case, factor, name in AGAINST_AMQP:
            rival = [by_name[name]] if name in by_name else []
            goals.append(_ratio(ours, rival, None, f"{case}/{shape}", factor, name))
        for case, factor in AGAINST_BEST_AMQP:
            goals.append(_ratio(ours, rivals, None, f"{case}/{shape}", factor, "the best of RabbitMQ"))
        goals.append(_lower(ours, rivals, None, f"latency/{shape}", "p99_us"))
    return [replace(goal, text=f"AMQP 0-9-1: {goal.text}") for goal in goals if goal is not None]


def judge_jms(brokers: Sequence[Measured], cases: Sequence[str]) -> list[Goal]:
    """The goals of the cases through the JMS client of Artemis for which there are figures of this broker."""
    return _each_case(brokers, cases, AGAINST_JMS, "the best peer")


def judge_celery(brokers: Sequence[Measured], cases: Sequence[str]) -> list[Goal]:
    """The goals of the cases of tasks of Celery for which there are figures of this broker."""
    return _each_case(brokers, cases, AGAINST_CELERY, "RabbitMQ")


def _each_case(brokers: Sequence[Measured], cases: Sequence[str], factor: float, whom: str) -> list[Goal]:
    ours = next((each for each in brokers if each.name == _OURS), None)
    rivals = [each for each in brokers if not each.name.startswith(_OURS)]
    if ours is None:
        return []
    goals = [_ratio(ours, rivals, None, case, factor, whom) for case in cases]
    return [goal for goal in goals if goal is not None]


def _ratio(
    ours: Measured, rivals: Sequence[Measured], floor: Measured | None, run: str, factor: float, whom: str
) -> Goal | None:
    own = ours.median(run, "per_s")
    if own is None:
        return None
    rates = [rate for rival in rivals if (rate := rival.median(run, "per_s"))]
    wanted = f"at least {factor:g} times {whom}"
    least = floor.median(run, "per_s") if floor is not None else None
    share = f"{own / least:.0%}" if least else ""
    if not rates:
        return Goal(run, wanted, _NONE, None, share)
    ratio = own / max(rates)
    missed_by_floor = ratio < factor and least is not None and least / max(rates) < factor
    unreachable = f"floor {least / max(rates):.2f} x" if least is not None and missed_by_floor else ""
    return Goal(run, wanted, f"{ratio:.2f}", ratio >= factor, share, unreachable)


def _lower(ours: Target, rivals: Sequence[Target], floor: Target | None, run: str, figure: str) -> Goal | None:
    own = ours.median(run, figure)
    if own is None:
        return None
    best = min((value for rival in rivals if (value := rival.median(run, figure))), default=None)
    name = f"{run} {figure[:3]}"
    wanted = "below the best peer's"
    least = floor.median(run, figure) if floor is not None else None
    share = f"{least / own:.0%}" if least and own else ""
    if best is None:
        return Goal(name, wanted, _NONE, None, share)
    unreachable = f"floor {least:.0f} us" if least is not None and own >= best and least >= best else ""
    return Goal(name, wanted, f"{own:.0f} of {best:.0f} us", own < best, share, unreachable)


def _cpu(ours: Target, artemis: Target | None, run: str) -> Goal | None:
    own = ours.median(run, "broker_cpu_us")
    if own is None:
        return None
    theirs = artemis.median(run, "broker_cpu_us") if artemis is not None else None
    text, wanted = f"broker CPU per message, {run}", "at most 1/6 of artemis"
    if not theirs or not own:
        return Goal(text, wanted, _NONE, None)
    return Goal(text, wanted, f"1/{theirs / own:.1f} ({own:.1f} of {theirs:.1f} us)", own <= theirs * CPU_SHARE_MAX)


def _twin(targets: Sequence[Target], shape: str) -> list[Goal | None]:
    """Goal: the broker with the Python kernel is at least as fast as an earlier commit in each case; the worst case is
    named.
    """
    twin = next((target for target in targets if target.name == _TWIN), None)
    baseline = next(
        (each for each in targets if each.name.startswith(f"{_OURS}-") and each.name.removeprefix(f"{_OURS}-") not in
         ("python", "native", "amqp")), None,
    )  # fmt: skip
    if twin is None or baseline is None:
        return []
    ratios = {
        run: rate / before
        for run in twin.samples
        if run.endswith(f"/{shape}") and not run.startswith("latency/")
        and (rate := twin.median(run, "per_s")) and (before := baseline.median(run, "per_s"))
    }  # fmt: skip
    text, wanted = f"kernel python, worst case, {shape}", f"at least {baseline.name}"
    if not ratios:
        return [Goal(text, wanted, _NONE, None)]
    worst = min(ratios, key=lambda run: ratios[run])
    return [Goal(text, wanted, f"{ratios[worst]:.2f} ({worst.partition('/')[0]})", ratios[worst] >= 1)]


def _below(text: str, value: float | None, limit: float, unit: str) -> Goal | None:
    if value is None:
        return None
    return Goal(text, f"below {limit:g} {unit}", f"{value:.2f} {unit}", value < limit)
