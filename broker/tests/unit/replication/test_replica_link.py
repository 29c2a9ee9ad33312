"""``ReplicaLink``: time limits of its connection."""

from __future__ import annotations

from understudy.cluster.credentials import ClusterCredentials
from understudy.replication.replica_link import ReplicaLink, ReplicaOptions
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.peer import Link, PeerOptions
from understudy.wire.core.transport import TransportConfiguration


class Parts:
    """The other side of a link that never answers, and the listener."""

    peer = "192.0.2.1:61616"
    certificate_subject = None

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def dial(self, connector: TransportConfiguration, link: Link) -> None:
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

    def in_sync(self) -> None: ...

    def lost(self, reason: str) -> None: ...

    def fail_over(self) -> None: ...

    def not_found(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_silent_node_is_given_up_after_the_ttl_of_the_cluster_connection() -> None:
    parts, time = Parts(), ManualTime()
    own, other = (TransportConfiguration("c", parameters={"host": "192.0.2.1", "port": port}) for port in ("1", "2"))
    limits = PeerOptions(connection_ttl_ms=2_000, check_period_ms=500, call_timeout_ms=20_000)
    options = ReplicaOptions("backup", own, None, False, ClusterCredentials("cluster", "secret", parts), limits)
    link = ReplicaLink(options, lambda: [other], parts, lambda owner: None, parts, time, time, parts)  # type: ignore
    link.seek()
    time.advance(1_900)
    assert parts.reasons == []
    time.advance(200)
    assert len(parts.reasons) == 1
    assert "nothing received" in parts.reasons[0]
