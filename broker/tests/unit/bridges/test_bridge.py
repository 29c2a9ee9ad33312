"""A core bridge between two post offices, with the connection and the time moved by hand."""

from __future__ import annotations

import uuid

import pytest

from support.bridged import NODE_ID, Bridged, Entropy, connector
from support.routing import FakeSecurity, callback_of, text
from understudy.cluster.bridges.bridge import FAILURE_REPEATED_MS, State
from understudy.cluster.bridges.conversion import Conversion
from understudy.cluster.bridges.hops import CountedHops
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.errors import IllegalState
from understudy.limits import BRIDGE_HOPS_MAX
from understudy.management.operations import queue_messages
from understudy.message import BRIDGE_DUPLICATE_ID, DUPLICATE_ID, GROUP_ID, HOPS, ROUTING_TYPE, Message
from understudy.properties import BYTE, Properties
from understudy.routing.queues.waiting_messages import act_on
from understudy.session.session import ServerSession
from understudy.terms import Permission
from understudy.wire.core import packets

ONCE = BridgeConnection(initial_connect_attempts=0, reconnect_attempts=0)


def send(bridged: Bridged, *bodies: str, **options: object) -> None:
    for body in bodies:
        bridged.producer.sends.send(text(body, **options))


def test_messages_go_to_the_target_in_order_and_leave_the_queue_when_it_has_them() -> None:
    bridged = Bridged()
    bridged.connect()
    send(bridged, *"abc")
    bridged.ship()
    assert bridged.waiting() == 3, "not confirmed yet"
    bridged.settle()
    assert bridged.target.bodies() == [b"a", b"b", b"c"]
    assert bridged.waiting() == 0
    assert (bridged.bridge.counts.forwarded, bridged.bridge.counts.acknowledged) == (3, 3)
    assert bridged.bridge.state is State.RUNNING
    assert bridged.listener.calls == ["started b"]


def test_a_message_carries_the_duplicate_id_of_artemis_and_keeps_its_fields() -> None:
    bridged = Bridged()
    bridged.connect()
    properties = {GROUP_ID: "g", DUPLICATE_ID: "own", "n": 7}
    bridged.producer.sends.send(text("a", priority=8, expiration=1 << 50, timestamp=5, properties=properties))
    bridged.settle()
    (sent,) = bridged.target.sent
    message_id = int.from_bytes(sent.properties[BRIDGE_DUPLICATE_ID][16:], "big")
    assert sent.properties[BRIDGE_DUPLICATE_ID][:16] == uuid.UUID(NODE_ID).bytes
    assert message_id > 0
    assert (sent.address, sent.priority, sent.expiration, sent.timestamp) == ("t", 8, 1 << 50, 5)
    assert {name: sent.properties[name] for name in properties} == properties
    queue = bridged.target.world.office.directory.queues["t"]
    ((_, reference),) = queue.browse((9, -1))
    kept = queue.read_waiting(reference)
    assert kept is not None
    assert BRIDGE_DUPLICATE_ID not in kept.properties


@pytest.mark.parameter("cluster-connection/use-duplicate-detection")
def test_messages_that_the_target_has_are_dropped_when_they_are_sent_again() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    send(bridged, *"abc")
    bridged.ship()
    wire.cut()
    assert bridged.bridge.state is State.WAITING
    bridged.source.clock.advance(2_000)
    bridged.wire.open()
    bridged.settle()
    assert len(bridged.target.sent) == 6
    assert bridged.target.bodies() == [b"a", b"b", b"c"]
    assert bridged.waiting() == 0


def test_the_id_of_the_producer_does_not_count_at_the_target() -> None:
    bridged = Bridged()
    bridged.target.session.sends.send(text("first", address="t", properties={DUPLICATE_ID: "x"}))
    bridged.connect()
    bridged.producer.sends.send(text("second", properties={DUPLICATE_ID: "x"}))
    bridged.settle()
    assert bridged.target.bodies() == [b"first", b"second"]


