"""``ReplicaLink``: time limits of its connection, and answers to its registration."""

from __future__ import annotations

import pytest

from support.cluster_links import PASSWORD, SealableEnd
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.ports import Found
from understudy.replication.replica_link import (
    Accepted,
    ActiveNodes,
    ReplicaEvent,
    ReplicaLink,
    ReplicaOptions,
    ReplicaState,
)
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.codec import encode
from understudy.wire.core.packets_replication import (
    REPLICATION_CHANNEL,
    REPLICATION_PROTOCOL,
    REPLICATION_PROTOCOL_MIN,
    ReplicaProblem,
)
from understudy.wire.core.peer import Link, PeerOptions
from understudy.wire.core.transport import TransportConfiguration


class Parts(SealableEnd):
    """The other side of a link that never answers, and the listener."""

    peer = "192.0.2.1:61616"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
        self.link = link
        link.connected(self)

    def send(self, data: bytes) -> None: ...

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None: ...

    abort = close

    def token(self, length_bytes: int) -> bytes:
        return bytes(length_bytes)

    def soon(self, call: object) -> None: ...

    def accepted(self) -> None: ...

    def begin(self, accepted: Accepted) -> None:
        self.begun = accepted

    def in_sync(self) -> None: ...

    def lost(self, reason: str) -> None: ...

    def fail_over(self) -> None: ...

    def hear_moved(self, moved: MovedStore) -> None:
        self.moved = moved

    def not_found(self, reason: str) -> None:
        self.reasons.append(reason)


def credentials(parts: Parts) -> ClusterCredentials:
    return ClusterCredentials("cluster", PASSWORD, parts)


def test_a_silent_node_is_given_up_after_the_ttl_of_the_cluster_connection() -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    limits = PeerOptions(connection_ttl_ms=2_000, check_period_ms=500, call_timeout_ms=20_000)
    options = ReplicaOptions("backup", own, None, False, credentials(parts), limits)
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: [other], parts), parts, lambda owner: None, time, time, parts
    )  # type: ignore
    link.seek()
    time.advance(1_900)
    assert parts.reasons == []
    time.advance(200)
    assert len(parts.reasons) == 1
    assert "nothing received" in parts.reasons[0]


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [
        (REPLICATION_PROTOCOL_MIN - 1, True),
        (REPLICATION_PROTOCOL_MIN, False),
        (REPLICATION_PROTOCOL, False),
        (REPLICATION_PROTOCOL + 1, True),
    ],
)
def test_an_active_node_of_another_version(protocol: int, refused: bool) -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    limits = PeerOptions(connection_ttl_ms=60_000, check_period_ms=30_000, call_timeout_ms=20_000)
    options = ReplicaOptions("backup", own, None, False, credentials(parts), limits)
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: [other], parts), parts, lambda owner: parts, time, time, parts
    )  # type: ignore
    link.seek()
    link.fire(ReplicaEvent.PROVED, parts.link)
    answer = packets.ReplicaAnswer(ReplicaProblem.NONE, "", protocol, "node", 3)
    parts.link.receive_data(encode(answer, REPLICATION_CHANNEL))
    text = f"replication protocol {protocol}, this node speaks {REPLICATION_PROTOCOL_MIN} to {REPLICATION_PROTOCOL}"
    assert parts.reasons == ([f"192.0.2.1:2: {text}"] if refused else [])
    assert (link.state is ReplicaState.COPYING) is not refused


def test_the_newest_search_says_whether_the_place_is_taken_and_the_partner_activates() -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    limits = PeerOptions(connection_ttl_ms=60_000, check_period_ms=30_000, call_timeout_ms=20_000)
    options = ReplicaOptions("backup", own, None, False, credentials(parts), limits)
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: [other], parts), parts, lambda owner: parts, time, time, parts
    )  # type: ignore

    def search(problem: ReplicaProblem) -> Found:
        link.seek()
        link.fire(ReplicaEvent.PROVED, parts.link)
        parts.link.receive_data(encode(packets.ReplicaAnswer(problem, "text"), REPLICATION_CHANNEL))
        return link.found

    assert search(ReplicaProblem.ALREADY_REPLICATING) is Found.PLACE_TAKEN
    assert search(ReplicaProblem.NOT_ACTIVE) is Found.NOTHING
    assert search(ReplicaProblem.ACTIVATES) is Found.PARTNER_ACTIVATES
    assert search(ReplicaProblem.NONE) is Found.NOTHING, "accepted"


