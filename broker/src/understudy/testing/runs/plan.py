"""The plan of a run, drawn from the seed before the run begins.

Every part that was added later is drawn from a stream of its own, so that the rest of a seed's plan does not change.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.testing.runs.cluster_configuration import PAIR, PORT, QUEUE, NodeRole, PairOptions
from understudy.testing.runs.fault_plan import WEIGHTS, Fault, FaultKind, draw_damage, draw_faults, draw_later_faults
from understudy.testing.runs.workload import ConsumerJob, ProducerJob
from understudy.testing.runs.xa_workload import BranchConsumerJob, BranchProducerJob
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.network import Conditions
from understudy.testing.sim.storage import StorageConditions

#: Virtual seconds after which a node has noticed that a connection TTL is over.
_NOTICED_S: Final = 5.0
#: Share of the seeds with clients that work in XA branches.
_BRANCHES_CHANCE: Final = 0.2
#: Seeds with producers in step, and the time of a step, at whose end their bytes arrive.
_IN_STEP_CHANCE: Final = 0.2
_STEP_S: Final = 0.01

_URL: Final = (
    "({addresses})?ha=true&initialConnectAttempts=-1&reconnectAttempts=-1&retryInterval=200"
    "&maxRetryInterval=1000&retryIntervalMultiplier=1.5&callTimeout={call_timeout_ms}&callFailoverTimeout=-1"
    "&connectionTTL={ttl_ms}&clientFailureCheckPeriod={check_ms}&confirmationWindowSize={confirmation_window}"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a run does, drawn before it begins."""

    seed: int
    pair: PairOptions
    nodes: tuple[NodeRole, ...]
    skews: tuple[Skew, ...]
    """Skews of the nodes, in their order."""
    url: str
    producers: tuple[ProducerJob, ...]
    consumers: tuple[ConsumerJob, ...]
    network: Conditions
    storage: StorageConditions
    faults: tuple[Fault, ...]
    heal_s: float
    """Time at which all faults are ended."""

    def describe(self) -> list[str]:
        """The plan as lines for people."""
        jobs = [*map(str, self.producers), *map(str, self.consumers)]
        return [
            str(self.pair),
            str(self.nodes),
            str(self.skews),
            self.url,
            *jobs,
            str(self.network),
            str(self.storage),
        ] + [str(fault) for fault in self.faults]


def draw_plan(seed: int, nodes: tuple[NodeRole, ...] = PAIR, weights: Mapping[FaultKind, int] = WEIGHTS) -> Plan:
    """The plan of a seed for two or more nodes."""
    stream = random.Random(f"{seed}/plan")
    consolidation = random.Random(f"{seed}/consolidation")
    later = random.Random(f"{seed}/later faults")
    skews = random.Random(f"{seed}/skews of further nodes")
    end_s = stream.uniform(5.0, 20.0)
    producers = tuple(_draw_producer(stream, f"p{number}", end_s) for number in range(stream.randint(1, 3)))
    consumers = tuple(_draw_consumer(stream, f"c{number}") for number in range(stream.choice((1, 1, 2))))
    rollbacks = random.Random(f"{seed}/rollbacks")
    producers = tuple(replace(job, rollback_every=rollbacks.choice((0, 0, 3, 5))) for job in producers)
    consumers = tuple(replace(job, rollback_every=rollbacks.choice((0, 0, 3, 5))) for job in consumers)
    clients = [job.name for job in producers] + [job.name for job in consumers]
    ttl_ms = stream.choice((2_000, 6_000))
    for job in consumers:
        # what a dead client's session holds comes back when its connection TTL has been noticed
        job.idle_s = ttl_ms / 1000 + _NOTICED_S
    url = _URL.format(
        addresses=",".join(f"tcp://{node.name}:{PORT}" for node in nodes),
        call_timeout_ms=stream.choice((3_000, 10_000)),
        ttl_ms=ttl_ms,
        check_ms=ttl_ms // 3,
        confirmation_window=stream.choice((-1, -1, 10_000)),
    )
    plan = Plan(
        seed=seed,
        pair=PairOptions(
            failover_on_shutdown=stream.random() < 0.5,
            allow_failback=stream.random() < 0.8,
            segment_bytes=stream.choice((64, 128)) * 1024,
            compact_min_files=consolidation.choice((0, 1, 1, 1, 2)),
            compact_percentage=consolidation.choice((30, 75)),
        ),
        nodes=nodes,
        skews=(draw_skew(stream), draw_skew(stream), *(draw_skew(skews) for _ in nodes[2:])),
        url=url,
        producers=producers,
        consumers=consumers,
        network=Conditions(split_chance=stream.choice((0.02, 0.3)), spike_chance=stream.choice((0.0, 0.02))),
        storage=StorageConditions(step_ms_max=stream.choice((0, 2, 20))),
        faults=draw_later_faults(
            later,
            draw_faults(stream, begin_s=0.0, end_s=end_s, count=stream.randint(1, 7), weights=weights, clients=clients),
            begin_s=0.0,
            end_s=end_s,
        ),
        heal_s=end_s + stream.uniform(0.0, 3.0),
    )
    plan = _with_branches(random.Random(f"{seed}/branches"), plan)
    plan = _in_step(random.Random(f"{seed}/in step"), plan)
    return _with_damage(random.Random(f"{seed}/damage"), plan, end_s)


