"""Message groups in a cluster of one of our nodes and a real Artemis: either of them decides (artemis-ha s. 7.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.artemis import ArtemisNode
from support.members import members_xml, url, wait_knows, wait_until
from support.processes import Node
from understudy.client.sync import Connection, Consumer, Session, connect

pytestmark = [pytest.mark.maven, pytest.mark.long]

GROUPS = [f"g{number}" for number in range(10)]


def handler(kind: str, inner: str) -> str:
    return f'<grouping-handler name="groups"><type>{kind}</type>{inner}</grouping-handler>'


class Mixed:
    """Our node and an Artemis, with grouping handlers of these types, and a consumer of ``q`` at each."""

    def __init__(self, artemis: Path, directory: Path, ours: str, theirs: str, inner: str) -> None:
        kinds = (ours, theirs)
        (port, text), (their_port, their_text) = members_xml(
            directory, 2, extra=lambda number: handler(kinds[number], inner)
        )
        members = "<artemis-members><connector-ref>n1</connector-ref></artemis-members></cluster-connection>"
        self.ours = Node(directory / "n0", "primary", port)
        self.ours.config.parent.mkdir(parents=True)
        self.ours.config.write_text(text.replace("</cluster-connection>", members))
        nio = "<journal-type>NIO</journal-type>"
        their_text = their_text.replace("<connectors>", nio + "<connectors>", 1)
        self.theirs = ArtemisNode(artemis, directory / "instance", their_port, their_text)
        self.connections: list[Connection] = []
        self.sessions: list[Session] = []
        self.consumers: list[Consumer] = []

    def start(self) -> Mixed:
        self.theirs.start()
        self.ours.start().wait_ready("active")
        self.theirs.wait_ready("active")
        self.connect()
        return self

    def connect(self) -> None:
        """Consumers at both, known to both."""
        self.connections = [connect(url(self.ours)), connect(url(self.theirs))]  # type: ignore[arg-type]
        self.sessions = [each.session() for each in self.connections]
        self.consumers = [each.consumer("q") for each in self.sessions]
        wait_knows(self.ours, "q", consumers=1)
        producer = self.sessions[1].producer("q")
        # Artemis has no operation that shows the queues of other members: messages show them
        for _ in range(500):
            producer.send("without a group")
            if (found := self.consumers[0].receive(0.05)) is not None:
                break
        assert found is not None, "Artemis does not know our consumer"
        for consumer in self.consumers:
            while consumer.receive(0.5) is not None:
                pass

    def disconnect(self) -> None:
        for each in self.connections:
            each.close()
        self.connections = []

    def end(self) -> None:
        self.disconnect()
        self.ours.end()
        self.theirs.end()

    def send(self, name: str) -> None:
        """A message of each group to each member, in turn."""
        producers = [session.producer("q") for session in self.sessions]
        for number in range(4):
            for group in GROUPS:
                for member, producer in enumerate(producers):
                    producer.send(f"{name} {member} {number}", properties={"_AMQ_GROUP_ID": group})

    def places(self, name: str) -> dict[str, int]:
        """The member that got each group; fails if a group went to both, or if its order was lost."""
        found: dict[str, int] = {}
        count = 0
        for member, consumer in enumerate(self.consumers):
            bodies: dict[str, list[str]] = {}
            while count < 80 and (each := consumer.receive(1.5)) is not None:
                bodies.setdefault(str(each.properties["_AMQ_GROUP_ID"]), []).append(each.text or "")
                count += 1
            for group, texts in bodies.items():
                assert group not in found, f"{group} went to both"
                found[group] = member
                for sender in range(2):
                    assert [each for each in texts if each.startswith(f"{name} {sender}")] == [
                        f"{name} {sender} {number}" for number in range(4)
                    ], "order, loss or doubling"
        assert count == 80
        return found

    def grouping(self) -> dict[str, Any]:
        found = self.ours.get("/api/v1/cluster")[1]["grouping"]
        assert isinstance(found, dict)
        return found


@pytest.fixture
def make_mixed(artemis: Path, tmp_path: Path) -> Iterator[Callable[..., Mixed]]:
    """Makes a mixed cluster, and ends it after the test."""
    made: list[Mixed] = []

    def make(ours: str, theirs: str, inner: str = "") -> Mixed:
        made.append(Mixed(artemis, tmp_path, ours, theirs, inner))
        return made[-1].start()

    yield make
    for each in made:
        each.end()


@pytest.mark.feature("message groups between members")
@pytest.mark.parametrize(("ours", "theirs"), [("LOCAL", "REMOTE"), ("REMOTE", "LOCAL")])
def test_a_group_stays_with_one_consumer(make_mixed: Callable[..., Mixed], ours: str, theirs: str) -> None:
    mixed = make_mixed(ours, theirs)
    mixed.send("first")
    places = mixed.places("first")
    assert set(places.values()) == {0, 1}, "both members have groups"
    mixed.send("second")
    assert mixed.places("second") == places
    assert mixed.grouping()["groups"] == len(GROUPS)
    assert mixed.grouping()["ungrouped"] == 0


@pytest.mark.feature("message groups between members")
@pytest.mark.parametrize(("ours", "theirs"), [("LOCAL", "REMOTE"), ("REMOTE", "LOCAL")])
def test_bindings_outlast_a_kill_of_the_broker_that_decides(
    make_mixed: Callable[..., Mixed], ours: str, theirs: str
) -> None:
    mixed = make_mixed(ours, theirs)
    mixed.send("first")
    places = mixed.places("first")
    mixed.disconnect()
    decides = mixed.ours if ours == "LOCAL" else mixed.theirs
    decides.kill()
    decides.start()
    decides.wait_ready("active")
    mixed.connect()
    mixed.send("second")
    assert mixed.places("second") == places


@pytest.mark.feature("message groups between members")
@pytest.mark.parametrize(("ours", "theirs"), [("LOCAL", "REMOTE"), ("REMOTE", "LOCAL")])
def test_an_idle_group_is_free_at_both(make_mixed: Callable[..., Mixed], ours: str, theirs: str) -> None:
    mixed = make_mixed(ours, theirs, "<group-timeout>5000</group-timeout><reaper-period>300</reaper-period>")
    mixed.send("first")
    mixed.places("first")
    wait_until(lambda: mixed.grouping()["groups"] == 0, "the groups are not free", mixed.ours)
    assert mixed.grouping()["freed"] >= len(GROUPS)
    for number in range(3):
        # in use again, and asked for again
        mixed.send(f"again {number}")
    assert mixed.grouping()["groups"] == len(GROUPS)
    received = 0
    for consumer in mixed.consumers:
        while consumer.receive(1.5) is not None:
            received += 1
    assert received == 240
