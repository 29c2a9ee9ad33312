"""Goal: a confirmation is released exactly when the contract of its address is satisfied, in the order of its session.

Method: random requests of several sessions with random contracts, interleaved with random marks of the voters, on one
``OperationContext``; every release is checked against a model of the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.errors import DiskFailed
from understudy.store.log.operation_context import Contract, OperationContext, Voter

OWNERS = 2

#: Append a record; ask for a contract by an owner; a voter confirms some of what was appended (percent of the rest).
STEPS = st.lists(
    st.one_of(
        st.just(("append",)),
        st.tuples(st.just("ask"), st.integers(0, OWNERS - 1), st.sampled_from(list(Contract))),
        st.tuples(st.just("ask"), st.integers(0, OWNERS - 1), st.sampled_from(list(Contract))),
        st.tuples(st.just("confirm"), st.sampled_from(list(Voter)), st.sampled_from([50, 100])),
    ),
    max_size=40,
)


@dataclass
class Entry:
    """One request."""

    owner: int
    contract: Contract
    sequence: int
    effective: Contract
    """The strongest contract among it and what its owner waited for when it asked."""


@dataclass
class Model:
    """Requests, releases and marks of the voters."""

    context: OperationContext = field(default_factory=OperationContext)
    marks: dict[Voter, int] = field(default_factory=lambda: dict.fromkeys(Voter, 0))
    appended: int = 0
    entries: list[Entry] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def mark(self, contract: Contract) -> int:
        return min(self.marks[voter] for voter in contract.value)

    def ask(self, owner: int, contract: Contract) -> None:
        waiting = [entry for i, entry in enumerate(self.entries) if entry.owner == owner and i not in self.released]
        sequence = self.appended
        effective = max([contract, *(entry.effective for entry in waiting)], key=lambda each: each.strength)
        self.entries.append(Entry(owner, contract, sequence, effective))
        self.context.when_satisfied(contract, owner, sequence, self.released.append, len(self.entries) - 1)

    def confirm(self, voter: Voter, percent: int) -> None:
        self.marks[voter] += (self.appended - self.marks[voter]) * percent // 100
        self.context.advance(self.marks[voter], voter)

    def check(self) -> None:
        for index in self.released:
            entry = self.entries[index]
            assert entry.sequence <= self.mark(entry.contract), "released before its contract was satisfied"
        for index, entry in enumerate(self.entries):
            if entry.sequence <= self.mark(entry.effective):
                assert index in self.released, "it waits for more than its contract and the order of its session"
        for owner in range(OWNERS):
            order = [index for index in self.released if self.entries[index].owner == owner]
            assert order == sorted(order), "released out of the order of its session"
        assert len(set(self.released)) == len(self.released)
        assert self.context.waiting == len(self.entries) - len(self.released)


@settings(max_examples=500)
@given(STEPS)
def test_an_entry_is_released_exactly_when_its_contract_is_satisfied(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for step in steps:
        match step:
            case ("append",):
                model.appended += 1
                model.context.appended = model.appended
            case ("ask", int(owner), Contract() as contract):
                model.ask(owner, contract)
            case ("confirm", Voter() as voter, int(percent)):
                model.confirm(voter, percent)
        model.check()
    for voter in Voter:
        model.confirm(voter, 100)
    model.check()
    assert model.context.waiting == 0


@given(STEPS)
def test_a_failed_context_releases_nothing_under_any_contract(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    model.appended = model.context.appended = 100
    for step in steps:
        match step:
            case ("ask", int(owner), Contract() as contract):
                model.ask(owner, contract)
    before = list(model.released)
    model.context.fail(DiskFailed("the disk has failed"))
    for voter in Voter:
        model.confirm(voter, 100)
    assert model.released == before
    assert model.context.waiting == 0
