"""The search for a target and the transfer, with the sessions at other nodes played by the test (ADR 0070)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from support.routing import World, text
from understudy.cluster.membership.topology import Member
from understudy.cluster.scale_down import transfer as module
from understudy.cluster.scale_down.messages import MovingMessages
from understudy.cluster.scale_down.transfer import (
    SEARCH_MS,
    SEARCH_ONLY_MS,
    SILENCE_MS,
    Stage,
    State,
    Transfer,
    TransferSettings,
)
from understudy.cluster.scale_down.work import Ask, Pause, Steps
from understudy.config.bridge import BridgeConfiguration
from understudy.errors import AddressFull, BrokerError, IllegalState, RemoteProtocolError
from understudy.message import Message
from understudy.routing.queues.queue import Queue
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

OWN = "00000000-0000-0000-0000-000000000000"


def connector(name: str) -> TransportConfiguration:
    return TransportConfiguration.from_url(f"tcp://{name}:61616")


class Session:
    """A session at another node, as the transfer uses it."""

    def __init__(self, owner: Any, target: TransportConfiguration, xa: bool, node_id: str) -> None:
        self.owner, self.target, self.xa, self.node_id = owner, target, xa, node_id
        self.ready = self.writable = True
        self.closed = False
        self.sent: list[Message] = []
        self.asked: list[tuple[packets.Packet, Callable[[packets.Packet], None]]] = []
        self.received: Callable[[Message], None] | None = None
        self.refused: Callable[[int, BrokerError], bool] | None = None
        self.full_address = ""

    def refuse(self, correlation_id: int, error: BrokerError) -> None:
        """Refuse a message: the session ends if the owner cannot go on."""
        assert self.refused is not None
        if not self.refused(correlation_id, error):
            self.owner.target_lost(str(error))

    def send(self, message: Message) -> int:
        self.sent.append(message)
        return len(self.sent)

    def request(self, packet: packets.Packet, expected: object, answer: Any, *, of_cluster: bool = False) -> None:
        self.asked.append((packet, answer))

    def close(self) -> None:
        self.closed = True


class Moving:
    """A node with a queue, and the other nodes that it knows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str, only: str | None = None, group: str | None = None):
        self.world = World()
        self.waits = False
        self.queue = self.world.queue("q")
        self.sessions: list[Session] = []
        self.ended: list[str] = []
        self.moving = MovingMessages(self.world.office, self.world.clock, OWN, -1)
        self.known = [connector(name) for name in names]

        def session(
            owner: Any, target: TransportConfiguration, bridge: object, access: object, *, xa: bool, node_id: str
        ) -> Session:
            self.sessions.append(Session(owner, target, xa, node_id))
            return self.sessions[-1]

        monkeypatch.setattr(module, "TargetSession", session)
        access: Any = SimpleNamespace(clock=self.world.clock, timers=self.world.clock)
        settings = TransferSettings(OWN, group, only, BridgeConfiguration("scale-down", ""))
        self.transfer = Transfer(settings, access, lambda: self.known, self.moving, lambda: self.waits)

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    def search(self) -> None:
        self.transfer.search(lambda: self.ended.append("search"))

    def answer(self, node_id: str, group: str | None = None, backup: str | None = None) -> None:
        """The node that was dialled last says which one it is."""
        other = None if backup is None else connector(backup)
        self.session.owner.target_member(Member(node_id, 1, self.session.target, other, None, group))

    def chosen(self) -> Moving:
        self.search()
        self.answer("target", backup="standby")
        return self

    def move(self, *stages: Stage) -> None:
        self.transfer.move(stages, lambda: self.ended.append("move"))

    def send(self, *bodies: str) -> None:
        session = self.world.session()
        for body in bodies:
            session.sends.send(text(body))
        self.world.turn()

    def take(self, target: Any) -> Steps[None]:
        """Send the messages of the queue as they are."""
        while (level := self.queue.pending.first_level()) is not None:
            reference = level.pop()
            assert reference is not None
            yield from self.moving.send(target, self.queue.read(reference), reference, ((self.queue, reference),))
        yield Pause.CONFIRMED

    def advance(self, by_ms: int) -> None:
        for _ in range(0, by_ms, 500):
            self.world.clock.advance(500)


def test_nodes_are_tried_in_turn_until_one_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a", "b", "c")
    node.search()
    node.session.owner.target_lost("refused")
    node.world.clock.advance(0)
    assert (node.session.target.host, node.sessions[0].closed) == ("b", True)
    node.answer(OWN)
    node.world.clock.advance(0)
    assert node.session.target.host == "c"
    node.answer("target")
    assert node.transfer.state is State.CHOSEN
    assert node.transfer.target is not None
    assert node.transfer.target.node_id == "target"
    assert node.ended == ["search"]


def test_a_node_of_another_group_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a", "b", group="blue")
    node.search()
    node.answer("first", group="red")
    node.world.clock.advance(0)
    node.answer("second", group="blue")
    assert node.transfer.target is not None
    assert node.transfer.target.node_id == "second"


