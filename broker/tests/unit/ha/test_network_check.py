"""The network check (artemis-ha s. 3.6): one target that answers is enough; its result replaces votes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.errors import MachineError
from understudy.ha.life.network_check import (
    Event,
    NetworkCheck,
    NetworkCheckOptions,
    NetworkVoter,
    Reach,
    State,
    listed,
)
from understudy.ha.votes.round import Decided, Pending
from understudy.machine import ILLEGAL
from understudy.testing.manual_time import ManualTime


class Prober:
    """Answered by hand; implements ``network_check.Prober``."""

    def __init__(self) -> None:
        self.probes: list[tuple[str, Callable[[Reach], None]]] = []

    def address(self, host: str, done: Callable[[Reach], None]) -> None:
        self.probes.append((host, done))

    def url(self, url: str, done: Callable[[Reach], None]) -> None:
        self.probes.append((url, done))

    def answer(self, *reaches: Reach) -> None:
        probes, self.probes = self.probes, []
        assert len(probes) == len(reaches)
        for (_, done), reach in zip(probes, reaches, strict=True):
            done(reach)


ANSWERED, SILENT, LOOPBACK = Reach.ANSWERED, Reach.SILENT, Reach.LOOPBACK


class World:
    def __init__(self, *addresses: str, urls: tuple[str, ...] = (), period_ms: int = 5_000) -> None:
        self.time, self.prober = ManualTime(), Prober()
        self.results: list[bool] = []
        options = NetworkCheckOptions(addresses, urls, period_ms)
        self.check = NetworkCheck(options, self.prober, self.time)


def test_the_first_check_is_made_at_once_then_one_per_period() -> None:
    world = World("a", urls=("http://u",))
    world.check.start(world.results.append)
    assert [target for target, _ in world.prober.probes] == ["a", "http://u"]
    world.prober.answer(ANSWERED, SILENT)
    world.time.advance(4_999)
    assert not world.prober.probes
    world.time.advance(1)
    world.prober.answer(SILENT, ANSWERED)
    assert world.results == [True, True]


@pytest.mark.parametrize(
    ("reaches", "expected"),
    [
        ((ANSWERED, ANSWERED), True),
        ((SILENT, ANSWERED), True),
        ((ANSWERED, SILENT), True),
        ((SILENT, SILENT), False),
        ((LOOPBACK, SILENT), False),
        ((LOOPBACK, ANSWERED), True),
        ((LOOPBACK, LOOPBACK), True),
    ],
)
def test_one_target_that_answers_is_enough(reaches: tuple[Reach, ...], expected: bool) -> None:
    world = World("a", "b")
    world.check.start(world.results.append)
    world.prober.answer(*reaches)
    assert world.results == [expected]
    assert world.check.reachable is expected


def test_a_loopback_address_is_left_out_of_later_checks(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a", "b")
    world.check.start(world.results.append)
    world.prober.answer(LOOPBACK, SILENT)
    world.time.advance(5_000)
    assert [target for target, _ in world.prober.probes] == ["b"]
    assert "loopback" in caplog.text
    assert [record.__dict__.get("id") for record in caplog.records].count("AMQ202001") == 1


def test_a_check_without_targets_is_not_made() -> None:
    world = World()
    world.check.start(world.results.append)
    decided: list[bool] = []
    world.check.ask(decided.append)
    assert world.check.empty
    assert decided == [True]
    assert not world.time.pending()


def test_answers_of_an_earlier_check_are_ignored() -> None:
    world = World("a", "b")
    world.check.start(world.results.append)
    late = world.prober.probes[1][1]
    world.prober.probes.pop(0)[1](ANSWERED)
    world.prober.probes.clear()
    world.time.advance(5_000)
    late(ANSWERED)
    assert world.results == [True]
    world.prober.answer(SILENT, SILENT)
    assert world.results == [True, False]


def test_a_stopped_check_reports_nothing() -> None:
    world = World("a")
    world.check.start(world.results.append)
    decided: list[bool] = []
    world.check.ask(decided.append)
    world.check.stop()
    world.prober.answer(ANSWERED)
    world.time.advance(100_000)
    assert not world.results
    assert not decided


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_a_transition_or_a_written_refusal(state: State, event: Event) -> None:
    world = World("a")
    world.check._state = state
    payload = [True] if event is Event.DONE else []
    if NetworkCheck.TABLE[state, event] is ILLEGAL:
        with pytest.raises(MachineError):
            world.check.fire(event, *payload)
    else:
        world.check.fire(event, *payload)


class Votes:
    """Records the questions; implements ``QuorumVoter``."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask_whether_gone(self, node_id: str, done: Decided) -> Pending:
        self.asked.append(node_id)
        return self

    def ask_whether_active(self, done: Decided) -> Pending:
        self.asked.append("me")
        return self

    def cancel(self) -> None: ...


@pytest.mark.parametrize("reach", [ANSWERED, SILENT])
def test_the_result_replaces_the_vote_in_both_directions(reach: Reach) -> None:
    world, votes = World("a"), Votes()
    voter = NetworkVoter(world.check, votes)
    world.check.start(world.results.append)
    world.prober.answer(ANSWERED)
    decided: list[bool] = []
    voter.ask_whether_gone("pair", decided.append)
    voter.ask_whether_active(decided.append)
    voter.ask_whether_active(decided.append).cancel()
    assert not decided, "a fresh check decides"
    world.prober.answer(reach)
    assert decided == [reach is ANSWERED] * 2
    assert not votes.asked


def test_votes_decide_without_targets() -> None:
    world, votes = World(), Votes()
    voter = NetworkVoter(world.check, votes)
    voter.ask_whether_gone("pair", lambda decision: None)
    voter.ask_whether_active(lambda decision: None)
    assert votes.asked == ["pair", "me"]


def test_lists_are_separated_by_commas() -> None:
    assert listed(" a, b ,,c,") == ["a", "b", "c"]