@pytest.mark.parameter("cluster-connection/use-duplicate-detection")
def test_without_duplicate_detection_one_message_at_a_time_is_under_way() -> None:
    bridged = Bridged(use_duplicate_detection=False)
    bridged.connect()
    send(bridged, *"ab")
    bridged.ship()
    assert [message.body for message in bridged.target.sent] == [b"a"]
    bridged.settle()
    assert bridged.target.bodies() == [b"a", b"b"]
    assert all(BRIDGE_DUPLICATE_ID not in message.properties for message in bridged.target.sent)


@pytest.mark.parametrize(
    ("routing_type", "given", "expected"),
    [("PASS", 1, 1), ("PASS", None, None), ("STRIP", 1, None), ("ANYCAST", None, 1), ("MULTICAST", 1, 0)],
)
def test_the_routing_type_is_kept_removed_or_set(routing_type: str, given: int | None, expected: int | None) -> None:
    bridged = Bridged(routing_type=routing_type)
    bridged.connect()
    properties = Properties()
    if given is not None:
        properties.set_typed(ROUTING_TYPE, BYTE, given)
    bridged.producer.sends.send(text("a", properties=properties))
    bridged.ship()
    assert bridged.target.sent[0].properties.get(ROUTING_TYPE) == expected


def test_a_filter_chooses_messages_and_a_transformer_adds_properties() -> None:
    bridged = Bridged(filter="n = 1", transformer_properties={"added": "here"})
    bridged.connect()
    bridged.producer.sends.send(text("no", properties={"n": 2}))
    bridged.producer.sends.send(text("yes", properties={"n": 1}))
    bridged.settle()
    assert bridged.target.bodies() == [b"yes"]
    assert bridged.target.sent[0].properties["added"] == "here"
    assert bridged.waiting() == 1


def test_the_address_of_a_message_is_kept_without_forwarding_address() -> None:
    bridged = Bridged(forwarding_address=None)
    bridged.target.world.queue("q")
    wire = bridged.connect()
    send(bridged, "a")
    bridged.settle()
    assert not wire.of(packets.BindingQuery)
    assert bridged.target.world.office.directory.queues["q"].message_count == 1


@pytest.mark.parameter("cluster-connection/confirmation-window-size")
def test_unconfirmed_bytes_are_limited_by_the_window() -> None:
    bridged = Bridged(confirmation_window_size_bytes=10_000)
    bridged.connect()
    send(bridged, *["x" * 1_000] * 100)
    bridged.ship()
    assert 5 <= len(bridged.target.sent) <= 11
    bridged.settle()
    assert len(bridged.target.bodies()) == 100


@pytest.mark.parameter("cluster-connection/producer-window-size")
def test_messages_wait_for_credit_of_the_target() -> None:
    bridged = Bridged(producer_window_size_bytes=4_000)
    bridged.target.grants_credit = False
    wire = bridged.connect()
    send(bridged, "a", "b")
    bridged.settle()
    assert bridged.target.sent == []
    (request,) = wire.of(packets.ProducerRequestCredits)
    assert (request.address, request.credits) == ("t", 4_000)
    bridged.target.grants_credit = True
    wire.answer(packets.ProducerCredits(4_000, "t"), 10)
    wire.give()
    bridged.settle()
    assert bridged.target.bodies() == [b"a", b"b"]


class NamesQueues(Conversion):
    """Refuses messages that name no queues, as that of a store-and-forward queue."""

    def __init__(self, configuration: BridgeConfiguration, node_id: str) -> None:
        super().__init__(configuration, node_id)
        self.form = None

    def convert(self, message: Message, message_id: int, deliveries: int = 0) -> Message:
        """See ``Conversion``."""
        if message.body.startswith(b"bad"):
            raise IllegalState(f"message {message_id} names no queues")
        return super().convert(message, message_id, deliveries)