def _in_step(stream: random.Random, plan: Plan) -> Plan:
    """The plan; in a share of the seeds with further producers that wait for each confirmation and stay in step, so
    that their sends are gathered in one turn (ADR 0038).
    """
    if stream.random() >= _IN_STEP_CHANCE:
        return plan
    count, pause_s = stream.randint(20, 60), stream.choice((0.0, 0.05, 0.2))
    further = tuple(
        ProducerJob(name=f"s{number}", queue=QUEUE, count=count, size_bytes=stream.randint(1, 2_000), pause_s=pause_s)
        for number in range(stream.randint(2, 4))
    )
    network = replace(plan.network, arrivals_every_s=_STEP_S)
    return replace(plan, producers=plan.producers + further, network=network)


def _with_branches(stream: random.Random, plan: Plan) -> Plan:
    """The plan; in a share of the seeds with clients that work in XA branches."""
    if stream.random() >= _BRANCHES_CHANCE:
        return plan
    patience_s = plan.consumers[0].idle_s
    producers = tuple(
        _branch_producer(stream, job, patience_s) if stream.random() < 0.7 else job for job in plan.producers
    )
    consumers = tuple(_branch_consumer(stream, job) if stream.random() < 0.7 else job for job in plan.consumers)
    return replace(plan, producers=producers, consumers=consumers)


def _branch_producer(stream: random.Random, job: ProducerJob, patience_s: float) -> ProducerJob:
    values: dict[str, Any] = {each.name: getattr(job, each.name) for each in fields(job)}
    values["batch"] = job.batch or stream.randint(1, 6)
    return BranchProducerJob(
        **values,
        one_phase_every=stream.choice((0, 0, 3)),
        decide_s=stream.choice((0.0, 0.0, 0.3)),
        sends_on=stream.random() < 0.7,
        patience_s=patience_s,
    )


def _branch_consumer(stream: random.Random, job: ConsumerJob) -> ConsumerJob:
    values: dict[str, Any] = {each.name: getattr(job, each.name) for each in fields(job)}
    values["mode"] = "xa"
    return BranchConsumerJob(
        **values,
        one_phase_every=stream.choice((0, 0, 3)),
        decide_s=stream.choice((0.0, 0.0, 0.3)),
        receipts=stream.choice((0, 5, 20)),
        sends_on=stream.random() < 0.7,
    )


def _with_damage(stream: random.Random, plan: Plan, end_s: float) -> Plan:
    """The plan; in a share of the seeds with damaged records. Then consumers begin late, so that messages wait, and a
    node that starts before the damage was met passes over it.
    """
    faults = draw_damage(stream, plan.faults, begin_s=1.0, end_s=end_s)
    if faults == plan.faults:
        return plan
    pair = replace(plan.pair, quarantine=True, max_size_bytes=stream.choice((-1, -1, 2_000, 20_000)))
    consumers = tuple(
        replace(job, begins_s=stream.uniform(0.0, end_s), polls=stream.random() < 0.3) for job in plan.consumers
    )
    return replace(plan, faults=faults, pair=pair, consumers=consumers)


def draw_skew(stream: random.Random) -> Skew:
    """The clocks of a host."""
    return Skew(
        wall_ms=stream.choice((0, stream.randint(-3_600_000, 3_600_000))),
        boot_ms=stream.randint(0, 10_000_000),
        rate=stream.choice((1.0, stream.uniform(0.999, 1.001))),
    )


def _draw_producer(stream: random.Random, name: str, end_s: float) -> ProducerJob:
    count = stream.randint(20, 80)
    batch = stream.choice((0, 0, 0, stream.randint(1, 8)))
    return ProducerJob(
        name=name,
        queue=QUEUE,
        count=count,
        size_bytes=stream.choice((stream.randint(1, 200), stream.randint(200, 4_000), 20_000)),
        pause_s=stream.choice((0.0, 0.5 * end_s * max(1, batch) / count, end_s * max(1, batch) / count)),
        window=stream.choice((1, 5, 50)),
        batch=batch,
        hasty=stream.random() < 0.5,
    )


def _draw_consumer(stream: random.Random, name: str) -> ConsumerJob:
    return ConsumerJob(
        name=name,
        queue=QUEUE,
        mode=stream.choice(("auto", "client", "individual", "transacted", "transacted")),
        batch=stream.choice((1, 3, 10)),
        pause_s=stream.choice((0.0, 0.0, stream.uniform(0.0, 0.05))),
    )
