"""The JSON of the management API over HTTP, made from a ``NodeView``.

Not here: HTTP, authentication (``runtime/http.py``), metrics (``management/doors/metrics.py``). This module
has no state: every answer is made from the present values of the view, on an active node and on a
passive one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Protocol

from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.ha.activation import ActivationFacts
from understudy.ha.policy import WithoutManager
from understudy.ha.replication.promotion import Promotion
from understudy.management.cluster_facts import ClusterFacts
from understudy.store.named_readers import LogPosition

#: Possible values of ``NodeView.state``.
STATES = ("starting", "passive", "active", "stopping", "isolated", "stopped")


@dataclass(frozen=True, slots=True)
class AcceptorCertificate:
    """Certificate of an acceptor with TLS."""

    subject: str
    sha256: str
    """Fingerprint, hexadecimal."""
    not_after_ms: int
    """End of validity, wall time."""
    days_until_expiration: int
    """Whole days; negative if the validity is over."""


@dataclass(frozen=True, slots=True)
class AcceptorFacts:
    """One acceptor, which listens while the node is active."""

    name: str
    url: str
    certificate: AcceptorCertificate | None = None
    """None: plain text."""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The implementation of the hot path in use (ADR 0034)."""

    active: str
    """``native`` or ``python``."""
    reason: str
    """Version of the native module, or why it is not used."""


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """The other server of the pair, as far as it is known."""

    role: str
    """``primary`` or ``backup``."""
    connector: str
    """``host:port`` that it announces to clients."""


@dataclass(frozen=True, slots=True)
class EarlierData:
    """The newest ``oldreplica.N``: data that another active node did not have (``store.replication.divergence``)."""

    directory: str
    epoch: int
    """Epoch of the first record that only this copy has."""
    sequence: int
    records: int
    messages: int
    """Messages added by these records."""


@dataclass(frozen=True, slots=True)
class FollowingFacts:
    """The position up to which a passive node has read the log."""

    caught_up: bool
    lag_bytes: int


@dataclass(frozen=True, slots=True)
class ReaderFacts:
    """One named reader."""

    name: str
    epoch: int
    """Epoch of the last record that the reader has committed."""
    sequence: int
    max_bytes: int
    held_bytes: int
    registered_ms: int
    committed_ms: int
    dropped: str | None
    """Why it holds nothing any more; None: it holds the log from its position on."""


@dataclass(frozen=True, slots=True)
class ReadersFacts:
    """The named readers of an active node."""

    node_id: str
    confirmed: LogPosition
    """Up to where the log may be read without the risk that a failover takes records back."""
    earliest: LogPosition
    """Position from which on no record is missing."""
    readers: Sequence[ReaderFacts]
    dropped_count: int
    """Readers dropped since the activation because they held too much."""