@pytest.mark.parametrize("detects", [True, False], ids=["window", "one at a time"])
def test_a_message_that_cannot_be_sent_goes_to_the_dead_letter_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, detects: bool
) -> None:
    """A message that cannot be sent would keep all later messages from the target."""
    monkeypatch.setattr("support.bridged.Conversion", NamesQueues)
    bridged = Bridged(
        settings={"q": {"dead_letter_address": "DLQ"}},
        use_duplicate_detection=detects,
        confirmation_window_size_bytes=2_000,
    )
    bridged.source.queue("DLQ")
    wire = bridged.connect()
    bodies = [name for number in range(20) for name in (f"bad {number}", f"good {number}")]
    send(bridged, *bodies)
    for _ in bodies:
        # each may end a turn without a packet
        bridged.settle()
    assert not wire.closed
    assert bridged.target.bodies() == [f"good {number}".encode() for number in range(20)]
    assert bridged.waiting() == 0
    assert bridged.source.office.directory.queues["DLQ"].message_count == 20
    assert caplog.messages.count("a message cannot be forwarded") == 20


@pytest.mark.parameter("cluster-connection/min-large-message-size")
def test_large_messages_go_in_pieces() -> None:
    bridged = Bridged(min_large_message_size_bytes=2_000)
    wire = bridged.connect()
    send(bridged, "x" * 9_000, "y")
    bridged.settle()
    assert len(wire.of(packets.SessionSendContinuation)) == 5
    assert [len(body) for body in bridged.target.bodies()] == [9_000, 1]
    assert bridged.waiting() == 0


def test_a_queue_that_does_not_exist_is_waited_for() -> None:
    bridged = Bridged(queue=False)
    bridged.bridge.start()
    assert bridged.bridge.state is State.WAITING_FOR_QUEUE
    assert not bridged.target.wires
    queue = bridged.source.queue("q")
    bridged.bridge.queue_added(queue)
    assert bridged.bridge.state is State.CONNECTING


def test_a_deleted_queue_ends_the_connection() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    queue = bridged.source.office.directory.queues["q"]
    bridged.source.office.directory.delete_queue("q", disconnect=True)
    bridged.bridge.queue_removed(queue)
    bridged.source.clock.advance(1)
    assert wire.closed
    assert bridged.bridge.state is State.WAITING_FOR_QUEUE


def test_all_connectors_are_tried_before_the_wait_grows() -> None:
    waits = BridgeConnection(retry_interval_ms=100, retry_interval_multiplier=2.0, max_retry_interval_ms=300)
    bridged = Bridged(ports=(1, 2), connection=waits)
    bridged.bridge.start()
    seen = []
    for _ in range(8):
        at = bridged.source.clock.now_ms
        bridged.wire.cut()
        while bridged.bridge.state is State.WAITING:
            bridged.source.clock.advance(1)
        seen.append((bridged.wire.target.port, bridged.source.clock.now_ms - at))
    assert seen == [(2, 1), (1, 100), (2, 1), (1, 200), (2, 1), (1, 300), (2, 1), (1, 300)]


def test_it_gives_up_after_the_attempts_and_can_be_started_again() -> None:
    bridged = Bridged(connection=ONCE)
    bridged.bridge.start()
    bridged.wire.cut()
    assert bridged.bridge.state is State.FAILED
    assert "cut" in bridged.bridge.last_error
    assert bridged.listener.calls == ["started b", "stopped b"]
    bridged.connect()
    assert bridged.bridge.connected


def test_an_address_that_does_not_exist_at_the_target_is_tried_again() -> None:
    bridged = Bridged()
    bridged.target.has_address = False
    bridged.connect()
    assert bridged.bridge.state is State.WAITING
    assert "no address 't'" in bridged.bridge.last_error
    bridged.target.has_address = True
    bridged.source.clock.advance(2_000)
    bridged.wire.open()
    bridged.settle()
    assert bridged.bridge.state is State.RUNNING


