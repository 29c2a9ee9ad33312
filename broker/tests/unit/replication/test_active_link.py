"""The replica of an active node: accepted, copied to, in sync, slow, lost, handed over to."""

from __future__ import annotations

import pytest

from support.replica_links import Channel, ManualAuthority, ManualCopy, StepWriter, registration
from understudy.cluster.membership.passive_formats import PassiveFormats
from understudy.errors import BrokerError, DiskFull, LockLost, StoreBehind
from understudy.replication.active_link import ActiveLink, LinkOptions, LinkState
from understudy.replication.place import ReplicaPlace
from understudy.store.log.operation_context import Contract, OperationContext
from understudy.store.log.operations import Append, CloseFiles, RemoveFile, SyncFile
from understudy.store.log_format import ReadableFormat
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.shipping import Shipping, ShippingWriter
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import REPLICATION_PROTOCOL, REPLICATION_PROTOCOL_MIN, ReplicaProblem

NODE_ID = "11111111-2222-3333-4444-555555555555"


class Active:
    """An active node around its link. Implements ``LinkEvents``."""

    def __init__(self, **options: object) -> None:
        self.time = ManualTime()
        self.authority = ManualAuthority()
        self.shipping = Shipping()
        self.local = StepWriter()
        self.writer = ShippingWriter(self.local, Directory.LOG, self.shipping)
        self.context = OperationContext()
        self.copies: list[ManualCopy] = []
        self.events: list[str] = []
        self.formats = PassiveFormats()
        self.protocols: list[int] = []
        """Version of the protocol of each copy."""
        self.link = ActiveLink(
            LinkOptions(**options),  # type: ignore[arg-type]
            self.authority,
            self.shipping,
            self,
            self.time,
            self.time,
            self.formats,
        )
        self.link.open(NODE_ID, 3, self.context)
        self.confirmed: list[int] = []

    def make_copy(self, link: ActiveLink, protocol: int) -> ManualCopy:
        self.protocols.append(protocol)
        self.copies.append(ManualCopy(link))
        return self.copies[-1]

    def replica_in_sync(self, registration: packets.ReplicaRegistration) -> None:
        self.events.append("in sync")

    def replica_lost(self, registration: packets.ReplicaRegistration) -> None:
        self.events.append("lost")

    def cannot_go_on(self, error: BrokerError) -> None:
        self.events.append(f"cannot go on: {error}")

    lost: BrokerError | None = None
    """Answer to ``put_back``."""

    def put_back(self, registration: packets.ReplicaRegistration) -> BrokerError | None:
        self.events.append(f"had {registration.had_epoch}, {registration.had_sequence}")
        return self.lost

    def register(self, **options: object) -> Channel:
        channel = Channel()
        self.link.register(registration(**options), channel)  # type: ignore[arg-type]
        return channel

    def synchronise(self) -> Channel:
        """Bring a replica into sync."""
        channel = self.register()
        self.link.little_left()
        self.local.step()
        assert self.copies[-1].finishing
        self.link.copied()
        return channel

    def write(self, sequence: int) -> None:
        """Append one record, and wait for its confirmation."""
        self.context.appended = sequence
        self.context.when_durable(sequence, self.confirmed.append, sequence)
        append = Append("segment-000000000001-0000000003.log", 4096, (b"x" * 40,), 40, sequence)
        self.writer.submit(
            (append, SyncFile(append.name)), lambda error: self.context.advance(sequence) if error is None else None
        )

    def progress(self, channel: Channel, received: int, durable: int) -> None:
        self.link.received(channel, packets.ReplicationProgress(received, durable))


def answer_of(channel: Channel) -> packets.ReplicaAnswer:
    answer = channel.sent[0]
    assert isinstance(answer, packets.ReplicaAnswer)
    return answer


def test_the_answer_to_a_replica_names_node_id_and_epoch() -> None:
    answer = answer_of(Active().register())
    assert (answer.problem, answer.node_id, answer.epoch) == (ReplicaProblem.NONE, NODE_ID, 3)


