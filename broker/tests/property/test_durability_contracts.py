"""Goal: a confirmation is released exactly when all required voters have confirmed its sequence, in order.

Method: random requests on one ``OperationContext``, interleaved with random confirmations of the voters and with
replicas that come into sync and are lost; every release is checked against a model of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.errors import DiskFailed
from understudy.store.log.operation_context import Contract, OperationContext, Voter

STEPS = st.lists(
    st.one_of(
        st.just("append"),
        st.just("ask"),
        st.sampled_from(list(Contract)),
        #: a voter confirms so many percent of the rest
        st.tuples(st.sampled_from(list(Voter)), st.sampled_from([50, 100])),
    ),
    max_size=60,
)


@dataclass
class Model:
    """Requests, releases and marks of the voters."""

    context: OperationContext = field(default_factory=OperationContext)
    marks: dict[Voter, int] = field(default_factory=lambda: dict.fromkeys(Voter, 0))
    required: Contract = Contract.LOCAL
    asked: list[int] = field(default_factory=list)
    """Sequence of each request."""
    released: list[int] = field(default_factory=list)
    """Indexes of requests."""
    durable: int = 0

    def take(self, step: object) -> None:
        match step:
            case "append":
                self.context.appended += 1
            case "ask":
                self.asked.append(self.context.appended)
                self.context.when_durable(self.context.appended, self.released.append, len(self.asked) - 1)
            case Contract():
                # a replica that comes into sync has what the local disk has
                self.marks |= dict.fromkeys((Voter.REPLICA_MEMORY, Voter.REPLICA_DISK), self.marks[Voter.LOCAL_DISK])
                self.required = step
                self.context.require(step)
            case (Voter() as voter, int(percent)):
                self.marks[voter] += (self.context.appended - self.marks[voter]) * percent // 100
                self.context.advance(self.marks[voter], voter)
        self.durable = max(self.durable, min(self.marks[voter] for voter in self.required.value))

    def check(self) -> None:
        assert self.context.durable == self.durable
        assert self.released == [index for index, sequence in enumerate(self.asked) if sequence <= self.durable]
        assert self.context.waiting == len(self.asked) - len(self.released)


@settings(max_examples=500)
@given(STEPS)
def test_a_request_is_released_exactly_when_the_required_voters_have_confirmed_it(steps: list[object]) -> None:
    model = Model()
    for step in steps:
        model.take(step)
        model.check()
    for voter in Voter:
        model.take((voter, 100))
    model.check()
    assert model.context.waiting == 0


@given(STEPS)
def test_a_failed_context_releases_nothing_under_any_contract(steps: list[object]) -> None:
    model = Model()
    for step in steps:
        model.take(step)
    before = list(model.released)
    model.context.fail(DiskFailed("the disk has failed"))
    for voter in Voter:
        model.context.advance(model.context.appended, voter)
    model.context.require(Contract.LOCAL)
    assert model.released == before
    assert model.context.waiting == 0


def test_a_replica_that_is_not_required_delays_and_releases_nothing() -> None:
    context, released = OperationContext(), list[str]()
    context.appended = 2
    context.when_durable(1, released.append, "first")
    context.advance(2, Voter.REPLICA_DISK)
    assert released == []
    context.advance(1)
    assert released == ["first"]


def test_requests_that_wait_for_a_lost_replica_are_released_when_it_is_not_required_any_more() -> None:
    context, released = OperationContext(), list[str]()
    context.require(Contract.REPLICA_DISK)
    context.appended = 1
    context.when_durable(1, released.append, "first")
    context.advance(1)
    context.advance(1, Voter.REPLICA_MEMORY)
    assert released == []
    context.require(Contract.LOCAL)
    assert released == ["first"]
