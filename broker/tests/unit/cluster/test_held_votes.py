"""Votes bind the node that gave them: no node helps both sides of a pair (ADR 0067)."""

from __future__ import annotations

import pytest

from understudy.cluster.membership.held_votes import GONE_HELD_MS, HeldVotes
from understudy.cluster.membership.topology import Member, Topology
from understudy.limits import CLUSTER_NODES_MAX
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration


def connector(host: str) -> TransportConfiguration:
    return TransportConfiguration(host, parameters={"host": host, "port": "61616"})


A, B = connector("a"), connector("b")
GONE, STAY = packets.FailoverVote(False, "pair"), packets.FailoverVote(True, "pair")
SEEN_A = packets.FailoverVote(False, "pair", A.to_vote_text())


class Voter:
    """A node that votes; ``a`` and ``b`` are a pair."""

    def __init__(self, *, seen: TransportConfiguration | None = None) -> None:
        self.votes, self.topology, self.now_ms = HeldVotes(), Topology(), 0
        self.event_id = 0
        self.see(seen)

    def see(self, primary: TransportConfiguration | None) -> None:
        self.event_id += 10
        if primary is None:
            self.topology.remove("pair", self.event_id)
        else:
            self.topology.update(Member("pair", self.event_id, primary))

    def gone(self, asking: TransportConfiguration | None = B) -> bool:
        return self.votes.answer(self.topology, GONE, asking, self.now_ms).agreed

    def stay(self, asking: TransportConfiguration | None = A) -> bool:
        """Whether the vote counts for the asking node: agreed, and with its connector."""
        answer = self.votes.answer(self.topology, STAY, asking, self.now_ms)
        return answer.agreed and asking is not None and answer.connector == asking.to_vote_text()

    def state(self, sequence: int, *, in_sync: bool) -> None:
        self.votes.pair_state(packets.PairState("pair", sequence, in_sync))

    def announce(self, primary: TransportConfiguration, backup: TransportConfiguration | None = None) -> None:
        self.votes.announced(packets.NodeAnnounce("pair", None, False, 1, primary, backup, None))


@pytest.mark.parametrize(
    ("seen", "asked", "answer"),
    [
        (None, GONE, packets.FailoverVote(True, "pair", None)),
        (None, STAY, packets.FailoverVote(False, "pair", None)),
        (A, GONE, SEEN_A),
        (A, STAY, packets.FailoverVote(True, "pair", A.to_vote_text())),
    ],
)
def test_a_node_votes_from_its_own_topology(
    seen: TransportConfiguration | None, asked: packets.FailoverVote, answer: packets.FailoverVote
) -> None:
    voter = Voter(seen=seen)
    assert voter.votes.answer(voter.topology, asked, None, 0) == answer


def test_a_backup_alone_in_the_topology_is_no_active_node() -> None:
    voter = Voter()
    voter.topology.update(Member("pair", 100, None, B))
    assert voter.gone()
    assert not Voter().stay()


def test_a_node_that_got_the_vote_to_stay_is_not_called_gone_when_it_ends() -> None:
    voter = Voter(seen=A)
    assert voter.stay()
    voter.see(None)
    voter.now_ms = 10 * GONE_HELD_MS
    assert voter.votes.answer(voter.topology, GONE, B, voter.now_ms) == SEEN_A


def test_its_new_replica_may_take_over() -> None:
    voter = Voter(seen=A)
    voter.stay()
    voter.announce(A)
    voter.see(None)
    assert not voter.gone(), "it has announced itself without a replica"
    voter.announce(A, B)
    assert voter.gone()


def test_an_announcement_of_the_backup_itself_changes_nothing() -> None:
    voter = Voter(seen=A)
    voter.stay()
    voter.see(None)
    voter.votes.announced(packets.NodeAnnounce("pair", None, True, 1, B, None, None))
    assert not voter.gone()


def test_a_vote_to_stay_that_does_not_count_binds_nothing() -> None:
    voter = Voter(seen=B)
    assert not voter.stay(A), "another node is active under the id"
    voter.see(None)
    assert voter.gone()


def test_a_node_that_was_called_gone_gets_no_vote_to_stay_when_it_is_seen_again() -> None:
    voter = Voter()
    assert voter.gone()
    voter.see(A)
    voter.now_ms = GONE_HELD_MS - 1
    assert not voter.stay()
    voter.now_ms = GONE_HELD_MS
    assert voter.stay(), "the other side does not use the answer any more"


def test_it_gets_the_vote_after_the_other_side_has_asked_again() -> None:
    voter = Voter()
    assert voter.gone()
    voter.see(A)
    assert not voter.gone()
    assert voter.stay()
    assert not voter.gone(), "and the other side cannot win afterwards"


def test_the_node_that_took_over_gets_the_vote_to_stay() -> None:
    voter = Voter()
    assert voter.gone(B)
    voter.see(B)
    assert voter.stay(B)
    voter = Voter()
    assert voter.gone(None), "its connector is not known"
    voter.see(B)
    assert not voter.stay(B)
    voter.announce(B)
    voter.now_ms = GONE_HELD_MS
    assert voter.stay(B)


def test_the_announcement_of_the_node_that_was_gone_does_not_release_the_vote() -> None:
    voter = Voter()
    voter.gone(B)
    voter.see(A)
    voter.announce(A)
    assert not voter.stay(A)
    voter.announce(B)
    voter.now_ms = 10 * GONE_HELD_MS
    assert not voter.stay(A), "the other side took over; this one was stopped meanwhile"
    voter.announce(A, B)
    assert not voter.stay(A), "it has not noticed yet that it lost its replica"
    voter.announce(B, A)
    assert voter.stay(A), "a failback after that"


def test_a_node_that_an_administrator_promoted_gets_the_vote_once_it_has_a_replica() -> None:
    voter = Voter(seen=A)
    voter.state(3, in_sync=False)
    voter.stay(A)
    voter.announce(B)
    voter.see(B)
    assert not voter.stay(B)
    voter.announce(B, A)
    assert not voter.stay(B), "a node that was stopped, and does not know that its replica took over, says the same"
    voter.state(4, in_sync=True)
    assert voter.stay(B)


@pytest.mark.parametrize(("sequence", "released"), [(2, False), (3, True), (4, True)])
def test_the_pair_in_sync_with_the_newest_sequence_is_not_bound(sequence: int, released: bool) -> None:
    """A replica took over at 3, whose link to this voter was down when it came into sync; a failback followed."""
    voter = Voter()
    voter.gone(B)
    voter.state(3, in_sync=False)
    voter.announce(B)
    voter.see(A)
    voter.state(sequence, in_sync=True)
    assert voter.stay(A) is released


def test_the_state_of_a_pair_does_not_release_the_vote_that_a_node_is_gone() -> None:
    voter = Voter()
    voter.gone(B)
    voter.see(A)
    voter.state(9, in_sync=True)
    assert not voter.stay(A)


def test_the_replica_of_a_promoted_node_may_take_over() -> None:
    voter = Voter(seen=A)
    voter.stay(A)
    voter.see(None)
    assert voter.gone(A)


def test_the_number_of_held_votes_is_limited() -> None:
    votes, topology = HeldVotes(), Topology()
    for number in range(CLUSTER_NODES_MAX + 5):
        assert votes.answer(topology, packets.FailoverVote(False, f"n{number}"), B, 0).agreed
    assert len(votes._held) == CLUSTER_NODES_MAX
    assert "n0" not in votes._held
