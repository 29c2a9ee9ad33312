"""Programs of random AMQP 0-9-1 requests at our broker and at a real RabbitMQ: the same answers.

RabbitMQ is that of Debian, in directories of its own (``.ci/system-packages rabbitmq`` installs it).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.load import CannotRun
from interop.differential091.campaign import Ports, brokers, difference
from interop.differential091.generator import program
from interop.differential091.steps import Ask, Place, Program, Publish, Settle
from understudy.wire.amqp091 import methods as m
from understudy.wire.amqp091.properties import BasicProperties, encode_properties

#: Programs that come with every change; make test-all has the others.
SHORT = range(3)
LONG = range(3, 29)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """Ports of both brokers."""
    try:
        with brokers(Path(tmp_path_factory.mktemp("rabbitmq"))) as ports:
            yield ports
    except CannotRun as error:
        pytest.skip(f"RabbitMQ cannot be had: {error}")


@pytest.mark.feature("AMQP 0-9-1: the same as RabbitMQ, answer by answer")
@pytest.mark.parametrize(
    "seeds", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.long)]
)
def test_programs_are_the_same_at_both(ports: Ports, seeds: range) -> None:
    for seed in seeds:
        found = difference(ports, program(seed))
        assert found is None, f"seed {seed}:\n{found.describe()}"


@pytest.mark.feature("AMQP 0-9-1: the same as RabbitMQ, answer by answer")
def test_a_difference_is_seen(ports: Ports) -> None:
    """The comparison can fail: one broker is given another program."""
    place = Place(0, 1)
    steps: Program = (
        Ask(place, m.QueueDeclare(0, "q0")),
        Publish(place, m.BasicPublish(0, "", "q0"), encode_properties(BasicProperties()), b"m1"),
        Ask(place, m.BasicGet(0, "q0")),
        Settle(place, "nack", 0, requeue=True),
        Ask(place, m.BasicGet(0, "q0")),
    )
    found = difference(ports, steps, (*steps[:3], Settle(place, "nack", 0, requeue=False), steps[4]))
    assert found is not None
    assert found.where.startswith("3: Settle")
    assert found.paths == ("queues.q0",)