def test_an_older_version_is_spoken_with_an_older_target() -> None:
    bridged = Bridged()
    bridged.target.version_max = 133
    wire = bridged.connect()
    assert [packet.version for packet in wire.of(packets.CreateSession)] == [136, 135, 134, 133]
    send(bridged, "a")
    bridged.settle()
    assert bridged.target.bodies() == [b"a"]


def test_a_refused_message_stays_in_the_queue() -> None:
    bridged = Bridged()
    bridged.connect()
    bridged.target.session = bridged.target.world.session(security=FakeSecurity(Permission.SEND))
    send(bridged, "a")
    bridged.settle()
    assert bridged.waiting() == 1
    assert bridged.bridge.state is State.WAITING


def test_stopping_waits_for_confirmations_and_pausing_likewise() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    send(bridged, "a")
    bridged.ship()
    bridged.bridge.stop()
    assert bridged.bridge.state is State.STOPPING
    with pytest.raises(IllegalState, match="stopping"):
        bridged.bridge.start()
    send(bridged, "b")
    bridged.settle()
    assert bridged.bridge.state is State.STOPPED
    assert wire.closed
    assert (bridged.target.bodies(), bridged.waiting()) == ([b"a"], 1)
    bridged.connect()
    bridged.bridge.pause()
    assert bridged.bridge.state is State.PAUSED
    bridged.connect()
    assert bridged.target.bodies() == [b"a", b"b"]
    assert bridged.listener.calls == ["started b", "stopped b"] * 2 + ["started b"]


def test_stopping_ends_after_pending_ack_timeout() -> None:
    bridged = Bridged(connection=BridgeConnection(pending_ack_timeout_ms=500))
    bridged.connect()
    send(bridged, "a")
    bridged.ship()
    bridged.bridge.stop()
    bridged.source.clock.advance(500)
    assert bridged.bridge.state is State.STOPPED
    assert bridged.waiting() == 1


def test_messages_return_uncounted_when_the_node_is_deactivated() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    send(bridged, "a")
    bridged.source.sync()
    bridged.bridge.close()
    assert wire.closed
    queue = bridged.source.office.directory.queues["q"]
    ((_, reference),) = queue.browse((9, -1))
    assert reference.delivery_count == 0
    assert bridged.listener.calls == ["started b"]


def test_with_ha_the_backup_of_the_target_is_tried_before_the_connectors() -> None:
    target = BridgeTarget(ha=True)
    bridged = Bridged(ports=(1,), target=target, connection=BridgeConnection(reconnect_attempts_same_node=2))
    wire = bridged.connect()
    topology = packets.ClusterTopologyV4(False, "other", 7, connector(1), connector(2))
    assert wire.of(packets.SubscribeTopologyV2)
    wire.answer(topology, 0)
    wire.give()
    tried = []
    wire.cut()
    for _ in range(5):
        bridged.source.clock.advance(2_000)
        tried.append(bridged.wire.target.port)
        bridged.wire.cut()
    assert tried[:2] == [1, 2]
    assert tried[-1] == 1


def test_a_stranger_that_does_not_know_the_password_names_no_backup() -> None:
    """A stranger at the address of the target names a member of the cluster, which would get the messages."""
    credentials = ClusterCredentials("cluster", "a password of this test", Entropy())
    target = BridgeTarget(ha=True)
    connection = BridgeConnection(reconnect_attempts_same_node=-1)
    bridged = Bridged(ports=(1,), target=target, connection=connection, credentials=credentials)
    bridged.bridge.start()
    stranger = bridged.wire.open()
    stranger.answer(packets.ClusterTopologyV4(False, "other", 7, connector(1), connector(2)), 0)
    stranger.give()
    stranger.cut()
    bridged.source.clock.advance(10_000)
    assert bridged.wire is not stranger
    tried = []
    for _ in range(3):
        tried.append(bridged.wire.target.port)
        bridged.wire.cut()
        bridged.source.clock.advance(10_000)
    assert tried == [1, 1, 1]