def test_registrations_are_refused_with_the_reason() -> None:
    node = Active(group="fish")
    assert answer_of(node.register(group="meat")).problem == ReplicaProblem.OTHER_GROUP
    node.register(group="fish")
    assert answer_of(node.register(group="fish")).problem == ReplicaProblem.ALREADY_REPLICATING
    node = Active()
    assert answer_of(node.register(node_id="of another pair")).problem == ReplicaProblem.OTHER_NODE
    assert answer_of(node.register(node_id=NODE_ID)).problem == ReplicaProblem.NONE
    node = Active()
    node.link.leave()
    assert answer_of(node.register()).problem == ReplicaProblem.NOT_ACTIVE


def test_a_node_that_has_lost_records_of_a_replica_ends_and_touches_nothing() -> None:
    node = Active()
    node.lost = StoreBehind("an older state of its disk was put back")
    channel = node.register(had=(NODE_ID, 2, 700))
    assert answer_of(channel).problem == ReplicaProblem.PUT_BACK
    assert str(node.lost) in answer_of(channel).text
    assert node.events == ["had 2, 700", f"cannot go on: {node.lost}"]
    assert (node.copies, node.link.state) == ([], LinkState.FREE)


def test_a_node_that_has_everything_of_a_replica_takes_it() -> None:
    node = Active()
    assert answer_of(node.register(had=(NODE_ID, 2, 700))).problem == ReplicaProblem.NONE
    assert node.events == ["had 2, 700"]


def test_a_copy_of_another_store_proves_nothing() -> None:
    node = Active()
    node.lost = StoreBehind("an older state of its disk was put back")
    assert answer_of(node.register(had=("another", 2, 700))).problem == ReplicaProblem.NONE
    assert node.events == []


def test_the_last_pass_begins_once_it_is_noted_that_the_replica_may_take_over() -> None:
    node = Active()
    node.authority.holds_notes = True
    channel = node.register()
    node.link.little_left()
    node.local.step()
    assert node.authority.shared is not None
    assert not node.copies[-1].finishing
    node.authority.shared(None)
    assert node.copies[-1].finishing
    assert not channel.closed


def test_a_replica_is_dropped_if_it_cannot_be_noted_that_it_may_take_over() -> None:
    node = Active()
    node.authority.holds_notes = True
    channel = node.register()
    node.link.little_left()
    node.local.step()
    assert node.authority.shared is not None
    node.authority.shared(LockLost("the disk is full"))
    assert (channel.closed, node.copies[-1].finishing) == (True, False)


def test_nothing_waits_for_a_replica_that_is_being_copied_to() -> None:
    node = Active()
    node.register()
    node.write(1)
    node.local.step()
    assert node.confirmed == [1]


def test_a_batch_written_during_the_freeze_is_sent_and_confirmed_by_the_replica() -> None:
    node = Active()
    channel = node.register()
    node.write(1)
    node.link.little_left()
    node.write(2)
    assert len(node.local.jobs) == 2, "the batch that was under way, and the end of the jobs before the freeze"
    node.local.step()
    assert node.confirmed == [1]
    node.local.step()
    assert node.copies[0].finishing
    node.link.copied()
    assert node.events == ["in sync"]
    shipped = [packet for packet in channel.sent if isinstance(packet, packets.ReplicationOperations)]
    assert [packet.index for packet in shipped] == [1]
    node.local.step()
    assert node.confirmed == [1], "the replica has not confirmed"
    node.progress(channel, 1, 0)
    assert node.confirmed == [1], "in its memory only"
    node.progress(channel, 1, 1)
    assert node.confirmed == [1, 2]


def test_other_operations_are_sent_when_they_are_executed_here() -> None:
    node = Active()
    channel = node.synchronise()
    node.writer.submit([RemoveFile("snapshot-1")], lambda error: None)
    assert not any(isinstance(packet, packets.ReplicationOperations) for packet in channel.sent)
    node.local.step()
    assert sum(isinstance(packet, packets.ReplicationOperations) for packet in channel.sent) == 1
    node.writer.submit([RemoveFile("snapshot-2")], lambda error: None)
    node.local.step(DiskFull("no space"))
    assert sum(isinstance(packet, packets.ReplicationOperations) for packet in channel.sent) == 1


