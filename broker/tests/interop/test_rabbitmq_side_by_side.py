"""Programs of random AMQP 0-9-1 requests at our broker and at a real RabbitMQ: the same answers.

RabbitMQ is that of Debian, in directories of its own (``.ci/system-packages rabbitmq`` installs it).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.load import CannotRun
from benchmarks.targets import RabbitMq
from interop.differential.compare import Difference, first_difference
from interop.differential091.generator import program
from interop.differential091.runner import Runner
from interop.differential091.steps import Ask, Place, Program, Publish, Settle
from support.nodes import nodes_in
from support.processes import Node
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

pytestmark = pytest.mark.maven

#: Programs that come with every change; make test-all has the others.
SHORT = range(3)
LONG = range(3, 29)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Port of our broker and port of RabbitMQ."""
    directory = Path(tmp_path_factory.mktemp("rabbitmq"))
    peer = RabbitMq(directory / "rabbitmq")
    with nodes_in(directory / "ours") as nodes:
        try:
            peer.prepare()
            peer.start()
        except CannotRun as error:
            peer.stop()
            pytest.skip(f"RabbitMQ cannot be had: {error}")
        try:
            ours = nodes.target().node
            assert isinstance(ours, Node)
            yield ours.port, peer.port
        finally:
            peer.stop()


def _difference(ports: tuple[int, int], steps: Program, other: Program | None = None) -> Difference | None:
    ours, theirs = (Runner(port) for port in ports)
    return first_difference(steps, ours.run(steps), theirs.run(other or steps))


@pytest.mark.feature("AMQP 0-9-1: the same as RabbitMQ, answer by answer")
@pytest.mark.parametrize(
    "seeds", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]
)
def test_programs_are_the_same_at_both(ports: tuple[int, int], seeds: range) -> None:
    for seed in seeds:
        found = _difference(ports, program(seed))
        assert found is None, f"seed {seed}:\n{found.describe()}"


@pytest.mark.feature("AMQP 0-9-1: the same as RabbitMQ, answer by answer")
def test_a_difference_is_seen(ports: tuple[int, int]) -> None:
    """The comparison can fail: one broker is given another program."""
    place = Place(0, 1)
    steps: Program = (
        Ask(place, m.QueueDeclare(0, "q0")),
        Publish(place, m.BasicPublish(0, "", "q0"), encode_properties(BasicProperties()), b"m1"),
        Ask(place, m.BasicGet(0, "q0")),
        Settle(place, "nack", 0, requeue=True),
        Ask(place, m.BasicGet(0, "q0")),
    )
    found = _difference(ports, steps, (*steps[:3], Settle(place, "nack", 0, requeue=False), steps[4]))
    assert found is not None
    assert found.where.startswith("3: Settle")
    assert found.paths == ("queues.q0",)