def test_a_slow_socket_pauses_the_bridge() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    wire.unsent_bytes = 1 << 30
    send(bridged, *["x" * 1_000] * 500)
    bridged.settle()
    assert len(bridged.target.sent) < 300
    wire.unsent_bytes = 0
    bridged.source.clock.advance(10)
    bridged.settle()
    assert len(bridged.target.bodies()) == 500


def test_the_message_itself_is_not_changed_here() -> None:
    bridged = Bridged()
    bridged.connect()
    original: Message = text("a", properties={"n": 1})
    before = original.encoded
    bridged.producer.sends.send(original)
    bridged.ship()
    assert len(original.encoded) == len(before)
    assert BRIDGE_DUPLICATE_ID not in original.properties


def test_an_answer_for_a_message_that_was_not_sent_closes_the_connection() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    send(bridged, "a")
    bridged.ship()
    wire.answer(packets.NullResponse(9), 10)
    wire.give()
    assert wire.closed
    assert bridged.waiting() == 0, "the answer to the first message came before"
    assert "was not sent" in bridged.bridge.last_error


def test_without_a_discovered_broker_the_bridge_waits_for_one() -> None:
    bridged = Bridged(ports=(), target=BridgeTarget(discovery_group="g"))
    bridged.bridge.start()
    assert bridged.bridge.state is State.WAITING
    assert "no broker was heard in discovery group 'g'" in bridged.bridge.last_error
    bridged.ports = (1,)
    bridged.source.clock.advance(2_000)
    bridged.wire.open()
    bridged.settle()
    assert bridged.bridge.state is State.RUNNING


def test_failed_attempts_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bridged = Bridged(connection=BridgeConnection(retry_interval_ms=1_000))
    bridged.bridge.start()
    begun = bridged.source.clock.now_ms
    while bridged.source.clock.now_ms < begun + 2 * FAILURE_REPEATED_MS + 1_000:
        bridged.wire.cut()
        while bridged.bridge.state is State.WAITING:
            bridged.source.clock.advance(100)
    logged = [each for each in caplog.records if each.message == "bridge not connected"]
    assert [each.failures for each in logged] == [1, 61, 121]  # type: ignore[attr-defined]
    bridged.wire.open()
    bridged.settle()
    bridged.wire.cut()
    assert len([each for each in caplog.records if each.message == "bridge not connected"]) == 4


def test_without_user_and_credentials_a_bridge_logs_in_as_a_client_without_user() -> None:
    bridged = Bridged()
    wire = bridged.connect()
    send(bridged, "a")
    bridged.settle()
    assert [each.user for each in wire.of(packets.CreateSession)] == [None]
    assert bridged.target.bodies() == [b"a"]


@pytest.mark.parametrize("may_be_anonymous", [True, False])
def test_a_target_that_refuses_the_cluster_credentials_gets_messages_only_where_no_login_is_needed(
    may_be_anonymous: bool,
) -> None:
    credentials = ClusterCredentials("cluster", "secret", Entropy())
    bridged = Bridged(credentials=credentials, may_be_anonymous=may_be_anonymous)
    bridged.bridge.start()
    refusing = bridged.wire.open()
    bridged.settle()
    assert bridged.bridge.state is (State.CONNECTING if may_be_anonymous else State.WAITING)
    assert "refused the cluster credentials" in bridged.bridge.last_error
    assert refusing.of(packets.CreateSession) == []
    if not may_be_anonymous:
        bridged.source.clock.advance(10_000)
    again = bridged.wire.open()
    send(bridged, "a")
    bridged.settle()
    assert bool(again.of(packets.ClusterHello)) is not may_be_anonymous
    assert bridged.target.bodies() == ([b"a"] if may_be_anonymous else [])
    if may_be_anonymous:
        again.cut()
        bridged.source.clock.advance(10_000)
        bridged.wire.open().take()
        assert bridged.wire.of(packets.ClusterHello), "the proof is tried first after each loss"


