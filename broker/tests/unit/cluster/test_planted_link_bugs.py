"""Goal: a check of links between nodes that is left out is found. Each attack of a stranger succeeds with its planted
bug, and with no other one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from planted.link_bugs import LINK_BUGS, planted_link_bug
from support.cluster_links import PASSWORD, PLACE
from support.node_links import Link, credentials
from understudy.wire.core import packets as p
from understudy.wire.core.codec import encode

OTHER_PLACE = "192.0.2.200:61616"


def passes_the_proof_on() -> bool:
    """A stranger at the address of another node passes the frames on."""
    return Link(target=OTHER_PLACE, dialled=OTHER_PLACE).settle().handler.proved


def reflects_the_proof() -> bool:
    """The addresses of the stranger and of the node that dials him coincide; he passes its frames back to it."""
    own = credentials(PASSWORD, PLACE)
    return Link(dialler=own, acceptor=own).settle().handler.proved


def changes_a_frame() -> bool:
    """A question about another node becomes one about the accepting node."""
    link = Link().settle()
    link.received.clear()
    node_id = link.node.services.node_id
    link.peer.send(p.CheckForFailover("x" * len(node_id)), 1)
    link.to_acceptor(lambda data: data[:20] + encode(p.CheckForFailover(node_id), 1))
    link.to_dialler()
    return any(isinstance(each, p.CheckForFailoverReply) and each.ok for each in link.received)


def repeats_a_frame() -> bool:
    """A question is answered twice."""
    link = Link().settle()
    link.received.clear()
    link.peer.send(p.CheckForFailover(None), 1)
    link.to_acceptor(lambda data: data + data)
    link.to_dialler()
    return len([each for each in link.received if isinstance(each, p.CheckForFailoverReply)]) == 2


def leaves_a_frame_out() -> bool:
    link = Link().settle()
    link.received.clear()
    link.peer.send(p.CheckForFailover("lost"), 1)
    link.to_acceptor(lambda data: b"")
    link.peer.send(p.CheckForFailover(None), 1)
    link.to_acceptor()
    link.to_dialler()
    return any(isinstance(each, p.CheckForFailoverReply) for each in link.received)


ATTACKS: dict[Callable[[], bool], set[str]] = {
    passes_the_proof_on: {"target-not-checked"},
    reflects_the_proof: {"own-hello-accepted"},
    changes_a_frame: {"code-not-checked"},
    repeats_a_frame: {"number-not-checked", "code-not-checked"},
    leaves_a_frame_out: {"number-not-checked", "code-not-checked"},
}


@pytest.mark.parametrize("bug", [None, *LINK_BUGS])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_succeeds_only_with_its_planted_bug(attack: Callable[[], bool], bug: str | None) -> None:
    logging.disable(logging.CRITICAL)
    try:
        with planted_link_bug(bug):
            assert attack() is (bug in ATTACKS[attack])
    finally:
        logging.disable(logging.NOTSET)


def test_every_planted_bug_is_found_by_an_attack() -> None:
    assert set.union(*ATTACKS.values()) == set(LINK_BUGS)
