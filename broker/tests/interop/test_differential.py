"""Programs of random CORE steps at our broker and at a real Artemis: the same to the last packet, or known why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.differential.campaign import judge
from interop.differential.compare import first_difference
from interop.differential.configuration import start
from interop.differential.generator import PROFILES, RESTARTED
from interop.differential.restarts import judge_restarts
from interop.differential.runner import Runner
from interop.differential.steps import Acknowledge, Consume, MakeQueue, OpenSession, Rollback, Send
from support.targets import Target

pytestmark = pytest.mark.maven

#: Of each profile, which take turns by seed: about a minute together.
SEEDS_PER_PROFILE = 14
#: These come with every change; the others in make test-all.
SHORT = ("selecting", "consuming", "kinds", "arranging", "failing", "distributed")
#: Programs of each profile before a restart.
RESTARTED_PER_PROFILE = 3

_NAMES = [profile.__name__.strip("_") for profile in PROFILES]


@pytest.fixture(scope="module")
def ports(artemis: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Ports of our broker and of Artemis."""
    targets = []
    try:
        targets.append(start("understudy", tmp_path_factory.mktemp("differential") / "understudy", artemis))
        targets.append(start("artemis", tmp_path_factory.mktemp("differential") / "artemis", artemis))
        yield targets[0].node.port, targets[1].node.port
    finally:
        for target in targets:
            target.end()


@pytest.mark.feature("the same as Artemis, packet by packet")
@pytest.mark.parametrize(
    "profile",
    [pytest.param(name, marks=[] if name in SHORT else pytest.mark.long, id=name) for name in _NAMES],
)
def test_programs_are_the_same_at_both(ports: tuple[int, int], profile: str) -> None:
    for number in range(SEEDS_PER_PROFILE):
        verdict = judge(number * len(PROFILES) + _NAMES.index(profile), *ports)
        assert verdict.difference is None, f"seed {verdict.seed}:\n{verdict.difference.describe()}"


@pytest.fixture(scope="module")
def restarted(artemis: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """Our broker and Artemis, to be restarted."""
    targets: list[Target] = []
    try:
        targets.append(start("understudy", tmp_path_factory.mktemp("restarted") / "ours", artemis, restarted=True))
        targets.append(start("artemis", tmp_path_factory.mktemp("restarted") / "theirs", artemis, restarted=True))
        yield targets
    finally:
        for target in targets:
            target.end()


@pytest.mark.long
@pytest.mark.feature("the same as Artemis, packet by packet")
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_programs_are_the_same_over_a_restart(restarted: list[Target], killed: bool) -> None:
    count = RESTARTED_PER_PROFILE * len(RESTARTED)
    seeds = range(count, 2 * count) if killed else range(count)
    for verdict in judge_restarts(seeds, *restarted, killed=killed):
        assert verdict.difference is None, f"seed {verdict.seed}:\n{verdict.difference.describe()}"


@pytest.mark.feature("the same as Artemis, packet by packet")
def test_a_difference_is_seen(ports: tuple[int, int]) -> None:
    """The comparison can fail: one broker is given another program."""
    program = (
        OpenSession("s0", auto_commit_acks=False),
        MakeQueue("s0", "plain.q0", "plain.q0", (("routing_type", 1),)),
        Send("s0", "plain.q0", "m1"),
        Consume("s0", 0, "plain.q0"),
        Rollback("s0"),
        Acknowledge("s0", 0, 0),
    )
    ours, theirs = ports
    other = (*program[:4], Rollback("s0", last_delivered=True), program[5])
    found = first_difference(program, Runner(ours).run(program), Runner(theirs).run(other))
    assert found is not None
    assert found.where.startswith("4: Rollback")
    assert found.paths == ("news.s0.0.delivery count",)
