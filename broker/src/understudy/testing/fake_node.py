"""A ``NodeView`` whose every answer a test sets: management is tested without a broker."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, get_args, get_origin

from msgspec.structs import replace

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ManagementError, NotActive
from understudy.management.doors.http import COLLECTIONS
from understudy.management.model.cluster import (
    Broadcast,
    Cluster,
    ClusterConnection,
    Discovery,
    Entry,
    Grouping,
    Link,
    Member,
    Redistribution,
    RemoteQueue,
    Unreached,
)
from understudy.management.model.exchanges import Exchange
from understudy.management.model.figure import Item, base_types, figures
from understudy.management.model.links import Acceptor, Bridge, Certificate
from understudy.management.model.node import (
    Durations,
    Following,
    HighAvailability,
    Kernel,
    Node,
    Peer,
    Position,
    Promotion,
    Protection,
    Quarantine,
    Reader,
    Readers,
    Scrub,
    Store,
    WithoutLockManager,
)
from understudy.management.model.queues import Message, Queue
from understudy.management.operations.invocation import Answer, InvocationRequest
from understudy.management.snapshot.rows import Rows
from understudy.management.view import Browsed, Promoted

_HA = HighAvailability(policy="shared-store", role="primary", state="active", machine_state="ACTIVE")
_KEPT = "both nodes use the same store: no confirmed durable message is lost"
_WHO = "10.0.0.2:61616 takes over when this node fails"
_NODE = Node(
    name="node-a",
    version="0.0.0",
    kernel=Kernel("native", "understudy_kernel 0.0.0"),
    node_id="11111111-2222-3333-4444-555555555555",
    pid=4711,
    uptime_ms=12_500,
    epoch=3,
    ha=_HA,
    peer=Peer("backup", "10.0.0.2:61616", "b"),
    protection=Protection(True, "10.0.0.2:61616", _WHO, _KEPT, None, f"{_WHO}; {_KEPT}"),
    acceptors=[Acceptor("artemis", "tcp://0.0.0.0:61616")],
    store=Store("/data/journal", 2, 4096, False, 99, live_bytes=1024, amplification=4.0),
    connections=5,
    sessions=6,
    confirmations=1234,
)


def fake_node(**changes: Any) -> Node:
    """An active primary of a shared-store pair; ``state`` and other fields of ``ha`` are changed like its own."""
    in_pair = {name: changes.pop(name) for name in list(changes) if name in HighAvailability.__struct_fields__}
    return replace(_NODE, ha=replace(_HA, **in_pair), **changes)


def fake_item(kind: type[Item], /, **fields: Any) -> Any:
    """An item whose other fields are empty: 0, false, an empty text or list, or null where that is possible."""
    empty = {name: _empty(figure.type) for name, figure in figures(kind).items()}
    return kind(**(empty | fields))


def _empty(annotation: object) -> object:
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    types = base_types(annotation)
    if type(None) in types:
        return None
    return next(iter(types))()


def fake_queue(name: str = "orders", **changes: Any) -> Queue:
    """A durable anycast queue with different numbers in every counter."""
    fields: dict[str, Any] = {
        "name": name,
        "address": name,
        "routing_type": "ANYCAST",
        "durable": True,
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
    queue: Queue = fake_item(Queue, **(fields | changes))
    return queue


def complete_view() -> FakeNodeView:
    """A view with a value for every field that has a metric: an active node that is also a follower, with TLS."""
    times = Durations([1.0, 10.0], [3, 2, 1], 130.0)
    certificate = Certificate("CN=a", "00", 1_700_000_000_000, 20)
    store = fake_item(
        Store,
        directory="/data/journal",
        live_bytes=1024,
        amplification=4.0,
        quarantined=0,
        kept_files=3,
        kept_bytes=2_000,
        disk_free_bytes=6_000,
        disk_size_bytes=10_000,
    )
    node = fake_node(
        backup_present=True,
        lock_proof_age_ms=40,
        switches={"take-over": 1, "failback": 0},
        without_lock_manager=WithoutLockManager("zookeeper zk:2181", 2_000, "no answer"),
        following=Following(True, 0),
        acceptors=[Acceptor("artemis", "tcp://0.0.0.0:61616", certificate, 100, 200)],
        store=store,
        scrub=fake_item(Scrub, age_ms=1_000),
        message_memory_bytes=512,
        message_memory_limit_bytes=1_024,
        dead_letters=2,
        stale_acknowledgements=7,
        login_failures={"wrong-credentials": 3, "too-many-failures": 0},
        confirmation_times=times,
        sync_times=times,
        loop_lag=times,
    )
    readers = Readers("n", Position(3, 99), Position(1, 1), [fake_item(Reader, name="audit", sequence=90)])
    exchange = fake_item(Exchange, name="orders", type="topic", messages_in=5)
    return FakeNodeView(
        node, named=readers, items={"queues": [fake_queue(oldest_age_ms=1_500)], "exchanges": [exchange]}
    )


_ALL_OUTCOMES = ("added", "changed", "refreshed", "own", "unusable", "damaged", "rejected")
_CLUSTER = Cluster(
    "JOINED",
    [Member("11111111-2222-3333-4444-555555555555", True, "tcp://10.0.0.1:61616", "tcp://10.0.0.2:61616", None)],
    [Link("tcp://10.0.0.3:61616", None, "WAITING", 2)],
    [
        Discovery(
            "dg",
            "udp://231.7.7.7:9876",
            "LISTENING",
            None,
            [Entry("other", ["tcp://10.0.0.3:61616"], "10.0.0.3", 150)],
            dict.fromkeys(_ALL_OUTCOMES, 1),
            0,
        )
    ],
    [Broadcast("bg", "udp://231.7.7.7:9876", "BROADCASTING", ["tcp://10.0.0.1:61616"], 2_000, 7, 0, None)],
    [Bridge("b", "q", None, "RUNNING", True, "tcp://10.0.0.4:61616", 5, 2, 12, 10, 1, 3, "closed")],
    [RemoteQueue("q", "q", "66666666-7777-8888-9999-aaaaaaaaaaaa", 1, True, 2, None, "$.artemis.internal.sf.c.6")],
    [Redistribution("q", "WATCHING", 7)],
    Grouping("groups", "REMOTE", 12, 1, 15, 3, 2),
    ungrouped_pairs=["77777777-7777-8888-9999-aaaaaaaaaaaa"],
    unreached=[Unreached("66666666-7777-8888-9999-aaaaaaaaaaaa", "tcp://10.0.0.9:61616", 4, "refused")],
    connections=[
        ClusterConnection(
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
            [Member("11111111-2222-3333-4444-555555555555", True, "tcp://10.0.0.1:61616", None, None)],
        )
    ],
)


@dataclass
class FakeNodeView:
    """An active primary of a shared-store pair, unless its fields are changed. Implements ``NodeView``."""

    shown: Node = field(default_factory=fake_node)
    part_of: Cluster = _CLUSTER
    named: Readers = field(default_factory=Readers)
    damaged: Quarantine = field(default_factory=lambda: Quarantine(0, []))
    items: dict[str, list[Any]] = field(default_factory=lambda: {"queues": [fake_queue()]})
    """Items by the name of the collection; acceptors and bridges are those of the node and of the cluster."""
    messages: list[Message] = field(default_factory=list)
    """Waiting messages of every queue."""
    stops: list[bool] = field(default_factory=list, init=False)
    """``failover`` of every stop that was requested."""
    promoted: Promotion | BrokerError = field(default_factory=lambda: ManagementError("not one of a replicated pair"))
    """Answer to a promotion."""
    invocations: list[InvocationRequest] = field(default_factory=list, init=False)

    def change(self, **changes: Any) -> None:
        """Change the node as ``fake_node`` does."""
        in_pair = {name: changes.pop(name) for name in list(changes) if name in HighAvailability.__struct_fields__}
        self.shown = replace(self.shown, ha=replace(self.shown.ha, **in_pair), **changes)

    def node(self) -> Node:
        return self.shown

    def cluster(self) -> Cluster:
        return self.part_of

    def readers(self) -> Readers:
        return self.named

    def quarantine(self) -> Quarantine:
        return self.damaged

    def rows(self, collection: str) -> Rows[Any]:
        own: dict[str, list[Any]] = {"acceptors": self.shown.acceptors, "bridges": self.part_of.bridges}
        return Rows.of_items(COLLECTIONS[collection].kind, self.items.get(collection) or own.get(collection) or [])

    def browse(self, queue: str, selector: str | None, skip: int, limit: int, answer: Browsed) -> None:
        self._require_active()
        answer(self.messages[skip : skip + limit])

    def invoke(self, request: InvocationRequest, answer: Answer) -> None:
        self._require_active()
        self.invocations.append(request)
        known = [f"queue.{queue.name}" for queue in self.items.get("queues", [])]
        if request.resource not in ("broker", *known):
            answer(None, ManagementError(f"no resource {request.resource!r}"))
        else:
            answer([request.name, *request.parameters], None)

    def _require_active(self) -> None:
        if self.shown.ha.state != "active":
            raise NotActive(f"the node is {self.shown.ha.state}")

    def request_stop(self, *, failover: bool) -> None:
        self.stops.append(failover)

    def request_activation(self) -> None:
        if self.shown.ha.state == "stopping":
            raise ManagementError("the node does not activate: the node is stopping")

    def request_promotion(self, answer: Promoted) -> None:
        answer(self.promoted)