def test_a_refusal_because_of_versions_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    options = ReplicaOptions("b", own, None, False, credentials(parts), PeerOptions())
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: [other], parts), parts, lambda owner: parts, time, time, parts
    )  # type: ignore
    for text in ("the log has format version 2", "the log has format version 2", "replication protocol 1"):
        link.seek()
        link.fire(ReplicaEvent.PROVED, link._peer)
        parts.link.receive_data(encode(packets.ReplicaAnswer(ReplicaProblem.PROTOCOL, text), REPLICATION_CHANNEL))
    logged = [record.__dict__["error"] for record in caplog.records if "refused" in record.msg]
    assert logged == ["the log has format version 2", "replication protocol 1"]


def test_a_node_that_refuses_has_answered_and_one_that_is_not_reached_has_not() -> None:
    parts, time = Parts(), ManualTime()
    own, *others = (
        TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2", "3")
    )
    limits = PeerOptions(connection_ttl_ms=2_000, check_period_ms=500, call_timeout_ms=20_000)
    options = ReplicaOptions(
        "backup",
        own,
        None,
        False,
        ClusterCredentials("cluster", "secret", parts),
        limits,
        not_asked=lambda answered, place_taken: [each.to_url() for each in others if each not in answered],
    )
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: others, parts), parts, lambda owner: parts, time, time, parts
    )  # type: ignore
    link.seek()
    link.fire(ReplicaEvent.PROVED, parts.link)
    parts.link.receive_data(encode(packets.ReplicaAnswer(ReplicaProblem.OTHER_NODE, "no"), REPLICATION_CHANNEL))
    time.advance(3_000)
    assert link.not_asked() == [others[1].to_url()]
    assert "192.0.2.1:2: no; 192.0.2.1:3: nothing received" in parts.reasons[0]


def test_the_registration_names_the_position_and_lost_records_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    limits = PeerOptions(connection_ttl_ms=60_000, check_period_ms=30_000, call_timeout_ms=20_000)
    credentials = ClusterCredentials("cluster", "secret", parts)
    options = ReplicaOptions("backup", own, None, False, credentials, limits, had=lambda: ("node", 3, 700))
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: [other], parts), parts, lambda owner: parts, time, time, parts
    )  # type: ignore
    sent: list[bytes] = []
    parts.send = sent.append  # type: ignore[method-assign]
    link.seek()
    link.fire(ReplicaEvent.PROVED, parts.link)
    assert (700).to_bytes(8, "big") in sent[-1]
    answer = packets.ReplicaAnswer(ReplicaProblem.PUT_BACK, "its disk was put back")
    parts.link.receive_data(encode(answer, REPLICATION_CHANNEL))
    assert link.found is Found.PUT_BACK
    assert link.state is ReplicaState.IDLE
    (record,) = (each for each in caplog.records if each.levelname == "ERROR")
    assert record.error == "its disk was put back"  # type: ignore[attr-defined]


def test_the_record_of_a_node_that_has_the_messages_reaches_the_listener() -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    options = ReplicaOptions(
        "n", own, None, False, credentials(parts), PeerOptions(), node_id=lambda place_taken: "node"
    )
    link = ReplicaLink(
        options, ActiveNodes(lambda place_taken: [other], parts), parts, lambda owner: parts, time, time, parts
    )  # type: ignore
    link.seek()
    link.fire(ReplicaEvent.PROVED, parts.link)
    moved = {"moved_sequence": 4, "moved_copied_at": 3, "moved_place": "r:1", "moved_epoch": 5}
    rest = {"moved_log_sequence": 700, "moved_common": 600, "moved_last_batch": b"batch"}
    answer = packets.ReplicaAnswer(ReplicaProblem.MOVED, "moved here", **moved, **rest)  # type: ignore[arg-type]
    parts.link.receive_data(encode(answer, REPLICATION_CHANNEL))
    assert parts.moved == MovedStore("node", 4, LogEnd(5, 700, 600, b"batch"), 3, "r:1")
    assert link.found is Found.NOTHING