def fail(session: ServerSession, times: int) -> None:
    """Have the first message of the queue ``q`` fail."""
    for _ in range(times):
        session.consumers.create(0, "q")
        session.consumers.receive_credits(0, 1)
        session.state.services.post_office.turn()
        session.acknowledge(0, callback_of(session).delivered[-1][1].message_id)
        session.rollback()
        session.consumers.close(0)


@pytest.mark.parametrize("detects", [True, False])
def test_a_dead_letter_keeps_its_origin_on_a_bridge_so_that_it_can_be_retried(detects: bool) -> None:
    bridged = Bridged(use_duplicate_detection=detects, settings={"#": {"expiry_address": "q"}})
    work = bridged.source.queue("work")
    bridged.producer.sends.send(
        text("a", "work", expiration=bridged.source.clock.now_ms + 1, properties={ROUTING_TYPE: 1})
    )
    bridged.source.clock.advance(1)
    assert work.expire_overdue(bridged.source.clock.now_ms) == 1
    ((_, reference),) = bridged.source.office.directory.queues["q"].browse((9, -1))
    exported = dict(bridged.source.office.directory.queues["q"].read(reference).properties)
    assert exported["_AMQ_ORIG_QUEUE"] == "work"
    bridged.connect()
    bridged.settle()
    target = bridged.target.world
    there = target.office.directory.queues["t"]
    ((_, reference),) = there.browse((9, -1))
    assert dict(there.read(reference).properties) == exported
    back = target.queue("work")
    list(act_on(there, lambda _: True, queue_messages.retry(target.office, there, lambda *_: None)))
    assert (there.message_count, back.message_count) == (0, 1)


@pytest.mark.parametrize("detects", [True, False])
@pytest.mark.parametrize("large", [True, False])
def test_the_delivery_count_goes_over_a_bridge_with_the_message(detects: bool, large: bool) -> None:
    bridged = Bridged(use_duplicate_detection=detects, min_large_message_size_bytes=10 if large else 100_000)
    send(bridged, "a message that failed", "one that did not")
    fail(bridged.source.session(transacted=True), 2)
    bridged.connect()
    bridged.settle()
    target = bridged.target.world
    there = target.office.directory.queues["t"]
    assert [reference.delivery_count for _, reference in there.browse((9, -1))] == [2, 0]
    properties = [dict(there.read(reference).properties) for _, reference in there.browse((9, -1))]
    assert properties == [{}, {}]
    assert [each.delivery_count for each in target.store.references[there.queue_id].values()] == [2, 0]


def test_bridges_in_a_circle_end_with_a_dead_letter_and_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    bridged = Bridged(target_settings={"t": {"dead_letter_address": "DLQ"}})
    target = bridged.target.world
    target.office.acceptance.hops = CountedHops(target.office)
    dead = target.queue("DLQ")
    bridged.connect()
    member = bridged.source.session(of_cluster=True)
    for hops in (0, BRIDGE_HOPS_MAX - 1, BRIDGE_HOPS_MAX):
        member.sends.send(text(f"{hops}", "q", properties={HOPS: hops} if hops else {}))
    bridged.settle()
    there = target.office.directory.queues["t"]
    found = [there.read(reference).properties[HOPS] for _, reference in there.browse((9, -1))]
    assert found == [1, BRIDGE_HOPS_MAX]
    assert (dead.message_count, bridged.waiting()) == (1, 0)
    assert "bridges lead in a circle" in caplog.text
    ((_, reference),) = dead.browse((9, -1))
    assert HOPS not in dead.read(reference).properties


def test_hops_of_ordinary_clients_do_not_count() -> None:
    bridged = Bridged()
    target = bridged.target.world
    target.office.acceptance.hops = CountedHops(target.office)
    target.session().sends.send(text("a", "t", properties={HOPS: BRIDGE_HOPS_MAX}))
    assert bridged.target.bodies() == [b"a"]
