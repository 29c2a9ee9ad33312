"""Goal: a confirmation is released exactly when all voters of its contract have confirmed its sequence, and never
before an earlier one of its session.

Method: random requests of two sessions on one ``OperationContext``, under the contract of the node or one of an
address, interleaved with random confirmations of the voters, replicas that come into sync and are lost, and other
configurations; every release is checked against a model of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.errors import DiskFailed
from understudy.routing.response_order import ResponseOrder
from understudy.store.log.operation_context import Contract, OperationContext, Voter

STEPS = st.lists(
    st.one_of(
        st.just("append"),
        #: the request of a session, for an address with this contract
        st.tuples(st.sampled_from([0, 1]), st.sampled_from([None, *Contract])),
        st.sampled_from(["attach", "hold", "detach"]),
        #: a configuration: the contract of the node, and that of an address
        st.tuples(st.sampled_from(list(Contract)), st.sampled_from(list(Contract))),
        #: a voter confirms so many percent of the rest
        st.tuples(st.sampled_from(list(Voter)), st.sampled_from([50, 100])),
    ),
    max_size=60,
)
_VOTERS = {contract: set(contract.value) for contract in Contract}


@dataclass
class Request:
    """One request: released when the voters of its contract have confirmed its sequence."""

    session: int
    sequence: int
    contract: Contract | None
    """None: the strictest one in force."""


@dataclass
class Model:
    """Requests, releases and marks of the voters."""

    context: OperationContext = field(default_factory=OperationContext)
    orders: list[ResponseOrder] = field(default_factory=lambda: [ResponseOrder(), ResponseOrder()])
    marks: dict[Voter, int] = field(default_factory=lambda: {Voter.LOCAL_DISK: 0})
    configured: tuple[Contract, Contract] = (Contract.REPLICA_DISK, Contract.REPLICA_DISK)
    held: bool = False
    asked: list[Request] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    """Indexes of requests."""
    durable: dict[Contract, int] = field(default_factory=lambda: dict.fromkeys(Contract, 0))

    def take(self, step: object) -> None:
        match step:
            case "append":
                self.context.appended += 1
            case (int(session), None | Contract() as contract):
                self._ask(session, contract if contract in self.configured else None)
            case "attach":
                self.marks = dict.fromkeys(Voter, self.marks[Voter.LOCAL_DISK])
                self.held = False
                self.context.attach_replica()
            case "hold":
                self.held = len(self.marks) > 1
                self.context.hold()
            case "detach":
                self.marks = {Voter.LOCAL_DISK: self.marks[Voter.LOCAL_DISK]}
                self.held = False
                self.context.detach_replica()
            case (Contract() as common, Contract() as own):
                self.configured = (common, own)
                self.context.demand(common, [own])
            case (Voter() as voter, int(percent)):
                mark = self.marks.get(voter, 0)
                mark += (self.context.appended - mark) * percent // 100
                if voter in self.marks:
                    self.marks[voter] = mark
                self.context.advance(mark, voter)
        self._release()

    def _ask(self, session: int, contract: Contract | None) -> None:
        order, sequence = self.orders[session], self.context.appended
        self.asked.append(Request(session, sequence, contract or self.configured[0]))
        lane = order.enter(self.context, self.context.lane(contract))
        order.sequence = sequence
        lane.when_durable(sequence, self.released.append, len(self.asked) - 1)

    def _release(self) -> None:
        """The marks of the contracts; a contract stricter than all configured ones needs no more than those."""
        strictest = max(self.configured, key=lambda each: each.strength)
        if self.held:
            return
        for contract in Contract:
            voters = _VOTERS[contract] & _VOTERS[strictest] & set(self.marks)
            self.durable[contract] = max(self.durable[contract], min(self.marks[voter] for voter in voters))

    def check(self) -> None:
        strictest = max(self.configured, key=lambda each: each.strength)
        assert self.context.durable <= self.durable[strictest]
        assert self.context.waiting == len(self.asked) - len(self.released)
        assert len(set(self.released)) == len(self.released)
        for index in self.released:
            request = self.asked[index]
            assert request.contract is not None
            assert request.sequence <= self.durable[request.contract]
        for session in (0, 1):
            own = [index for index in self.released if self.asked[index].session == session]
            assert own == sorted(own)
            # a prefix of the requests of the session
            waiting = [index for index, request in enumerate(self.asked) if request.session == session]
            for index in waiting[: len(own)]:
                assert index in own


@settings(max_examples=500)
@given(STEPS)
def test_a_request_is_released_exactly_when_the_required_voters_have_confirmed_it(steps: list[object]) -> None:
    model = Model()
    for step in steps:
        model.take(step)
        model.check()
    model.take("attach")
    for voter in Voter:
        model.take((voter, 100))
    model.check()
    assert model.context.waiting == 0


@given(STEPS)
def test_the_only_session_waits_no_longer_than_the_contracts_of_its_requests(steps: list[object]) -> None:
    """Liveness: with one session and one configuration, exactly those requests wait that may not be released."""
    model = Model()
    model.take((Contract.REPLICA_DISK, Contract.LOCAL))
    for step in steps:
        match step:
            case (Contract(), Contract()):
                continue
            case (int(), contract):
                model.take((0, contract))
            case _:
                model.take(step)
        model.check()
        wanted = 0
        for request in model.asked:
            assert request.contract is not None
            if request.sequence > model.durable[request.contract]:
                break
            wanted += 1
        assert len(model.released) == wanted


@given(STEPS)
def test_a_failed_context_releases_nothing_under_any_contract(steps: list[object]) -> None:
    model = Model()
    for step in steps:
        model.take(step)
    before = list(model.released)
    model.context.fail(DiskFailed("the disk has failed"))
    for voter in Voter:
        model.context.advance(model.context.appended, voter)
    model.context.detach_replica()
    assert model.released == before
    assert model.context.waiting == 0


def test_the_confirmation_of_a_replica_that_is_not_in_sync_releases_nothing() -> None:
    context, released = OperationContext(), list[str]()
    context.appended = 2
    context.when_durable(1, released.append, "first")
    context.advance(2, Voter.REPLICA_DISK)
    assert released == []
    context.advance(1)
    assert released == ["first"]


def test_requests_that_wait_for_a_lost_replica_are_released_when_there_is_none_any_more() -> None:
    context, released = OperationContext(), list[str]()
    context.attach_replica()
    context.appended = 1
    context.when_durable(1, released.append, "first")
    context.advance(1)
    context.advance(1, Voter.REPLICA_MEMORY)
    assert released == []
    context.detach_replica()
    assert released == ["first"]