@dataclass(frozen=True, slots=True)
class ScrubFacts:
    """The comparison of the files of the store with their checksums."""

    running: bool
    """A pass is under way."""
    pass_bytes: int
    """Bytes read in the pass under way, or in the last one."""
    unverified: int
    """Bodies of large messages in it that no record of the log names."""
    passes: int
    """Complete passes since the node began to serve or to be in sync."""
    age_ms: int | None
    """Time since the end of the last complete pass; None: there was none."""
    damaged: int
    """Files found that did not fit their checksum."""
    repaired: int
    """Number of these files that were repaired."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The store."""

    directory: str
    segments: int
    bytes: int
    full: bool
    durable_sequence: int
    """Last record that is synced; in a follower the last record that is applied."""
    live_bytes: int | None = None
    """Bytes of records that are live: at the last snapshot, plus all younger records; None in a follower."""
    quarantined: int | None = None
    """Entries of the quarantine; None in a follower."""
    set_aside: int = 0
    """Messages and records quarantined since the activation."""
    readers: ReadersFacts | None = None
    """Named readers of the log; None in a follower."""
    waiting: int = 0
    """Damaged messages that wait for the copy of the other node."""
    repaired: int = 0
    """Files and records whose bytes were replaced by those of the other node since the activation."""

    @property
    def amplification(self) -> float | None:
        """Ratio of stored to live bytes; None if unknown."""
        return self.bytes / self.live_bytes if self.live_bytes else None


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue and its counters since the activation."""

    name: str
    address: str
    routing_type: str
    """``ANYCAST`` or ``MULTICAST``."""
    durable: bool
    temporary: bool
    message_count: int
    delivering_count: int
    consumer_count: int
    messages_added: int
    messages_acknowledged: int
    messages_expired: int
    messages_killed: int
    messages_replaced: int
    """Messages replaced by newer ones, in a last-value queue or a ring queue."""
    paging: bool
    """Whether its address holds messages whose bodies are not in memory."""
    memory_bytes: int
    """Bytes of bodies that its address has in memory."""
    spilled_count: int
    """References of the queue that are in page files."""
    measured: bool
    """Whether it has metrics of its own (``enable-metrics``)."""


LastPromotion = Promotion | None
"""The newest promotion of a node."""
Promoted = Callable[[Promotion | BrokerError], None]
"""Called once with the record of a promotion, or with the reason why there is none."""


class NodeView(Protocol):
    """Interface of a node for management. Every member returns at once, in every state of the node."""

    @property
    def name(self) -> str:
        """Element ``name`` of broker.xml."""
        ...

    @property
    def version(self) -> str:
        """Version of Understudy."""

    @property
    def kernel(self) -> KernelFacts:
        """The implementation of the hot path that this process uses."""
        ...

    @property
    def node_id(self) -> str | None:
        """Node id; None until the store has been opened."""
        ...

    @property
    def pid(self) -> int:
        """Process id."""

    @property
    def uptime_ms(self) -> int:
        """Milliseconds since the start of the process."""

    @property
    def epoch(self) -> int | None:
        """Epoch of the activation; None while not active and none was read."""
        ...

    @property
    def cluster(self) -> ClusterFacts:
        """Members, links, and groups of discovery."""
        ...

    @property
    def ha_policy(self) -> str:
        """``shared-store`` or ``primary-only``."""
        ...

    @property
    def ha_role(self) -> str:
        """``primary``, ``backup`` or ``primary-only``: how it is configured."""
        ...

    @property
    def state(self) -> str:
        """One of ``STATES``."""
        ...

    @property
    def machine_state(self) -> str:
        """State of the machine of the node (docs/machines/node.md)."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the node is not ready although its state is; None if it is ready."""
        ...

    @property
    def in_line(self) -> str | None:
        """Why a passive node that follows no log is ready; None if it is not (``ha.policy.Policy.in_line``)."""
        ...

    @property
    def peer(self) -> PeerFacts | None:
        """The other server of the pair; None if unknown."""

    @property
    def activation(self) -> ActivationFacts | None:
        """The steps of the activation; None while there is nothing to activate or undo."""
        ...

    @property
    def following(self) -> FollowingFacts | None:
        """Progress of following; None unless the node is passive and follows."""
        ...

    @property
    def acceptors(self) -> Sequence[AcceptorFacts]:
        """The configured acceptors."""

    @property
    def store(self) -> StoreFacts | None:
        """The store; None until it is opened."""

    @property
    def scrub(self) -> ScrubFacts | None:
        """Comparison of the files with their checksums; None on a node that neither serves nor is a replica in sync."""
        ...

    @property
    def quarantine(self) -> tuple[int, list[dict[str, object]]]:
        """Number of entries of the quarantine, and the ``QUARANTINE_SHOWN_MAX`` oldest of them. None on a node that is
        not active: 0 and an empty list.
        """
        ...

    @property
    def connections(self) -> int:
        """Number of client connections."""

    @property
    def sessions(self) -> int:
        """Number of client sessions."""

    @property
    def confirmations(self) -> int:
        """Durable sends, acknowledgements and commits confirmed since the process started."""
        ...

    def queues(self) -> Iterable[QueueFacts]:
        """All queues; empty on a node that is not active."""
        ...

    def queue(self, name: str) -> QueueFacts | None:
        """A queue by name; None if there is no such queue."""

    def request_stop(self, *, failover: bool) -> None:
        """Begin to stop and return at once; with ``failover`` the peer takes over."""
        ...

    @property
    def waiting_because(self) -> str | None:
        """Why a passive node does not activate while no other node is active: the data of a replica may be old, or the
        primary of a shared store was stopped cleanly. None if it does not wait.
        """
        ...

    @property
    def without_manager(self) -> WithoutManager | None:
        """Set while an active node serves on the promise of its replica, without its lock manager (ADR 0116)."""
        ...

    @property
    def earlier_data(self) -> EarlierData | None:
        """Earlier data of this node that was moved away; None if there is none, or nothing is known about it yet."""
        ...

    @property
    def promotion(self) -> LastPromotion:
        """The newest promotion of the data of this node by an administrator."""
        ...

    def request_promotion(self, answer: Promoted) -> None:
        """Let the data of a passive node count as the newest, and activate; ``answer`` is called once.

        Raises:
            ManagementError: the node is not one of a replicated pair.
        """
        ...

    def request_activation(self) -> None:
        """Let the backup of a shared store activate although its primary was stopped cleanly (ADR 0107).

        Raises:
            ManagementError: the node is not such a backup, or activates by itself.
        """
        ...

    def invoke(self, request: InvocationRequest, answer: Callable[[object, BrokerError | None], None]) -> None:
        """Call a management operation; ``answer`` is called once, with the result
        or the error, after everything it wrote is durable.

        Raises:
            NotActive: only an active node can be managed.
        """
        ...