def test_operations_that_ended_half_way_cost_the_replica_its_place() -> None:
    node = Active()
    channel = node.synchronise()
    node.writer.submit([RemoveFile("a"), CloseFiles()], lambda error: None)
    node.local.step(DiskFull("no space"))
    assert channel.closed
    assert node.link.state is LinkState.LEAVING


def test_a_lost_replica_is_not_waited_for_once_the_authority_permits_it() -> None:
    node = Active()
    channel = node.synchronise()
    node.write(1)
    node.local.step()
    node.link.connection_lost(channel, "reset")
    assert node.confirmed == []
    assert answer_of(node.register()).problem == ReplicaProblem.ALREADY_REPLICATING
    assert node.authority.claimed is not None
    node.authority.claimed(None)
    assert node.confirmed == [1]
    assert node.events == ["in sync", "lost"]
    assert answer_of(node.register()).problem == ReplicaProblem.NONE


def test_a_node_that_may_not_go_on_alone_confirms_nothing() -> None:
    node = Active()
    channel = node.synchronise()
    node.write(1)
    node.local.step()
    node.link.connection_lost(channel, "reset")
    assert node.authority.claimed is not None
    node.authority.claimed(LockLost("the lock is not held"))
    assert node.confirmed == []
    assert node.events[-1] == "cannot go on: the lock is not held"


def test_a_replica_that_may_have_noted_that_it_is_in_sync_counts_as_in_sync() -> None:
    """The answer of the replica was lost. The replica may take over, so the node asks before it goes on without it."""
    node = Active()
    channel = node.register()
    node.link.little_left()
    node.local.step()
    node.write(1)
    node.link.connection_lost(channel, "reset")
    assert node.authority.calls == ["claim alone"]
    node.local.step()
    assert node.confirmed == [], "confirmations wait for the permission"
    assert node.authority.claimed is not None
    node.authority.claimed(None)
    assert node.confirmed == [1]


def test_a_node_that_loses_its_replica_in_the_freeze_and_may_not_go_on_can_close_its_store() -> None:
    """Held jobs would keep the store from closing, and the node from ending."""
    node = Active()
    channel = node.register()
    node.link.little_left()
    node.local.step()
    node.write(1)
    node.link.connection_lost(channel, "reset")
    assert node.authority.claimed is not None
    node.authority.claimed(LockLost("the lock is not held"))
    assert node.events == ["cannot go on: the lock is not held"]
    node.local.step()
    assert (len(node.local.executed), node.confirmed) == (1, [])


def test_a_copy_that_fails_before_the_end_needs_no_permission() -> None:
    node = Active()
    channel = node.register()
    node.link.little_left()
    node.link.copy_failed(DiskFull("no space there"))
    assert channel.closed
    assert node.copies[0].cancelled
    assert node.authority.calls == []
    node.local.step()
    node.write(1)
    node.local.step()
    assert node.confirmed == [1]


def test_the_freeze_ends_after_its_time_limit() -> None:
    node = Active(sync_timeout_ms=500)
    channel = node.register()
    node.link.little_left()
    node.time.advance(501)
    assert channel.closed
    assert node.link.state is LinkState.FREE


def test_a_slow_replica_is_dropped_after_the_call_timeout() -> None:
    node = Active(call_timeout_ms=1_000)
    channel = node.synchronise()
    node.time.advance(5_000)
    assert not channel.closed, "it had nothing to do"
    node.write(1)
    node.time.advance(900)
    node.progress(channel, 1, 0)
    node.time.advance(900)
    assert not channel.closed, "it made progress"
    node.time.advance(300)
    assert channel.closed
    assert node.authority.calls == ["claim alone"]


def test_a_silent_replica_is_dropped_and_waited_for_no_longer_once_the_authority_permits_it() -> None:
    node = Active(silence_ms=4_000)
    channel = node.synchronise()
    channel.time = node.time
    node.time.advance(3_900)
    assert not channel.closed
    channel.heard_ms = node.time.monotonic_ms()
    node.write(1)
    node.local.step()
    node.time.advance(3_900)
    assert not channel.closed, "it was heard meanwhile"
    node.time.advance(800)
    assert channel.closed
    assert (node.authority.calls, node.confirmed) == (["claim alone"], [])
    assert node.authority.claimed is not None
    node.authority.claimed(None)
    assert (node.confirmed, node.events) == ([1], ["in sync", "lost"])