def test_a_node_that_says_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a", "b")
    node.search()
    node.advance(5_500)
    assert node.session.target.host == "b"
    assert "which node it is" in node.transfer.error


@pytest.mark.parametrize(("only", "limit_ms"), [(None, SEARCH_MS), ("target", SEARCH_ONLY_MS)])
def test_the_search_ends_without_a_target(monkeypatch: pytest.MonkeyPatch, only: str | None, limit_ms: int) -> None:
    node = Moving(monkeypatch, only=only)
    node.search()
    node.advance(limit_ms - 1_000)
    assert node.ended == []
    node.advance(2_000)
    assert node.ended == ["search"]
    assert node.transfer.target is None
    assert node.transfer.error == "no other member of the cluster is known"


def test_an_interrupted_scale_down_goes_on_at_the_same_node_only(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a", only="target")
    node.search()
    node.answer("another")
    assert node.transfer.state is State.SEARCHING
    node.advance(500)
    node.answer("target")
    assert node.transfer.state is State.CHOSEN


def test_messages_are_removed_when_they_are_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one", "two")
    node.move(Stage(False, node.take))
    assert [each.body for each in node.session.sent] == [b"one", b"two"]
    assert node.queue.message_count == 2
    node.transfer.target_confirmed(1, 1)
    node.world.clock.advance(0)
    assert node.queue.message_count == 1
    assert node.ended == ["search"]
    node.transfer.target_confirmed(2, 2)
    assert node.queue.message_count == 0
    assert node.ended == ["search", "move"]
    assert node.transfer.complete
    assert node.session.closed


def test_after_a_lost_connection_the_rest_goes_to_the_backup_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one", "two", "three")
    node.move(Stage(False, node.take))
    node.transfer.target_confirmed(1, 1)
    node.transfer.target_lost("it was killed")
    assert node.transfer.state is State.RECONNECTING
    assert node.queue.message_count == 2
    node.world.clock.advance(0)
    assert node.session.target.host == "standby"
    assert [each.node_id for each in node.sessions] == ["", "target"], "the only right one, once it is chosen"
    node.transfer.target_ready()
    assert [each.body for each in node.session.sent] == [b"two", b"three"]
    for number in (1, 2):
        node.transfer.target_confirmed(number, number)
    assert node.transfer.complete


def test_it_gives_up_when_the_target_stays_away_and_the_messages_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one", "two")
    node.move(Stage(False, node.take))
    node.transfer.target_lost("it was killed")
    for _ in range(SILENCE_MS // 500 + 2):
        node.world.clock.advance(500)
        if node.transfer.state is State.RECONNECTING and not node.session.closed:
            node.transfer.target_lost("refused")
    assert node.ended == ["search", "move"]
    assert not node.transfer.complete
    assert [reference.message_id for _, reference in node.queue.browse((9, -1))] == sorted(
        reference.message_id for _, reference in node.queue.browse((9, -1))
    )
    assert node.queue.message_count == 2


def test_it_gives_up_when_the_target_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one")
    node.move(Stage(False, node.take))
    node.advance(SILENCE_MS + 1_000)
    assert node.ended == ["search", "move"]
    assert "has taken nothing" in node.transfer.error
    assert node.queue.message_count == 1


def test_a_target_whose_answer_decides_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only it knows whether it has stored the record that everything has moved."""
    node = Moving(monkeypatch, "a").chosen()
    node.send("one")
    node.move(Stage(False, node.take))
    node.waits = True
    node.advance(SILENCE_MS + 1_000)
    for _ in range(2 * SILENCE_MS // 500):
        node.world.clock.advance(500)
        if node.transfer.state is State.RECONNECTING and not node.session.closed:
            node.transfer.target_lost("refused")
    assert (node.ended, node.transfer.state) == (["search"], State.RECONNECTING)
    node.world.clock.advance(500)
    node.transfer.target_ready()
    node.transfer.target_confirmed(1, 1)
    assert node.transfer.complete


def test_a_target_that_fails_each_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target answers requests before it fails, so there is no silence: only moved messages are progress."""

    def work(target: Any) -> Steps[None]:
        yield Ask(packets.BindingQuery("a"), (packets.BindingQueryResponse,))
        raise RemoteProtocolError("refused")

    node = Moving(monkeypatch, "a").chosen()
    node.move(Stage(False, work))
    for _ in range(SILENCE_MS // 500 + 4):
        node.world.clock.advance(500)
        if node.transfer.state is State.RECONNECTING and not node.session.closed:
            node.transfer.target_ready()
        for _, answer in node.session.asked:
            answer(packets.BindingQueryResponse(True))
        node.session.asked.clear()
    assert node.ended == ["search", "move"]
    assert not node.transfer.complete


def test_each_stage_has_a_connection_of_its_kind_and_goes_on_with_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def first(target: Any) -> Steps[None]:
        seen.append((yield Ask(packets.BindingQuery("a"), (packets.BindingQueryResponse,))))
        yield Pause.TURN
        seen.append((yield Pause.RECEIVED))

    def second(target: Any) -> Steps[None]:
        seen.append(target.xa)
        yield Pause.TURN

    node = Moving(monkeypatch, "a").chosen()
    node.move(Stage(False, first), Stage(True, second))
    response, reply = packets.BindingQueryResponse(True), Message(b"reply")
    assert node.session.received is not None
    node.session.received(reply)
    ((_, answer),) = node.session.asked
    answer(response)
    node.world.clock.advance(0)
    assert node.transfer.state is State.RECONNECTING
    assert node.session.xa
    node.transfer.target_ready()
    node.world.clock.advance(0)
    assert seen == [response, reply, True]
    assert node.transfer.complete


def test_close_returns_messages_without_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one")
    node.move(Stage(False, node.take))
    node.transfer.close()
    assert node.ended == ["search"]
    assert len(list(node.queue.browse((9, -1)))) == 1


# --- refused messages ------------------------------------------------------------------------------


def bodies(node: Moving) -> list[bytes]:
    """Bodies of the messages that are still here, in their order."""
    return [node.queue.read(reference).body for _, reference in node.queue.browse((9, -1))]


def test_a_refused_message_stays_and_the_others_move(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one", "two", "three")
    node.move(Stage(False, node.take))
    node.transfer.target_confirmed(1, 1)
    node.session.refuse(2, IllegalState("too many properties"))
    assert node.transfer.state is State.MOVING
    node.transfer.target_confirmed(3, 3)
    assert node.transfer.complete, "every part was carried out"
    assert len(node.sessions) == 1, "the connection goes on"
    assert bodies(node) == [b"two"]
    assert node.moving.refused == 1
    assert node.moving.refusal == "too many properties"
    assert not node.moving.in_doubt, "the target does not have it"


def test_the_last_message_may_be_the_refused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one", "two")
    node.move(Stage(False, node.take))
    node.transfer.target_confirmed(1, 1)
    node.session.refuse(2, IllegalState("refused"))
    assert node.transfer.complete
    assert bodies(node) == [b"two"]


def test_a_refused_message_that_is_taken_on_the_next_connection_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    node.send("one", "two")
    node.move(Stage(False, node.take))
    node.session.refuse(1, IllegalState("refused"))
    node.transfer.target_lost("it was killed")
    assert bodies(node) == [b"one", b"two"], "both return to their places"
    node.world.clock.advance(0)
    node.transfer.target_ready()
    node.transfer.target_confirmed(1, 2)
    assert node.transfer.complete
    assert node.moving.refused == 0
    assert bodies(node) == []


def test_a_message_of_a_prepared_transaction_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction would be prepared without it."""
    node = Moving(monkeypatch, "a").chosen()
    node.send("one")

    def branch(target: Any) -> Steps[None]:
        level = node.queue.pending.first_level()
        assert level is not None
        reference = level.pop()
        assert reference is not None
        yield from node.moving.send(target, node.queue.read(reference), reference, ())
        yield Pause.CONFIRMED

    node.move(Stage(True, branch))
    node.transfer.target_ready()
    node.session.refuse(1, IllegalState("refused"))
    assert node.transfer.state is State.RECONNECTING


def full(node: Moving, correlation_id: int = 1) -> None:
    """The target refuses a message each time because its address is full, until the transfer goes on or ends."""
    for _ in range(SILENCE_MS // 500 + 4):
        if node.transfer.state is State.RECONNECTING and not node.session.closed:
            node.transfer.target_ready()
        if node.transfer.state is State.MOVING and [each.address for each in node.session.sent] != ["z"]:
            node.session.refuse(correlation_id, AddressFull("full"))
        node.world.clock.advance(500)


def test_an_address_that_stays_full_is_left_out_and_the_others_move(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    other = node.world.queue("z")
    node.send("one")
    node.world.session().sends.send(text("other", address="z"))
    node.world.turn()
    remote: Any = SimpleNamespace(id_of=_same_id)
    node.move(Stage(False, lambda target: node.moving.move_queues(target, remote)))
    full(node)
    assert node.transfer.state is State.MOVING, "it has not given up"
    assert [each.address for each in node.session.sent] == ["z"]
    node.transfer.target_confirmed(1, 1)
    assert node.transfer.complete
    assert bodies(node) == [b"one"]
    assert other.message_count == 0


def test_an_address_that_gets_no_credit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Moving(monkeypatch, "a").chosen()
    other = node.world.queue("z")
    node.send("one")
    node.world.session().sends.send(text("other", address="z"))
    node.world.turn()
    remote: Any = SimpleNamespace(id_of=_same_id)
    node.move(Stage(False, lambda target: node.moving.move_queues(target, remote)))
    node.session.full_address = "q"
    node.advance(SILENCE_MS + 1_000)
    assert node.transfer.state is State.RECONNECTING
    node.transfer.target_ready()
    assert [each.address for each in node.session.sent] == ["z"]
    node.transfer.target_confirmed(1, 1)
    assert node.transfer.complete
    assert bodies(node) == [b"one"]
    assert other.message_count == 0


def _same_id(queue: Queue) -> Steps[int | None]:
    return queue.queue_id
    yield
