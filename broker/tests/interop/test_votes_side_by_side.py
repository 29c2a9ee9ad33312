"""Quorum votes: our packets and decisions beside those of the classes of an Artemis broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from understudy.cluster.membership.held_votes import HeldVotes
from understudy.cluster.membership.topology import Member, Topology
from understudy.ha.votes.round import Answer, Question
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

pytestmark = [pytest.mark.maven, pytest.mark.long]

OWN = TransportConfiguration("own", parameters={"host": "10.0.0.1", "port": "61616"})


def java(artemis: Path, *arguments: str) -> list[str]:
    """Lines printed by the program with the libraries of the broker."""
    libraries = artemis.parent.parent / "lib"
    source = Path(__file__).parent / "votes" / "Votes.java"
    done = subprocess.run(
        ["java", "-cp", f"{libraries}/*", str(source), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def body(packet: packets.QuorumVote) -> str:
    writer = Writer()
    packet.write_body(writer, 136)
    return writer.getvalue().hex()


@pytest.mark.feature("quorum votes")
def test_votes_of_the_broker_are_read_and_written_alike(artemis: Path) -> None:
    handler = packets.PRIMARY_FAILOVER_VOTE
    gone, stay, own, other, nowhere, denied, *_ = java(artemis, "make")
    for text, kind, agreed in ((gone, packets.QuorumVote, False), (stay, packets.QuorumVote, True)):
        found = kind.read_body(Reader(bytes.fromhex(text)), 136)
        assert found == kind(handler, packets.FailoverVote(agreed, "pair", None))
        assert body(found) == text
    question = Question("pair", OWN.to_vote_text())
    for text, counts in ((own, True), (other, False), (nowhere, False), (denied, False)):
        found = packets.QuorumVoteReply.read_body(Reader(bytes.fromhex(text)), 136)
        assert isinstance(found.vote, packets.FailoverVote)
        assert body(found) == text
        assert Answer(found.vote.agreed, found.vote.connector).supports(question) is counts


@pytest.mark.feature("quorum votes")
def test_the_broker_decides_by_our_votes(artemis: Path) -> None:
    """A backup and a primary of Artemis in a cluster of two node ids, where one vote decides. We know their connectors
    as they announced them.
    """
    own, other = (TransportConfiguration.decode(bytes.fromhex(text)) for text in java(artemis, "make")[-2:])
    seen: list[Member | None] = [None, Member("pair", 1, own), Member("pair", 1, other), Member("pair", 1, None, own)]
    bodies: list[str] = []
    for member in seen:
        topology = Topology()
        if member is not None:
            topology.update(member)
        for stay in (False, True):
            vote = HeldVotes().answer(topology, packets.FailoverVote(stay, "pair"), None, 0)
            bodies.append(body(packets.QuorumVoteReply(packets.PRIMARY_FAILOVER_VOTE, vote)))
    decisions = [line.split() for line in java(artemis, "decide", *bodies)]
    backups = [backup for backup, _ in decisions[::2]]
    primaries = [primary for _, primary in decisions[1::2]]
    assert backups == ["true", "false", "false", "true"]
    assert primaries == ["false", "true", "false", "false"]