def test_a_silent_replica_that_is_being_copied_to_is_dropped_without_a_claim() -> None:
    node = Active(silence_ms=4_000)
    channel = node.register()
    channel.time = node.time
    node.time.advance(4_600)
    assert channel.closed
    assert node.authority.calls == []
    assert node.link.state is LinkState.FREE
    assert node.time.pending() == 0


def test_time_in_which_the_active_node_was_stopped_is_no_silence_of_its_replica() -> None:
    node = Active(silence_ms=4_000)
    channel = node.synchronise()
    channel.time = node.time
    node.time.advance(1_000)
    node.time.stop_process(60_000)
    node.time.advance(3_900)
    assert not channel.closed
    node.time.advance(1_000)
    assert channel.closed, "it was not heard after that either"


def test_negative_time_limits_are_no_limits() -> None:
    node = Active(sync_timeout_ms=-1, call_timeout_ms=-1, silence_ms=-1)
    channel = node.register()
    node.link.little_left()
    node.time.advance(3_600_000)
    node.local.step()
    node.link.copied()
    node.write(1)
    node.time.advance(3_600_000)
    assert not channel.closed
    assert node.link.in_sync


def test_progress_that_cannot_be_is_an_error() -> None:
    node = Active()
    channel = node.synchronise()
    for received, durable in ((1, 0), (0, 1), (-1, -1)):
        try:
            node.progress(channel, received, durable)
        except BrokerError:
            continue
        raise AssertionError(f"progress {received}, {durable} was accepted")


def test_a_stopping_node_waits_for_its_replica_and_lets_it_take_over() -> None:
    node = Active()
    channel = node.synchronise()
    finished: list[bool] = []
    node.link.leave()
    assert packets.ReplicationStopping(False) in channel.sent
    node.write(1)
    node.local.step()
    node.link.finish(lambda: finished.append(True))
    assert not finished
    node.progress(channel, 1, 1)
    assert finished == [True]
    assert channel.sent[-1] == packets.ReplicationStopping(True)
    assert channel.closed


def test_the_wait_of_a_stopping_node_has_a_limit() -> None:
    node = Active()
    channel = node.synchronise()
    node.link.leave()
    node.write(1)
    finished: list[bool] = []
    node.link.finish(lambda: finished.append(True))
    node.time.advance(5_000)
    assert finished == [True]
    assert packets.ReplicationStopping(True) not in channel.sent
    assert node.confirmed == []


def test_no_client_is_read_while_the_replica_has_much_to_execute() -> None:
    node = Active()
    channel = node.synchronise()
    for sequence in range(1, 5):
        node.context.appended = sequence
        append = Append("segment-000000000001-0000000003.log", 4096, (bytes(5 << 20),), 5 << 20, sequence)
        node.writer.submit((append,), lambda error: None)
    assert node.link.congested
    node.progress(channel, 4, 4)
    assert not node.link.congested


def test_a_node_that_is_about_to_stop_gives_up_a_copy_and_its_freeze() -> None:
    node = Active()
    channel = node.register()
    node.link.little_left()
    node.write(1)
    node.link.leave()
    assert channel.closed
    assert node.authority.calls == []
    node.local.step()
    node.local.step()
    assert node.confirmed == [1], "the store can be closed"


def test_a_node_that_is_about_to_stop_in_the_last_pass_confirms_nothing_more() -> None:
    node = Active()
    node.register()
    node.link.little_left()
    node.local.step()
    node.write(1)
    node.link.leave()
    assert node.authority.calls == [], "the replica may be active soon"
    node.local.step()
    assert node.confirmed == []


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (REPLICATION_PROTOCOL_MIN, REPLICATION_PROTOCOL_MIN),
        (REPLICATION_PROTOCOL, REPLICATION_PROTOCOL),
        (REPLICATION_PROTOCOL + 1, REPLICATION_PROTOCOL),
    ],
)
def test_a_replica_of_another_version_is_taken_with_the_version_that_both_speak(offered: int, spoken: int) -> None:
    node = Active()
    channel = node.register(protocol=offered)
    assert packets.ReplicaAnswer(ReplicaProblem.NONE, "", spoken, NODE_ID, 3, sequence=1) in channel.sent
    assert node.protocols == [spoken]


