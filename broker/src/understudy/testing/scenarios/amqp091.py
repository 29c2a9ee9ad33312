"""The scenarios of clients of AMQP 0-9-1 beside those of CORE: at a pair with a shared store (ADR 0188), and at several
pairs between which their sessions move (ADR 0199)."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

from understudy.testing.runs.amqp_workload import (
    AmqpConsumerJob,
    AmqpProducerJob,
    consume_over_amqp,
    produce_over_amqp,
)
from understudy.testing.runs.cluster_configuration import PAIR, PORT, NodeRole
from understudy.testing.runs.fault_plan import LAST_KINDS
from understudy.testing.runs.members_run import MembersRun
from understudy.testing.runs.plan import Plan
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.runs.workload import ClientPlan, ConsumerJob, ProducerJob
from understudy.testing.runs.xa_workload import BranchConsumerJob, BranchProducerJob
from understudy.testing.scenarios.amqp091_sessions import (
    SessionConsumerJob,
    SessionProducerJob,
    consume_in_session,
    produce_in_session,
)
from understudy.testing.scenarios.members import MemberPairs
from understudy.testing.scenarios.scenario import Scenario

#: Share of the clients that use AMQP 0-9-1, and share of those that could resume a session which do.
_SHARE = 0.7
_RESUMING_SHARE = 0.6


class Amqp091Run(ScenarioRun):
    """One run with clients of both protocols."""

    async def carry_out(self, plan: ClientPlan, job: ProducerJob | ConsumerJob) -> None:
        if isinstance(job, SessionProducerJob):
            await produce_in_session(plan, job)
        elif isinstance(job, SessionConsumerJob):
            await consume_in_session(plan, job)
        elif isinstance(job, AmqpProducerJob):
            await produce_over_amqp(plan, job)
        elif isinstance(job, AmqpConsumerJob):
            await consume_over_amqp(plan, job)
        else:
            await super().carry_out(plan, job)


class MovingRun(Amqp091Run, MembersRun):
    """One run in which clients with a session go from one member to another."""

    def url_of(self, client: str) -> str:
        """See ``ScenarioRun``: that of all members for clients with a session."""
        jobs = {**self._producers, **self._consumers}
        own = super().url_of(client)
        if not isinstance(jobs.get(client), SessionProducerJob | SessionConsumerJob):
            return own
        names = [name for group in self._members.values() for name in group]
        random.Random(f"{self.plan.seed}/nodes of {client}").shuffle(names)
        return f"({','.join(f'tcp://{name}:{PORT}' for name in names)})?{own.partition('?')[2]}"


class Amqp091(Scenario):
    """A primary and a backup on one store."""

    name = "amqp091"
    text = "a primary and a backup on one store; clients of AMQP 0-9-1 and CORE use the same queue"
    last_kinds = LAST_KINDS
    run_class = Amqp091Run

    def nodes(self, seed: int) -> tuple[NodeRole, ...]:
        return PAIR

    def configure(self, plan: Plan) -> Plan:
        stream = random.Random(f"{plan.seed}/amqp091")
        sessions = random.Random(f"{plan.seed}/amqp091-sessions")
        producers = tuple(_resuming_producer(sessions, _producer(stream, job)) for job in plan.producers)
        consumers = tuple(_resuming_consumer(sessions, _consumer(stream, job)) for job in plan.consumers)
        return replace(plan, producers=producers, consumers=consumers)


class Amqp091Members(MemberPairs):
    """Two or three pairs; clients with a session go from one to another."""

    name = "amqp091-members"
    text = "two or three pairs with a shared store each; clients of AMQP 0-9-1 move with their sessions between them"
    run_class = MovingRun

    def configure(self, plan: Plan) -> Plan:
        stream = random.Random(f"{plan.seed}/amqp091-members")
        plan = super().configure(plan)
        plan = replace(plan, pair=replace(plan.pair, balancing="ON_DEMAND", grouping=False))
        producers = tuple(_moving_producer(stream, replace(job, groups=0)) for job in plan.producers)
        consumers = tuple(_moving_consumer(stream, job) for job in plan.consumers)
        return replace(plan, producers=producers, consumers=consumers)


def _values(job: ProducerJob | ConsumerJob) -> dict[str, Any]:
    return {each.name: getattr(job, each.name) for each in fields(job)}


def _producer(stream: random.Random, job: ProducerJob) -> ProducerJob:
    if isinstance(job, BranchProducerJob) or stream.random() >= _SHARE:
        return job
    return AmqpProducerJob(**_values(job))


def _consumer(stream: random.Random, job: ConsumerJob) -> ConsumerJob:
    if isinstance(job, BranchConsumerJob) or stream.random() >= _SHARE:
        return job
    return AmqpConsumerJob(**_values(job), prefetch=stream.choice((1, 10, 100)))


def _resuming_producer(stream: random.Random, job: ProducerJob) -> ProducerJob:
    if not isinstance(job, AmqpProducerJob) or job.batch or stream.random() >= _RESUMING_SHARE:
        return job
    return SessionProducerJob(**_values(job))


def _resuming_consumer(stream: random.Random, job: ConsumerJob) -> ConsumerJob:
    resumes = isinstance(job, AmqpConsumerJob) and not job.polls and job.mode != "transacted"
    if not resumes or stream.random() >= _RESUMING_SHARE:
        return job
    return SessionConsumerJob(**_values(job))


def _moving_producer(stream: random.Random, job: ProducerJob) -> ProducerJob:
    if isinstance(job, BranchProducerJob):
        return job
    return SessionProducerJob(**_values(job) | {"batch": 0}, leaves_after=stream.choice((1, 5, 20)))


def _moving_consumer(stream: random.Random, job: ConsumerJob) -> ConsumerJob:
    if isinstance(job, BranchConsumerJob) or stream.random() >= _SHARE:
        return job
    values = _values(job) | {"polls": False, "mode": "client"}
    prefetch, leaves_after = stream.choice((1, 10, 100)), stream.choice((5, 20))
    # a consumer that leaves before it acknowledges a batch gets the same messages again at each node, without end
    return SessionConsumerJob(**values, prefetch=prefetch, leaves_after=max(leaves_after, job.batch))
