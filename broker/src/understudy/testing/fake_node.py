"""A ``NodeView`` whose every answer a test sets: management is tested without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ManagementError, NotActive
from understudy.ha.activation import ActivationFacts
from understudy.ha.replication.promotion import Promotion
from understudy.management.cluster_facts import (
    BridgeFacts,
    BroadcastFacts,
    ClusterConnectionFacts,
    ClusterFacts,
    DiscoveryFacts,
    EntryFacts,
    GroupingFacts,
    LinkFacts,
    MemberFacts,
    RedistributionFacts,
    RemoteQueueFacts,
    UnreachedFacts,
)
from understudy.management.controls import (
    AcceptorFacts,
    EarlierData,
    FollowingFacts,
    InvocationRequest,
    KernelFacts,
    PeerFacts,
    QueueFacts,
    ScrubFacts,
    StoreFacts,
)

_KERNEL = KernelFacts("native", "understudy_kernel 0.0.0")
_PEER = PeerFacts("backup", "10.0.0.2:61616")
_ACCEPTORS = (AcceptorFacts("artemis", "tcp://0.0.0.0:61616"),)
_STORE = StoreFacts("/data/journal", 2, 4096, False, 99, 1024)


def fake_queue(name: str = "orders", **changes: object) -> QueueFacts:
    """A durable anycast queue with different numbers in every counter."""
    fields: dict[str, object] = {
        "name": name,
        "address": name,
        "routing_type": "ANYCAST",
        "durable": True,
        "temporary": False,
        "message_count": 7,
        "delivering_count": 2,
        "consumer_count": 1,
        "messages_added": 20,
        "messages_acknowledged": 11,
        "messages_expired": 1,
        "messages_killed": 3,
        "messages_replaced": 5,
        "paging": True,
        "memory_bytes": 512,
        "spilled_count": 4,
        "measured": True,
    }
    return QueueFacts(**(fields | changes))  # type: ignore[arg-type]


_ALL_OUTCOMES = ("added", "changed", "refreshed", "own", "unusable", "damaged", "rejected")
_CLUSTER = ClusterFacts(
    "JOINED",
    [MemberFacts("11111111-2222-3333-4444-555555555555", True, "tcp://10.0.0.1:61616", "tcp://10.0.0.2:61616", None)],
    [LinkFacts("tcp://10.0.0.3:61616", None, "WAITING", 2)],
    [
        DiscoveryFacts(
            "dg",
            "udp://231.7.7.7:9876",
            "LISTENING",
            None,
            [EntryFacts("other", ["tcp://10.0.0.3:61616"], "10.0.0.3", 150)],
            dict.fromkeys(_ALL_OUTCOMES, 1),
            0,
        )
    ],
    [BroadcastFacts("bg", "udp://231.7.7.7:9876", "BROADCASTING", ["tcp://10.0.0.1:61616"], 2_000, 7, 0, None)],
    [BridgeFacts("b", "q", None, "RUNNING", True, "tcp://10.0.0.4:61616", 5, 2, 12, 10, 1, 3, "closed")],
    [RemoteQueueFacts("q", "q", "66666666-7777-8888-9999-aaaaaaaaaaaa", 1, True, 2, None, "$.artemis.internal.sf.c.6")],
    [RedistributionFacts("q", "WATCHING", 7)],
    GroupingFacts("groups", "REMOTE", 12, 1, 15, 3, 2),
    ungrouped_pairs=["77777777-7777-8888-9999-aaaaaaaaaaaa"],
    unreached=[UnreachedFacts("66666666-7777-8888-9999-aaaaaaaaaaaa", "tcp://10.0.0.9:61616", 4, "refused")],
    connections=[
        ClusterConnectionFacts(
            "c",
            "news",
            "STRICT",
            1,
            ["66666666-7777-8888-9999-aaaaaaaaaaaa"],
            3,
            5,
            9,
            8,
            "tcp://10.0.0.1:61616",
            [MemberFacts("11111111-2222-3333-4444-555555555555", True, "tcp://10.0.0.1:61616", None, None)],
        )
    ],
)


@dataclass
class FakeNodeView:
    """An active primary of a shared-store pair, unless its fields are changed. Implements ``NodeView``."""

    name: str = "node-a"
    kernel: KernelFacts = _KERNEL
    node_id: str | None = "11111111-2222-3333-4444-555555555555"
    epoch: int | None = 3
    ha_policy: str = "shared-store"
    ha_role: str = "primary"
    state: str = "active"
    machine_state: str = "ACTIVE"
    trouble: str | None = None
    in_line: str | None = None
    peer: PeerFacts | None = _PEER
    activation: ActivationFacts | None = None
    following: FollowingFacts | None = None
    acceptors: Sequence[AcceptorFacts] = _ACCEPTORS
    store: StoreFacts | None = _STORE
    scrub: ScrubFacts | None = None
    connections: int = 5
    sessions: int = 6
    confirmations: int = 1234
    cluster: ClusterFacts = _CLUSTER
    quarantine: tuple[int, list[dict[str, object]]] = (0, [])
    queue_facts: list[QueueFacts] = field(default_factory=lambda: [fake_queue()])
    stops: list[bool] = field(default_factory=list)
    """``failover`` of every stop that was requested."""
    waiting_because: str | None = None
    promotion: Promotion | None = None
    earlier_data: EarlierData | None = None
    promoted: Promotion | BrokerError = field(default_factory=lambda: ManagementError("not one of a replicated pair"))
    """Answer to a promotion."""
    invocations: list[InvocationRequest] = field(default_factory=list)

    @property
    def without_manager(self) -> None:
        return None

    @property
    def version(self) -> str:
        """Always the same."""
        return "0.0.0"

    @property
    def uptime_ms(self) -> int:
        """Always the same."""
        return 12_500

    @property
    def pid(self) -> int:
        """Always the same."""
        return 4711

    def queues(self) -> Iterable[QueueFacts]:
        return self.queue_facts

    def queue(self, name: str) -> QueueFacts | None:
        return next((queue for queue in self.queue_facts if queue.name == name), None)

    def invoke(self, request: InvocationRequest, answer: Callable[[object, BrokerError | None], None]) -> None:
        if self.state != "active":
            raise NotActive(f"the node is {self.state}")
        self.invocations.append(request)
        if request.resource not in ("broker", *(f"queue.{queue.name}" for queue in self.queue_facts)):
            answer(None, ManagementError(f"no resource {request.resource!r}"))
        else:
            answer([request.name, *request.parameters], None)

    def request_stop(self, *, failover: bool) -> None:
        self.stops.append(failover)

    def request_activation(self) -> None:
        if self.state == "stopping":
            raise ManagementError("the node does not activate: the node is stopping")

    def request_promotion(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        answer(self.promoted)