def test_a_replica_of_a_version_that_is_too_old_is_refused_with_both_versions() -> None:
    node = Active()
    channel = node.register(protocol=0)
    text = f"replication protocol 0, this node speaks {REPLICATION_PROTOCOL_MIN} and newer"
    assert channel.sent == [packets.ReplicaAnswer(ReplicaProblem.PROTOCOL, text)]
    assert node.protocols == []


def test_a_replica_that_cannot_read_the_log_is_refused_and_one_that_follows_is_known() -> None:
    node = Active()
    node.formats.log_version = lambda: 2
    answer = answer_of(node.register(format_version=1))
    assert answer.problem == ReplicaProblem.PROTOCOL
    assert "the log has format version 2, this backup is of an earlier version" in answer.text
    assert node.formats.lowest() is None
    channel = node.register(format_version=2)
    assert node.formats.lowest() == ReadableFormat(2, "the replica b")
    node.link.connection_lost(channel, "cut")
    assert node.formats.lowest() is None


def test_receipts_are_asked_for_only_if_a_contract_is_content_with_them() -> None:
    node = Active()
    channel = node.synchronise()
    for contracts, wanted in (
        ((Contract.REPLICA_DISK, ()), False),
        ((Contract.REPLICA_DISK, (Contract.LOCAL,)), False),
        ((Contract.REPLICA_DISK, (Contract.REPLICA_MEMORY,)), True),
        ((Contract.REPLICA_MEMORY, ()), True),
    ):
        node.context.demand(*contracts)
        node.write(node.context.appended + 1)
        shipped = channel.sent[-1]
        assert isinstance(shipped, packets.ReplicationOperations)
        assert shipped.report_receipt is wanted, contracts


OTHER_ID = "99999999-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("primary", "asks", "problem"),
    [
        (True, {"wants_failback": True, "node_id": OTHER_ID}, ReplicaProblem.OTHER_NODE),
        (True, {"wants_failback": True, "node_id": NODE_ID}, ReplicaProblem.OTHER_PAIR),
        (True, {"wants_failback": True}, ReplicaProblem.OTHER_PAIR),
        (True, {}, ReplicaProblem.NONE),
        (False, {"wants_failback": True, "node_id": OTHER_ID}, ReplicaProblem.OTHER_NODE),
        (False, {"wants_failback": True, "node_id": NODE_ID}, ReplicaProblem.NONE),
        (False, {"wants_failback": True}, ReplicaProblem.NONE),
        (False, {"node_id": OTHER_ID}, ReplicaProblem.OTHER_NODE),
    ],
)
def test_a_primary_never_takes_the_store_of_another_one(
    primary: bool, asks: dict[str, object], problem: ReplicaProblem
) -> None:
    active = Active(place=ReplicaPlace(primary=primary).refusal)
    answer = active.register(**asks).sent[0]
    assert isinstance(answer, packets.ReplicaAnswer)
    assert answer.problem == problem
    assert len(active.copies) == (problem is ReplicaProblem.NONE)


def test_a_primary_of_another_pair_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    active = Active(place=ReplicaPlace(primary=True).refusal)
    for _ in range(3):
        active.register(wants_failback=True)
    assert [each.levelname for each in caplog.records if each.levelname != "INFO"] == ["WARNING"]


@pytest.mark.parametrize(
    ("asks", "accepted"), [({}, False), ({"node_id": NODE_ID}, True), ({"wants_failback": True}, True)]
)
def test_an_active_backup_keeps_its_place_for_the_nodes_of_its_pair(asks: dict[str, object], accepted: bool) -> None:
    active = Active(place=ReplicaPlace(kept=lambda: True).refusal)
    answer = active.register(**asks).sent[0]
    assert isinstance(answer, packets.ReplicaAnswer)
    assert (answer.problem == ReplicaProblem.NONE) is accepted