@dataclass(frozen=True, slots=True)
class InvocationRequest:
    """An operation, or an attribute, of a managed resource (docs/management-over-messages.md)."""

    resource: str
    name: str
    is_attribute: bool
    parameters: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the node is ready."""

    ready: bool
    reason: str | None
    """Why it is not ready, or why it is although it follows no log; None if there is nothing to say."""


def readiness(view: NodeView) -> Readiness:
    """Ready means active, passive and caught up with the log it follows, or in line (docs/management-api.md).

    A backup is in line while another one holds the backup lock of the shared store, or is the replica of the active
    node: only that one follows the log, so there is nothing that it could do to become ready.
    """
    state = view.state
    if state not in ("active", "passive"):
        return Readiness(False, f"the node is {state}")
    if view.trouble is not None:
        return Readiness(False, view.trouble)
    if state == "active":
        return Readiness(True, None)
    following = view.following
    if following is None:
        in_line = view.in_line
        return Readiness(in_line is not None, in_line or "passive and not following")
    if not following.caught_up:
        return Readiness(False, f"passive with a lag of {following.lag_bytes} bytes")
    return Readiness(True, None)


def live_json() -> dict[str, object]:
    """GET /health/live."""
    return {"status": "live"}


def ready_json(view: NodeView) -> dict[str, object]:
    """GET /health/ready; the status is 200 when ``ready``, else 503."""
    found = readiness(view)
    return {"ready": found.ready, "state": view.state, "reason": found.reason}


def node_json(view: NodeView) -> dict[str, object]:
    """GET /api/v1/node."""
    peer, following, store = view.peer, view.following, view.store
    return {
        "name": view.name,
        "version": view.version,
        "kernel": {"active": view.kernel.active, "reason": view.kernel.reason},
        "node_id": view.node_id,
        "pid": view.pid,
        "uptime_ms": view.uptime_ms,
        "epoch": view.epoch,
        "ha": {
            "policy": view.ha_policy,
            "role": view.ha_role,
            "state": view.state,
            "machine_state": view.machine_state,
            "waiting_because": view.waiting_because,
            "without_lock_manager": None if view.without_manager is None else asdict(view.without_manager),
        },
        "promotion": None if view.promotion is None else asdict(view.promotion),
        "earlier_data": None if view.earlier_data is None else asdict(view.earlier_data),
        "peer": None if peer is None else {"role": peer.role, "connector": peer.connector},
        "activation": None if view.activation is None else activation_json(view.activation),
        "following": None
        if following is None
        else {"caught_up": following.caught_up, "lag_bytes": following.lag_bytes},
        "acceptors": [
            {
                "name": acceptor.name,
                "url": acceptor.url,
                "certificate": None if acceptor.certificate is None else asdict(acceptor.certificate),
            }
            for acceptor in view.acceptors
        ],
        "store": None
        if store is None
        else {
            "directory": store.directory,
            "segments": store.segments,
            "bytes": store.bytes,
            "full": store.full,
            "durable_sequence": store.durable_sequence,
            "live_bytes": store.live_bytes,
            "amplification": None if store.amplification is None else round(store.amplification, 3),
            "quarantined": store.quarantined,
            "waiting_for_other_node": store.waiting,
            "repaired": store.repaired,
        },
        "scrub": None if view.scrub is None else asdict(view.scrub),
        "connections": view.connections,
        "sessions": view.sessions,
        "queues": [queue_json(queue) for queue in sorted(view.queues(), key=lambda queue: queue.name)],
    }


def activation_json(facts: ActivationFacts) -> dict[str, object]:
    """The steps of an activation, times in milliseconds."""
    return {
        "step": facts.step,
        "undoing": facts.undoing,
        "took_ms": facts.took_ms,
        "steps": [{"name": step.name, "took_ms": step.took_ms} for step in facts.steps],
    }


def quarantine_json(view: NodeView) -> dict[str, object]:
    """GET /api/v1/quarantine."""
    count, entries = view.quarantine
    return {"count": count, "entries": entries}


def readers_json(facts: ReadersFacts | None) -> dict[str, object]:
    """GET /api/v1/readers; a node that is not active has none."""
    if facts is None:
        return {"node_id": None, "confirmed": None, "earliest": None, "readers": []}
    return {
        "node_id": facts.node_id,
        "confirmed": asdict(facts.confirmed),
        "earliest": asdict(facts.earliest),
        "readers": [asdict(reader) for reader in facts.readers],
    }


def queue_json(queue: QueueFacts) -> dict[str, object]:
    """GET /api/v1/queues/{name}, and each entry of ``queues`` of the node."""
    return {field: getattr(queue, field) for field in QueueFacts.__dataclass_fields__}


def error_json(code: str, message: str) -> dict[str, object]:
    """The body of every error response."""
    return {"error": {"code": code, "message": message}}


def parse_invocation(body: object) -> InvocationRequest:
    """Parse the body of POST /api/v1/invoke.

    Raises:
        ValueError: the body has neither form.
    """
    if isinstance(body, dict):
        resource, parameters = body.get("resource"), body.get("parameters", [])
        if set(body) == {"resource", "attribute"} and isinstance(resource, str) and isinstance(body["attribute"], str):
            return InvocationRequest(resource, body["attribute"], is_attribute=True)
        named = set(body) - {"parameters"} == {"resource", "operation"}
        if named and isinstance(resource, str) and isinstance(body["operation"], str) and isinstance(parameters, list):
            return InvocationRequest(resource, body["operation"], is_attribute=False, parameters=tuple(parameters))
    raise ValueError("the body must have resource and operation, optionally parameters; or resource and attribute")


def parse_stop(body: object) -> bool:
    """Parse the body of POST /api/v1/node/stop; returns ``failover``.

    Raises:
        ValueError: the body is not ``{"failover": true|false}``.
    """
    if not isinstance(body, dict) or set(body) - {"failover"} or type(body.get("failover", False)) is not bool:
        raise ValueError('the body must be {"failover": true} or {"failover": false}')
    return bool(body.get("failover", False))


def parse_promotion(body: object) -> None:
    """Check the body of POST /api/v1/node/promote.

    Raises:
        ValueError: the body is not ``{"accept_data_loss": true}``.
    """
    if not isinstance(body, dict) or set(body) != {"accept_data_loss"} or body["accept_data_loss"] is not True:
        raise ValueError('the body must be {"accept_data_loss": true}')
