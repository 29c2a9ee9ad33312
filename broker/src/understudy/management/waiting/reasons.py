"""Why messages wait: the reasons, from a view of the state of a queue and of one of its messages.

Pure functions: each reason has a code for programs, a sentence, and the values in the sentence. Several reasons may
hold at once; the first is the one to look at first.

Not here: how the view is made from a running node (``wait_view``), the operations (``wait_control``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from understudy.dataclass import dataclass
from understudy.texts import counted


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for which messages wait."""

    code: str
    text: str
    values: dict[str, object]

    def as_json(self) -> dict[str, object]:
        """The reason for clients."""
        return {"code": self.code, "text": self.text, "values": self.values}


def _reason(code: str, text: str, **values: object) -> Reason:
    return Reason(code, text, values)


#: Code to description of every reason (docs/operate/management-api.md; a test compares them).
CODES: Final[dict[str, str]] = {
    "being-delivered": "a consumer has the message and has not acknowledged it",
    "acknowledged-in-transaction": "a transaction that is open or prepared acknowledges the message",
    "sent-in-transaction": "the transaction that sends the message is open or prepared",
    "scheduled": "its producer has scheduled the delivery",
    "redelivery-delay": "a delivery failed and `redelivery-delay` is not over",
    "set-aside": "its content cannot be read; it is not delivered before an operator releases it",
    "queue-paused": "an operator has paused the queue",
    "address-paused": "an operator has paused the address",
    "bridge-not-connected": "the bridge of the queue has no connection; target, last error and next attempt",
    "bridge-stopped": "the bridge of the queue was stopped or paused, or has given up",
    "bridge-window": "the target of the bridge has not confirmed as much as may be under way",
    "bridge-credit": "the target of the bridge gives no credit: an address there is full",
    "no-consumer": "the queue has no consumer here",
    "dispatch-gate": "`consumers-before-dispatch` or the pause of a group rebalance holds deliveries back",
    "exclusive": "the queue is exclusive and its one consumer cannot take a message; the others are spares",
    "not-started": "the sessions of the consumers are not started",
    "no-credit": "no consumer has credit: the client reads no further messages",
    "socket-full": "a consumer has credit, and its connection does not take the bytes",
    "no-filter-matches": "no consumer has a filter that takes the message",
    "group-of-consumer": "the message group belongs to a consumer that cannot take a message",
    "group-of-member": "the cluster has bound the message group to a queue of another member",
    "group-stays": "consumers of other members want it, and messages of a group are not redistributed",
    "redistribution-delay": "`redistribution-delay` is not over; after it the message moves to another member",
    "redistribution-due": "the message is about to move to another member",
    "redistribution-off": "other members have consumers; `redistribution-delay` or the load balancing keeps it here",
    "redistribution-limit": "as many messages wait for the other members as may",
    "no-demand": "no member of the cluster has a consumer of the queue",
    "no-remote-match": "consumers of other members have filters that do not take the message",
    "non-destructive": "the queue is non-destructive: messages stay after their delivery",
    "last-value": "the queue keeps the newest message of each key; it stays until a newer one replaces it",
    "messages-ahead": "other messages of the queue come before it",
    "nothing": "nothing prevents its delivery; it is under way",
}


class Place(Enum):
    """Kind of place of a message in its queue."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    DELIVERING = "delivering"
    SETTLING = "acknowledged in a transaction"
    SENDING = "sent in a transaction"


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A consumer of the queue. Browsers are none."""

    name: str
    connection: str
    filter: str | None
    started: bool
    credits: int
    writable: bool
    """Whether the consumer's connection takes bytes; True if that was not asked."""
    delivering: int
    oldest_ms: int | None
    """Wall time of the consumer's oldest delivery that is not acknowledged."""
    served: bool = True
    """False: the queue is exclusive and this is a spare."""
    bridge: bool = False

    @property
    def ready(self) -> bool:
        """Whether the consumer can take a message at present."""
        return self.started and self.credits > 0 and self.writable


@dataclass(frozen=True, slots=True)
class RemoteState:
    """The queue of this name, or of this address, at another member."""

    node_id: str
    connected: bool
    consumers: int


@dataclass(frozen=True, slots=True)
class RedistributionState:
    """How messages of the queue move to other members."""

    mode: str
    """``message-load-balancing`` of the cluster connection."""
    delay_ms: int
    """Setting ``redistribution-delay`` in ms; -1: none."""
    state: str | None
    """State of the machine; None: messages of the queue are not redistributed."""
    remaining_ms: int
    full: bool = False
    """Whether as many messages wait for other members as may."""


