"""Members that ask each other to host backups (artemis-ha s. 5), over a network in memory."""

from __future__ import annotations

from support.membership import three
from understudy.wire.core import packets


def test_every_other_member_says_whether_it_can_host_a_backup() -> None:
    network, a, _, c = three()
    c.host_of_backups.places = 0
    votes: list[packets.BackupVote | None] = []
    a.membership.ask_for_hosts(votes.append, lambda: votes.append(None))
    network.run(200)
    assert sorted(votes[:-1], key=str) == [packets.BackupVote(0, "B", True), packets.BackupVote(0, "C", False)]
    assert votes[-1] is None, "called once, after the last vote"


def test_a_request_reaches_the_host_with_the_announced_connector() -> None:
    network, a, b, _ = three()
    answers: list[bool] = []
    for host in ("B", "B", "NOWHERE"):
        a.membership.request_backup(host, packets.BackupRequest(0, "/j", node_id="A"), answers.append)
        network.run(200)
    assert answers == [True, False, False], "accepted, full, no such member"
    assert [(node, host) for node, host, _ in b.host_of_backups.hosted] == [("A", "a")]


def test_a_member_that_is_lost_hosts_nothing() -> None:
    network, a, b, _ = three()
    answers: list[bool] = []
    a.membership.request_backup("B", packets.BackupRequest(0), answers.append)
    b.die()
    network.run(200)
    assert answers == [False]
