"""Votes of the classic quorum (artemis-ha s. 3.3): every row of its tables, the rounds, and decisions that stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.ha.votes.decisions import STAY_ACTIVE_WAIT_MS, ClusterVoter, VoteOptions, votes_needed
from understudy.ha.votes.round import Answer, Pending, Question
from understudy.testing.manual_time import ManualTime

OWN = "TransportConfiguration(name=own, factory=f)?port=61616&host=a"
OTHER = "TransportConfiguration(name=other, factory=f)?port=61616&host=b"


class Asked:
    """One question put to the cluster, answered by hand."""

    def __init__(self, question: Question, cast: Callable[[Answer | None], None], all_cast: Callable[[], None]) -> None:
        self.question = question
        self.cast = cast
        self.all_cast = all_cast
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Cluster:
    """A ballot; implements ``Ballot``."""

    def __init__(self, nodes_seen: int) -> None:
        self.nodes_seen = nodes_seen
        self.asked: list[Asked] = []

    def own_connector(self) -> Question:
        return Question("me", OWN)

    def put(self, question: Question, cast: Callable[[Answer | None], None], all_cast: Callable[[], None]) -> Pending:
        self.asked.append(Asked(question, cast, all_cast))
        return self.asked[-1]


def voter(cluster: Cluster, time: ManualTime, **options: int) -> ClusterVoter:
    return ClusterVoter(VoteOptions(**options), cluster, time)


@pytest.mark.parametrize(
    ("size", "needed"),
    [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5), (10, 6)],
)
def test_votes_needed_by_size(size: int, needed: int) -> None:
    assert votes_needed(size) == needed


@pytest.mark.parametrize("size", range(2, 11))
def test_a_backup_activates_with_exactly_the_needed_votes(size: int) -> None:
    for positive in range(size):
        time, cluster, decided = ManualTime(), Cluster(size), []
        voter(cluster, time, retries=1).ask_whether_gone("pair", decided.append)
        assert cluster.asked[0].question == Question("pair")
        for number in range(size - 1):
            cluster.asked[0].cast(Answer(number < positive))
        cluster.asked[0].all_cast()
        assert decided == [positive >= votes_needed(size)]


@pytest.mark.parametrize(
    ("answer", "active"),
    [
        (Answer(True, OWN), True),
        (Answer(True, "TransportConfiguration(name=own, factory=f)?host=a&port=61616"), True),
        (Answer(True, OTHER), False),
        (Answer(True, None), False),
        (Answer(False, None), False),
        (None, False),
    ],
)
def test_a_primary_counts_only_votes_that_name_its_own_connector(answer: Answer | None, active: bool) -> None:
    time, cluster, decided = ManualTime(), Cluster(2), []
    voter(cluster, time).ask_whether_active(decided.append)
    assert cluster.asked[0].question == Question("me", OWN)
    cluster.asked[0].cast(answer)
    cluster.asked[0].all_cast()
    assert decided == [active]


@pytest.mark.parametrize(("answer", "gone"), [(Answer(True), True), (Answer(False, OTHER), False), (None, False)])
def test_a_backup_counts_votes_that_its_partner_is_gone(answer: Answer | None, gone: bool) -> None:
    time, cluster, decided = ManualTime(), Cluster(2), []
    voter(cluster, time, retries=1).ask_whether_gone("pair", decided.append)
    cluster.asked[0].cast(answer)
    cluster.asked[0].all_cast()
    assert decided == [gone]


@pytest.mark.parametrize("seen", [0, 1])
def test_a_lone_pair_needs_no_votes_and_asks_no_node(seen: int) -> None:
    time, cluster, decided = ManualTime(), Cluster(seen), []
    voter(cluster, time).ask_whether_gone("pair", decided.append)
    voter(cluster, time).ask_whether_active(decided.append)
    assert decided == [True, True]
    assert not cluster.asked
    assert not time.pending()


def test_quorum_size_replaces_the_number_of_nodes_seen() -> None:
    time, cluster, decided = ManualTime(), Cluster(5), []
    voter(cluster, time, quorum_size=1).ask_whether_gone("pair", decided.append)
    assert decided == [True]


def test_a_result_that_no_other_node_can_give_is_not_awaited() -> None:
    time, cluster, decided = ManualTime(), Cluster(1), []
    voter(cluster, time, quorum_size=3, retries=2).ask_whether_gone("pair", decided.append)
    assert not decided
    time.advance(5_000)
    assert decided == [False]
    assert not cluster.asked


def test_the_decision_is_final_and_later_answers_are_ignored() -> None:
    time, cluster, decided = ManualTime(), Cluster(3), []
    voter(cluster, time, retries=1).ask_whether_gone("pair", decided.append)
    first = cluster.asked[0]
    first.cast(Answer(False))
    first.cast(Answer(False))
    first.all_cast()
    for _ in range(3):
        first.cast(Answer(True))
    first.all_cast()
    assert decided == [False]


def test_enough_votes_decide_before_the_others_are_cast() -> None:
    time, cluster, decided = ManualTime(), Cluster(3), []
    voter(cluster, time).ask_whether_gone("pair", decided.append)
    cluster.asked[0].cast(Answer(True))
    assert not decided
    cluster.asked[0].cast(Answer(True))
    assert decided == [True]
    assert cluster.asked[0].cancelled
    assert not time.pending()


def test_a_backup_votes_at_once_and_again_after_each_pause() -> None:
    time, cluster, decided = ManualTime(), Cluster(2), []
    voter(cluster, time, retries=3, retry_wait_ms=4_000).ask_whether_gone("pair", decided.append)
    for rounds in (1, 2, 3):
        assert len(cluster.asked) == rounds
        cluster.asked[-1].all_cast()
        time.advance(3_999)
        assert len(cluster.asked) == rounds
        time.advance(1)
    assert decided == [False]
    assert len(cluster.asked) == 3


def test_the_first_positive_round_ends_the_vote() -> None:
    time, cluster, decided = ManualTime(), Cluster(2), []
    voter(cluster, time).ask_whether_gone("pair", decided.append)
    cluster.asked[0].all_cast()
    time.advance(5_000)
    cluster.asked[1].cast(Answer(True))
    assert decided == [True]
    time.advance(1_000_000)
    assert len(cluster.asked) == 2


def test_a_round_of_a_backup_ends_after_quorum_vote_wait_in_seconds() -> None:
    time, cluster, decided = ManualTime(), Cluster(3), []
    voter(cluster, time, retries=1, wait_s=7).ask_whether_gone("pair", decided.append)
    cluster.asked[0].cast(Answer(True))
    time.advance(6_999)
    assert not decided
    time.advance(1)
    assert decided == [False]


def test_the_vote_of_a_primary_ends_after_five_seconds() -> None:
    time, cluster, decided = ManualTime(), Cluster(3), []
    voter(cluster, time, wait_s=70).ask_whether_active(decided.append)
    time.advance(STAY_ACTIVE_WAIT_MS)
    assert decided == [False]


@pytest.mark.parametrize("retries", [0, -1])
def test_without_rounds_a_backup_does_not_activate(retries: int) -> None:
    time, cluster, decided = ManualTime(), Cluster(1), []
    voter(cluster, time, retries=retries).ask_whether_gone("pair", decided.append)
    assert decided == [False]


@pytest.mark.parametrize("paused", [False, True])
def test_a_cancelled_vote_has_no_decision(paused: bool) -> None:
    time, cluster, decided = ManualTime(), Cluster(2), []
    vote = voter(cluster, time).ask_whether_gone("pair", decided.append)
    if paused:
        cluster.asked[0].all_cast()
    vote.cancel()
    vote.cancel()
    cluster.asked[0].cast(Answer(True))
    time.advance(100_000)
    assert not decided
    assert not time.pending()
    assert len(cluster.asked) == 1


def test_the_size_is_that_of_the_first_round() -> None:
    time, cluster, decided = ManualTime(), Cluster(3), []
    voter(cluster, time).ask_whether_gone("pair", decided.append)
    cluster.asked[0].all_cast()
    cluster.nodes_seen = 9
    time.advance(5_000)
    cluster.asked[1].cast(Answer(True))
    cluster.asked[1].cast(Answer(True))
    assert decided == [True]