@dataclass(frozen=True, slots=True)
class BridgeState:
    """A bridge that consumes the queue."""

    name: str
    state: str
    target: str | None
    error: str | None
    retry_in_ms: int | None
    unconfirmed: int
    stall: str | None
    """``window``, ``credit`` or None."""


@dataclass(frozen=True, slots=True)
class TransactionState:
    """A transaction with messages of the queue."""

    name: str
    prepared: bool
    since_ms: int | None
    """Wall time of the transaction's beginning; None: it was prepared before this activation."""
    sends: int
    acknowledges: int


@dataclass(frozen=True, slots=True)
class GateState:
    """The gate before deliveries of a queue that has one."""

    wanted: int
    """Setting ``consumers-before-dispatch``."""
    rebalancing: bool


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as far as it explains why messages wait."""

    name: str
    message_count: int = 0
    waiting: int = 0
    scheduled: int = 0
    delivering: int = 0
    paged: int = 0
    """Messages whose references are in page files."""
    paused: bool = False
    address_paused: bool = False
    exclusive: bool = False
    last_value_key: str | None = None
    non_destructive: bool = False
    gate: GateState | None = None
    """State of the gate that holds back deliveries; None: there is no gate."""
    consumers: Sequence[ConsumerState] = ()
    bridges: Sequence[BridgeState] = ()
    transactions: Sequence[TransactionState] = ()
    members: Sequence[RemoteState] | None = None
    """Members that the address is balanced over; None: it is not balanced."""
    redistribution: RedistributionState | None = None


@dataclass(frozen=True, slots=True)
class MessageState:
    """A message of the queue."""

    message_id: int
    place: Place
    ahead: int = 0
    """Waiting messages that come before it."""
    at_ms: int = 0
    """Wall time at which a scheduled message is due."""
    readable: bool = True
    deliveries: int = 0
    consumer: str | None = None
    connection: str | None = None
    since_ms: int | None = None
    """Beginning of the delivery, or of the transaction."""
    transaction: TransactionState | None = None
    taken_by: frozenset[str] | None = None
    """Names of the consumers whose filters take it."""
    wanted_elsewhere: bool = False
    """Whether consumers of another member have filters that match the message."""
    group: str | None = None
    group_consumer: str | None = None
    """Consumer of this queue that has the group."""
    group_member: str | None = None
    """Node id of the member to whose queue the cluster has bound the group."""


def explain_queue(queue: QueueState) -> list[Reason]:
    """Reasons that hold for every message that waits in the queue."""
    held_back = [*_paused(queue), *_bridges(queue)]
    consumers = list(_consumers(queue, None))
    return [*held_back, *consumers, *_elsewhere(queue, None), *_kinds(queue)]


def explain_message(queue: QueueState, message: MessageState, now_ms: int) -> list[Reason]:
    """Reasons for which one message is still in the queue. Never empty.

    Args:
        now_ms: Wall time.
    """
    if message.place is not Place.WAITING:
        return [_in_its_place(message, now_ms), *(_paused(queue) if message.place is Place.SCHEDULED else ())]
    consumers = list(_consumers(queue, message))
    reasons = [*_paused(queue), *_bridges(queue), *consumers]
    if consumers or not queue.consumers:
        reasons += _elsewhere(queue, message)
    reasons += _kinds(queue)
    if message.ahead:
        reasons.append(_ahead(queue, message))
    return reasons or [_reason("nothing", "nothing prevents the delivery of the message; it is under way")]


def _in_its_place(message: MessageState, now_ms: int) -> Reason:
    """The reason of a message that does not wait for a consumer."""
    if message.place is Place.SCHEDULED:
        return _scheduled(message, now_ms)
    if message.place is Place.DELIVERING:
        since = _age(message.since_ms, now_ms)
        return _reason(
            "being-delivered",
            f"consumer {message.consumer} ({message.connection}) has had the message {since}"
            f" and has not acknowledged it; delivery {message.deliveries}",
            consumer=message.consumer,
            connection=message.connection,
            since_ms=message.since_ms,
            deliveries=message.deliveries,
        )
    transaction = message.transaction
    assert transaction is not None
    kind = "prepared" if transaction.prepared else "open"
    code, does = (
        ("sent-in-transaction", "sends") if message.place is Place.SENDING
        else ("acknowledged-in-transaction", "acknowledges")
    )  # fmt: skip
    since = "" if transaction.since_ms is None else f" since {_duration(now_ms - transaction.since_ms)}"
    return _reason(
        code,
        f"transaction {transaction.name}, {kind}{since}, {does} the message",
        transaction=transaction.name,
        prepared=transaction.prepared,
        since_ms=transaction.since_ms,
    )


def _scheduled(message: MessageState, now_ms: int) -> Reason:
    if not message.readable:
        return _reason("set-aside", "the content of the message cannot be read; an operator can release or remove it")
    wait = _duration(message.at_ms - now_ms)
    if message.deliveries:
        return _reason(
            "redelivery-delay",
            f"delivery {message.deliveries} failed; the next one is due in {wait}",
            at_ms=message.at_ms,
            deliveries=message.deliveries,
        )
    return _reason("scheduled", f"its producer has scheduled the message; it is due in {wait}", at_ms=message.at_ms)


def _paused(queue: QueueState) -> Iterator[Reason]:
    if queue.address_paused:
        yield _reason("address-paused", "the address is paused: its queues deliver nothing until it is resumed")
    elif queue.paused:
        yield _reason("queue-paused", "the queue is paused: it delivers nothing until it is resumed")


def _bridges(queue: QueueState) -> Iterator[Reason]:
    for each in queue.bridges:
        values: dict[str, object] = {"bridge": each.name, "target": each.target, "error": each.error}
        if each.state in ("STOPPED", "STOPPING", "PAUSED", "PAUSING", "FAILED"):
            state = "has given up after its attempts" if each.state == "FAILED" else f"is {each.state.lower()}"
            text = f"bridge {each.name} {state}; start it"
            yield Reason("bridge-stopped", text + _error(each), values | {"state": each.state})
        elif each.state != "RUNNING":
            retry = "" if each.retry_in_ms is None else f"; the next attempt is in {_duration(each.retry_in_ms)}"
            text = f"bridge {each.name} is not connected to {each.target or 'its target'}{retry}"
            yield Reason("bridge-not-connected", text + _error(each), values | {"retry_in_ms": each.retry_in_ms})
        elif each.stall == "credit":
            text = f"bridge {each.name}: {each.target} gives no credit, because an address there is full"
            yield Reason("bridge-credit", text, values | {"unconfirmed": each.unconfirmed})
        elif each.stall == "window":
            text = f"bridge {each.name}: {each.target} has not confirmed {each.unconfirmed} messages, as many as may be"
            yield Reason("bridge-window", text, values | {"unconfirmed": each.unconfirmed})


def _error(bridge: BridgeState) -> str:
    return f" (last error: {bridge.error})" if bridge.error else ""


def _consumers(queue: QueueState, message: MessageState | None) -> Iterator[Reason]:
    """Reason why the consumers of the queue do not take messages, or one message."""
    consumers = [each for each in queue.consumers if not each.bridge]
    if not consumers:
        if not queue.bridges:
            yield _reason("no-consumer", "the queue has no consumer here")
        return
    if queue.gate is not None:
        yield _gate(queue.gate, sum(each.started and each.credits > 0 for each in consumers))
    if message is not None and message.taken_by is not None:
        consumers = [each for each in consumers if each.name in message.taken_by]
        if not consumers:
            filters = sorted({each.filter for each in queue.consumers if each.filter})
            yield _reason(
                "no-filter-matches",
                f"no consumer takes the message; their filters: {'; '.join(filters) or 'none'}",
                filters=filters,
            )
            return
    if message is not None and message.group is not None and message.group_consumer is not None:
        owner = next((each for each in consumers if each.name == message.group_consumer), None)
        if owner is None or not owner.ready:
            text = f"message group {message.group!r} belongs to consumer {message.group_consumer}"
            yield _reason(
                "group-of-consumer",
                f"{text}, which {_why_not(owner)}",
                group=message.group,
                consumer=message.group_consumer,
            )
            return
    if any(each.ready and each.served for each in consumers):
        return
    served = [each for each in consumers if each.served]
    if queue.exclusive and len(consumers) > len(served):
        name = served[0].name if served else None
        why = _why_not(served[0] if served else None)
        spares = len(consumers) - len(served)
        yield _reason(
            "exclusive",
            f"the queue is exclusive: consumer {name or 'of another filter'} {why}, and {spares} others are spares",
            consumer=name,
            spares=spares,
        )
    yield from _unready(served or consumers)


def _unready(consumers: Sequence[ConsumerState]) -> Iterator[Reason]:
    silent = [each for each in consumers if not each.started]
    dry = [each for each in consumers if each.started and each.credits <= 0]
    stuck = [each for each in consumers if each.started and each.credits > 0 and not each.writable]
    for code, text, found in (
        ("not-started", "the session is not started", silent),
        ("no-credit", "there is no credit, because the client reads no further messages", dry),
        ("socket-full", "the connection does not take bytes, because the client does not read", stuck),
    ):
        if found:
            shown = ", ".join(f"{each.name} ({each.delivering} not acknowledged)" for each in found[:3])
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            values = [
                {"name": each.name, "connection": each.connection, "delivering": each.delivering,
                 "oldest_ms": each.oldest_ms} for each in found
            ]  # fmt: skip
            yield _reason(code, f"consumers {shown}{more}: {text}", consumers=values)


def _why_not(consumer: ConsumerState | None) -> str:
    if consumer is None or not consumer.started:
        return "takes no messages"
    if consumer.credits <= 0:
        return "has no credit"
    return "does not read from its connection" if not consumer.writable else "takes messages"


def _gate(gate: GateState, present: int) -> Reason:
    if gate.rebalancing:
        text = "groups are dealt out again; the messages that consumers have are waited for"
    else:
        text = f"the queue waits for {counted(gate.wanted, 'consumer')} that take messages and has {present}"
    return _reason("dispatch-gate", text, wanted=gate.wanted, present=present, rebalancing=gate.rebalancing)


def _elsewhere(queue: QueueState, message: MessageState | None) -> Iterator[Reason]:
    """Reason why messages do not move to other members, or one message."""
    moving = queue.redistribution
    if queue.members is None or moving is None or queue.bridges:
        return
    if message is not None and message.group_member is not None:
        yield _reason(
            "group-of-member",
            f"message group {message.group!r} is bound to the queue of member {message.group_member}",
            group=message.group,
            node_id=message.group_member,
        )
    demand = {each.node_id: each.consumers for each in queue.members if each.connected and each.consumers}
    if not demand:
        if not any(not each.bridge for each in queue.consumers):
            text = f"no member has a consumer of the queue ({len(queue.members)} other members know it)"
            yield _reason("no-demand", text, members=[each.node_id for each in queue.members])
        return
    members = ", ".join(demand)
    if moving.mode not in ("ON_DEMAND", "OFF_WITH_REDISTRIBUTION") or moving.delay_ms < 0:
        cause = (
            f"message-load-balancing is {moving.mode}" if moving.delay_ms >= 0 else "redistribution-delay is -1"
        )  # fmt: skip
        yield _reason(
            "redistribution-off",
            f"members {members} have consumers; messages that wait here do not move, because {cause}",
            members=demand,
            mode=moving.mode,
            redistribution_delay_ms=moving.delay_ms,
        )
    elif message is not None and message.group is not None:
        text = f"members {members} have consumers; messages of a group ({message.group!r}) do not move"
        yield _reason("group-stays", text, members=demand, group=message.group)
    elif message is not None and not message.wanted_elsewhere:
        text = f"the filters of the consumers of members {members} do not take the message"
        yield _reason("no-remote-match", text, members=demand)
    elif moving.full:
        text = f"the message moves to one of {members} when fewer messages wait for them"
        yield _reason("redistribution-limit", text, members=demand)
    elif moving.state == "DELAYED":
        wait = _duration(moving.remaining_ms)
        yield _reason(
            "redistribution-delay",
            f"the message moves to one of {members} in {wait}",
            members=demand,
            remaining_ms=moving.remaining_ms,
        )
    elif moving.state in ("MOVING", "WATCHING"):
        yield _reason("redistribution-due", f"the message is about to move to one of {members}", members=demand)


def _kinds(queue: QueueState) -> Iterator[Reason]:
    if queue.non_destructive:
        yield _reason("non-destructive", "the queue is non-destructive: messages stay after their delivery")
    if queue.last_value_key is not None:
        yield _reason(
            "last-value",
            f"the queue keeps the newest message of each {queue.last_value_key}; a newer one replaces it",
            key=queue.last_value_key,
        )


def _ahead(queue: QueueState, message: MessageState) -> Reason:
    paged = f", {queue.paged} of the queue in page files" if queue.paged else ""
    return _reason(
        "messages-ahead",
        f"{counted(message.ahead, 'message')} before it in the queue{paged}",
        ahead=message.ahead,
        paged=queue.paged,
    )


def _age(since_ms: int | None, now_ms: int) -> str:
    return "for an unknown time" if since_ms is None else f"for {_duration(now_ms - since_ms)}"


def _duration(duration_ms: int) -> str:
    seconds = max(duration_ms, 0) / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
