"""Runs one program at one broker and records what was seen of every step.

After each step the broker is left to come to rest: every session answers a query and every consumer a forced
delivery, twice without news in between. So what is seen does not hang on timing. At the end everything the program
made is looked at once more, then removed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from interop.differential import steps
from interop.differential.link import CHANNEL, Link
from interop.differential.normaliser import Normaliser
from understudy.ids import Xid
from understudy.message import FORCED_DELIVERY, ROUTING_TYPE, Message, MessageType
from understudy.properties import LONG, Properties
from understudy.wire.core import packets

#: A time that stays ahead, and one that is over: epoch milliseconds.
FAR_MS = 4_000_000_000_000
PAST_MS = 1_000_000_000_000
_UNKNOWN_MESSAGE = 2**52 + 7
MULTICAST, ANYCAST = 0, 1
#: How long a cut connection may take to be noticed.
_CUT_S = 1.0
_runs = itertools.count(1)

Observation = tuple[str, Any]


@dataclass(slots=True)
class _Consumer:
    browse: bool
    received: list[int] = field(default_factory=list)
    """Ids of the messages that came, in order."""
    outstanding: list[int] = field(default_factory=list)
    """Those that are not settled as far as its client knows."""
    unlimited: bool = False
    """It was given credits without end."""
    queue: str = ""
    priority: int = 0
    selective: bool = False
    """It has a selector."""
    looked: bool = False
    """A browser that has come to rest."""
    lent: bool = False
    """Its queue is non-destructive."""


@dataclass(slots=True)
class _Session:
    link: Link
    consumers: dict[int, _Consumer] = field(default_factory=dict)
    correlation_id: int = 1
    branch: str = ""
    """That it works in, as far as it knows."""
    timeout_set: bool = False


class Runner:
    """One program at one broker."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._mark = f".r{next(_runs)}x{time.time_ns() % 10**9}"
        self._normaliser = Normaliser(self._mark)
        self._sessions: dict[str, _Session] = {}
        self._names: dict[str, None] = {}
        self._branches: dict[str, None] = {}
        self._makers: dict[str, str] = {}
        """Of temporary queues: the session by the queue."""
        self._undecided: set[str] = set()
        self._suspended: set[str] = set()
        self._sequence = itertools.count(1)

    def run(self, program: steps.Program) -> list[Observation]:
        """What was seen of each step, and of the end."""
        seen: list[Observation] = []
        try:
            seen.extend((f"{number}: {step!r}", self._carry_out(step)) for number, step in enumerate(program))
            seen += [(f"end: close {name}", self._carry_out(steps.CloseSession(name))) for name in [*self._sessions]]
            seen.extend(self._look())
        finally:
            for left in self._sessions.values():
                left.link.close()
        return seen

    # --- steps ---------------------------------------------------------------------------------

    def _carry_out(self, step: steps.Step) -> Any:
        session = self._sessions.get(step.session)  # type: ignore[attr-defined]  # every step has one
        if isinstance(step, steps.OpenSession):
            if session is not None:
                return "skipped"
            answer: Any = self._open(step)
        elif session is None:
            return "skipped"
        else:
            answer = _HANDLERS[type(step)](self, session, step)
        if answer == "skipped":
            return answer
        news = self._rest()
        return {"answer": answer, **({"news": news} if news else {})}

    def name(self, name: str) -> str:
        """A name of this run's own: the first part, which chooses the settings, stays in front."""
        parts = name.split("::")
        marked = []
        for part in parts:
            head, dot, tail = part.partition(".")
            marked.append(f"{head}{self._mark}{dot}{tail}" if part else part)
        for part in marked:
            self._names.setdefault(part)
        return "::".join(marked)

    def _open(self, step: steps.OpenSession, *, remember: bool = True) -> Any:
        session = _Session(Link(self._port))
        answer = session.link.ask(
            packets.CreateSessionV2(
                name=f"diff{self._mark}-{step.session}-{next(self._sequence)}",
                session_channel_id=CHANNEL,
                version=136,
                auto_commit_sends=step.auto_commit_sends,
                auto_commit_acks=step.auto_commit_acks,
                pre_acknowledge=step.pre_acknowledge,
                xa=step.xa,
            ),
            1,
        )
        if step.started:
            session.link.send(packets.SessionStart())
        if remember:
            self._sessions[step.session] = session
        else:
            self._looker = session
        return self._normaliser.packet(answer)

    def _ask(self, session: _Session, packet: packets.Packet) -> Any:
        return self._normaliser.packet(session.link.ask(packet))

    def _close(self, session: _Session, step: steps.CloseSession) -> Any:
        answer = self._ask(session, packets.SessionClose())
        session.link.close()
        del self._sessions[step.session]
        return answer

    def _cut(self, session: _Session, step: steps.Cut) -> Any:
        session.link.close()
        del self._sessions[step.session]
        time.sleep(_CUT_S)
        return "cut"

    def _start(self, session: _Session, step: steps.Start) -> Any:
        session.link.send(packets.SessionStart())

    def _stop(self, session: _Session, step: steps.Stop) -> Any:
        return self._ask(session, packets.SessionStop())

    def _make_address(self, session: _Session, step: steps.MakeAddress) -> Any:
        known = session.link.ask(packets.BindingQuery(self.name(step.address)))
        if isinstance(known, packets.BindingQueryResponseV5) and known.exists:
            types = {*[MULTICAST] * known.supports_multicast, *[ANYCAST] * known.supports_anycast}
            if types != set(step.routing_types):
                return "skipped"  # exclusions.ADDRESS_CHANGED
        return self._ask(
            session,
            packets.CreateAddress(self.name(step.address), step.routing_types, True, step.auto_created),
        )

    def _make_queue(self, session: _Session, step: steps.MakeQueue) -> Any:
        options: dict[str, Any] = dict(step.options)
        address = session.link.ask(packets.BindingQuery(self.name(step.address)))
        if step.address.startswith("closed") and isinstance(address, packets.BindingQueryResponseV5) and address.exists:
            takes = address.supports_anycast if options["routing_type"] == ANYCAST else address.supports_multicast
            if not takes:
                return "skipped"  # exclusions.ROUTING_TYPE_NOT_ALLOWED
        if options.get("temporary"):
            self._makers.setdefault(step.name.rpartition("::")[2], step.session)
        return self._ask(session, packets.CreateQueueV2(self.name(step.address), self.name(step.name), **options))

    def _share_queue(self, session: _Session, step: steps.ShareQueue) -> Any:
        options: dict[str, Any] = dict(step.options)
        return self._ask(session, packets.CreateSharedQueueV2(self.name(step.address), self.name(step.name), **options))

    def _remove_queue(self, session: _Session, step: steps.RemoveQueue) -> Any:
        return self._ask(session, packets.DeleteQueue(self.name(step.name)))

    def _ask_queue(self, session: _Session, step: steps.AskQueue) -> Any:
        if self._elsewhere(session, step.name):
            return "skipped"
        return self._ask(session, packets.QueueQuery(self.name(step.name)))

    def _ask_address(self, session: _Session, step: steps.AskAddress) -> Any:
        return self._ask(session, packets.BindingQuery(self.name(step.address)))

    def _has_no_queue(self, session: _Session, name: str, routing_type: int | None) -> bool:
        """Whether it is for queues that are not there, so that what becomes of it is a matter of opinion
        (``exclusions.UNTYPED_TO_NOWHERE``, ``OTHER_ROUTING_TYPE``).
        """
        address, _, only = name.partition("::")
        answer = session.link.ask(packets.BindingQuery(address))
        if not isinstance(answer, packets.BindingQueryResponse):
            return True
        types = {}
        for queue in answer.queue_names:
            described = session.link.ask(packets.QueueQuery(queue))
            types[queue] = getattr(described, "routing_type", None)
        if only:
            return types.get(only) is None or routing_type not in (None, types[only])
        return not types if routing_type is None else bool(types) and routing_type not in types.values()

    def _send(self, session: _Session, step: steps.Send) -> Any:
        routing_type = dict(step.properties).get(ROUTING_TYPE, (0, None))[1]
        if session.branch and step.address.startswith("closed"):
            known = session.link.ask(packets.BindingQuery(self.name(step.address).partition("::")[0]))
            if not (isinstance(known, packets.BindingQueryResponse) and known.exists):
                return "skipped"  # exclusions.XA_REFUSED_SENDS
        if self._has_no_queue(session, self.name(step.address), routing_type):  # type: ignore[arg-type]
            return "skipped"
        properties = Properties()
        for key, (tag, value) in step.properties:
            properties.set_typed(key, tag, value)  # type: ignore[arg-type]
        if step.scheduled:
            properties.set_typed("_AMQ_SCHED_DELIVERY", LONG, FAR_MS if step.scheduled == "far" else PAST_MS)
        message = Message(
            step.body.encode(),
            address=self.name(step.address),
            type=MessageType.BYTES,
            durable=step.durable,
            priority=step.priority,
            expiration={"": 0, "far": FAR_MS, "past": PAST_MS}[step.expires],
            timestamp=PAST_MS,
            properties=properties,
        )
        session.correlation_id += 1
        packet = packets.SessionSend(message, step.answered, session.correlation_id, 1)
        if step.answered:
            return self._ask(session, packet)
        return session.link.send(packet)

    def _elsewhere(self, session: _Session, name: str) -> bool:
        """Whether ``address::queue`` names a queue of another address (``exclusions.OTHER_ADDRESS``)."""
        address, separator, queue = self.name(name).partition("::")
        if not separator:
            return False
        known = session.link.ask(packets.QueueQuery(queue))
        return isinstance(known, packets.QueueQueryResponse) and known.exists and known.address != address

    def _takes_turns(self, session: _Session, step: steps.Consume) -> bool:
        """Whether somebody consumes there with the same right, or browses among them
        (``exclusions.TURNS``, ``BROWSED_LOANS``).
        """
        queue = step.queue.rpartition("::")[2]
        known = session.link.ask(packets.QueueQuery(self.name(queue)))
        assert isinstance(known, packets.QueueQueryResponseV3), known
        if step.browse:
            return bool(known.non_destructive)
        if self._makers.get(queue, step.session) != step.session:
            return True  # exclusions.SOMEBODY_ELSES_TEMPORARY_QUEUE
        if known.exclusive:
            return False
        return any(
            (other.queue, other.browse) == (queue, False)
            and (other.lent or other.selective or step.selector is not None or other.priority == step.priority)
            for each in self._sessions.values()
            for other in each.consumers.values()
        )

    def _consume(self, session: _Session, step: steps.Consume) -> Any:
        if step.consumer in session.consumers or self._elsewhere(session, step.queue):
            return "skipped"
        if self._takes_turns(session, step):
            return "skipped"
        answer = session.link.ask(
            packets.CreateConsumer(
                step.consumer, self.name(step.queue), step.selector, step.browse, True, step.priority
            )
        )
        if isinstance(answer, packets.QueueQueryResponse):
            session.consumers[step.consumer] = _Consumer(
                step.browse,
                unlimited=step.credits == -1,
                queue=step.queue.rpartition("::")[2],
                priority=step.priority,
                selective=step.selector is not None,
                lent=bool(getattr(answer, "non_destructive", False)) and not step.browse,
            )
            if step.credits is not None:
                session.link.send(packets.FlowToken(step.consumer, step.credits))
        return self._normaliser.packet(answer)

    def _flow(self, session: _Session, step: steps.Flow) -> Any:
        consumer = session.consumers.get(step.consumer)
        if consumer is None or consumer.unlimited:
            return "skipped"  # exclusions.CREDITS_AFTER_UNLIMITED
        consumer.unlimited = step.credits == -1
        return session.link.send(packets.FlowToken(step.consumer, step.credits))

    def _leave(self, session: _Session, step: steps.Leave) -> Any:
        if session.consumers.pop(step.consumer, None) is None:
            return "skipped"
        return self._ask(session, packets.ConsumerClose(step.consumer))

    def _acknowledge(self, session: _Session, step: steps.Acknowledge) -> Any:
        message_id = self._delivered(session, step.consumer, step.delivery)
        if message_id is None:
            return "skipped"
        outstanding = session.consumers[step.consumer].outstanding
        if not step.individual:
            if message_id not in outstanding:
                return "skipped"  # exclusions.ACKNOWLEDGED_TWICE
            del outstanding[: outstanding.index(message_id) + 1]
        elif message_id in outstanding:
            outstanding.remove(message_id)
        elif session.branch:
            return "skipped"  # exclusions.XA_SPOILED
        kind = packets.IndividualAcknowledge if step.individual else packets.Acknowledge
        packet = kind(step.consumer, message_id, step.answered)
        return self._ask(session, packet) if step.answered else session.link.send(packet)

    def _expire(self, session: _Session, step: steps.Expire) -> Any:
        message_id = self._delivered(session, step.consumer, step.delivery)
        if message_id is None:
            return "skipped"
        outstanding = session.consumers[step.consumer].outstanding
        if message_id in outstanding:
            outstanding.remove(message_id)
        return session.link.send(packets.Expired(step.consumer, message_id))

    def _delivered(self, session: _Session, consumer_id: int, delivery: int) -> int | None:
        consumer = session.consumers.get(consumer_id)
        if consumer is None or delivery >= len(consumer.received):
            return None
        return _UNKNOWN_MESSAGE if delivery < 0 else consumer.received[delivery]

    def _commit(self, session: _Session, step: steps.Commit) -> Any:
        if session.branch:
            return "skipped"  # exclusions.XA_LOCAL_OUTCOME
        return self._ask(session, packets.Commit())

    def _rollback(self, session: _Session, step: steps.Rollback) -> Any:
        if session.branch or any(consumer.lent for consumer in session.consumers.values()):
            return "skipped"  # exclusions.XA_LOCAL_OUTCOME, LOANS_GIVEN_BACK
        if self._among_others(session):
            return "skipped"
        self._give_back(session)
        return self._ask(session, packets.Rollback(step.last_delivered))

    def _among_others(self, session: _Session) -> bool:
        """Whether somebody else consumes where it does (``exclusions.ROLLBACK_AMONG_OTHERS``)."""
        everybody = [consumer for each in self._sessions.values() for consumer in each.consumers.values()]
        queues = [consumer.queue for consumer in everybody if not consumer.browse]
        return any(queues.count(consumer.queue) > 1 for consumer in session.consumers.values() if not consumer.browse)

    @staticmethod
    def _give_back(session: _Session) -> None:
        """What is outstanding goes back, so that its acknowledgement would be of nothing."""
        for consumer in session.consumers.values():
            consumer.outstanding.clear()

    def _metadata(self, session: _Session, step: steps.Metadata) -> Any:
        kind = packets.UniqueAddMetadata if step.unique else packets.AddMetadataV2
        return self._ask(session, kind(step.key, step.value + self._mark, True))

    def _credits(self, session: _Session, step: steps.Credits) -> Any:
        session.link.send(packets.ProducerRequestCredits(step.credits, self.name(step.address)))

    def _xid(self, branch: str) -> Xid:
        self._branches.setdefault(branch)
        return Xid(7, f"g{self._mark}".encode(), branch.encode())

    def _xa(self, session: _Session, step: steps.Xa) -> Any:
        request = step.request
        kind: Any = getattr(packets, f"Xa{request}")
        if request == "GetTimeout" and session.timeout_set:
            return "skipped"  # exclusions.XA_TIMEOUT_ASKED
        if request == "Suspend" and session.branch:
            self._suspended.add(session.branch)
            session.branch = ""
        if request in ("Suspend", "InDoubt", "GetTimeout"):
            return self._ask(session, kind())
        if request == "SetTimeout":
            session.timeout_set = True
            return self._ask(session, kind(step.timeout_s))
        xid = self._xid(step.branch)
        if request in ("Start", "Join", "Resume") and session.branch:
            return "skipped"  # exclusions.XA_ILLEGAL_OUTCOMES
        if request in ("Prepare", "Commit", "Rollback", "Join") and step.branch in self._suspended:
            return "skipped"  # exclusions.XA_ILLEGAL_OUTCOMES
        if request in ("Resume", "End"):
            self._suspended.discard(step.branch)
        if request == "Rollback" and self._among_others(session):
            return "skipped"
        if request == "Rollback" and session.branch and step.branch not in self._undecided:
            return "skipped"  # exclusions.XA_ROLLBACK_OF_NOBODY
        if request == "Start":
            self._undecided.add(step.branch)
        elif request in ("Commit", "Rollback") and session.branch != step.branch:
            self._undecided.discard(step.branch)
        if request in ("Start", "Join", "Resume") and not session.branch:
            session.branch = step.branch
        elif request == "End" and session.branch == step.branch:
            session.branch = ""
        if request == "Rollback":
            self._give_back(session)
        if request in ("End", "Commit"):
            return self._ask(session, kind(xid, step.flag))
        if request == "Failed":
            return session.link.send(kind(xid))
        return self._ask(session, kind(xid))

    # --- coming to rest ------------------------------------------------------------------------

    def _rest(self) -> dict[str, Any]:
        """Let it come to rest. What came by itself, by session and consumer."""
        news: dict[str, list[Any]] = {}
        quiet = 0
        for _ in range(20):
            fresh = [self._rest_of(session, name, news) for name, session in [*self._sessions.items()]]
            quiet = 0 if any(fresh) else quiet + 1
            if quiet == 2:
                break
        for session in self._sessions.values():
            for consumer in session.consumers.values():
                consumer.looked = consumer.browse
        return dict(sorted(news.items()))

    def _rest_of(self, session: _Session, name: str = "", news: dict[str, list[Any]] | None = None) -> bool:
        """One round of one session. Whether anything came."""
        link = session.link
        wanted = {next(self._sequence): consumer_id for consumer_id in session.consumers}
        for sequence, consumer_id in wanted.items():
            link.send(packets.ForceConsumerDelivery(consumer_id, sequence))
        link.ask(packets.QueueQuery("nothing of this name"))
        link.wait(lambda: wanted.keys() <= self._markers(link) or self._gone(link), 3)
        link.take(0.001)
        missing = {consumer for sequence, consumer in wanted.items() if sequence not in self._markers(link)}
        fresh = False
        for packet in link.unasked:
            if isinstance(packet, packets.ReceiveMessage):
                consumer = session.consumers.get(packet.consumer_id)
                browsed = consumer is not None and consumer.browse
                if FORCED_DELIVERY in packet.message.properties:
                    continue
                if consumer is not None and browsed and (consumer.looked or packet.message.expiration == PAST_MS):
                    continue  # exclusions.BROWSED_LATER, BROWSED_EXPIRED
            fresh = True
            key = name
            if isinstance(packet, packets.ReceiveMessage):
                key = f"{name}.{packet.consumer_id}"
                if consumer is not None:
                    consumer.received.append(packet.message.message_id)
                    if not browsed:
                        consumer.outstanding.append(packet.message.message_id)
                    if consumer.lent:
                        packet.delivery_count = 0  # exclusions.DELIVERIES_OF_LOANS
            elif isinstance(packet, packets.DisconnectConsumer):
                session.consumers.pop(packet.consumer_id, None)
                missing.discard(packet.consumer_id)
            if news is not None:
                news.setdefault(key, []).append(self._normaliser.packet(packet))
        link.unasked.clear()
        for consumer_id in missing:
            session.consumers.pop(consumer_id, None)
            if news is not None:
                news.setdefault(f"{name}.{consumer_id}", []).append("no marker")
        if link.closed and news is not None and name in self._sessions:
            news.setdefault(name, []).append("connection closed by the broker")
            del self._sessions[name]
        return fresh

    @staticmethod
    def _markers(link: Link) -> set[int]:
        return {
            int(packet.message.properties[FORCED_DELIVERY])  # type: ignore[arg-type]
            for packet in link.unasked
            if isinstance(packet, packets.ReceiveMessage) and FORCED_DELIVERY in packet.message.properties
        }

    @staticmethod
    def _gone(link: Link) -> bool:
        return any(isinstance(packet, packets.DisconnectConsumer) for packet in link.unasked)

    # --- the end -------------------------------------------------------------------------------

    def _look(self) -> list[Observation]:
        """Branches in doubt, what every queue is and holds, dead letters and expired messages; then all goes."""
        seen: list[Observation] = []
        names = [*self._names]
        if self._branches:
            self._open(steps.OpenSession("x", xa=True))
            left = self._sessions["x"]
            seen.append(("end: in doubt", self._ask(left, packets.XaInDoubt())))
            for branch in self._branches:
                self._ask(left, packets.XaEnd(self._xid(branch)))
                self._ask(left, packets.XaRollback(self._xid(branch)))
            seen.append(("end: close", self._close(left, steps.CloseSession("x"))))
        self._open(steps.OpenSession("look"))
        session = self._sessions["look"]
        for number, name in enumerate(names):
            short = self._normaliser.text(name)
            seen.append((f"end: address {short}", self._ask(session, packets.BindingQuery(name))))
            answer = session.link.ask(packets.QueueQuery(name))
            seen.append((f"end: queue {short}", self._normaliser.packet(answer)))
            lends = getattr(answer, "non_destructive", False)  # exclusions.DELIVERIES_OF_LOANS
            if isinstance(answer, packets.QueueQueryResponse) and answer.exists and not lends:
                browse = steps.Consume("look", number, "", browse=True)
                seen.append((f"end: in {short}", self._drain(session, browse, name)))
        for number, name in enumerate(("dead", "expired"), len(names)):
            consume = steps.Consume("look", number, "")
            seen.append((f"end: in {name}", self._drain(session, consume, name)))
        for name in names:
            session.link.ask(packets.DeleteQueue(name))
        self._close(session, steps.CloseSession("look"))
        return seen

    def _drain(self, session: _Session, step: steps.Consume, name: str) -> Any:
        """Everything in a queue; what is consumed is acknowledged."""
        session.link.ask(packets.CreateConsumer(step.consumer, name, None, step.browse, True, 0))
        session.link.send(packets.FlowToken(step.consumer, -1))
        session.consumers[step.consumer] = _Consumer(step.browse)
        news = self._rest().get(f"look.{step.consumer}", [])
        consumer = session.consumers.pop(step.consumer, None)
        if consumer is not None:
            if consumer.received and not step.browse:
                session.link.ask(packets.Acknowledge(step.consumer, consumer.received[-1], True))
            session.link.ask(packets.ConsumerClose(step.consumer))
        if not step.browse:  # of dead letters the order in time between queues is nobody's promise
            news = sorted(news, key=repr)
        return news


_HANDLERS: dict[type, Callable[..., Any]] = {
    steps.CloseSession: Runner._close,
    steps.Cut: Runner._cut,
    steps.Start: Runner._start,
    steps.Stop: Runner._stop,
    steps.MakeAddress: Runner._make_address,
    steps.MakeQueue: Runner._make_queue,
    steps.ShareQueue: Runner._share_queue,
    steps.RemoveQueue: Runner._remove_queue,
    steps.AskQueue: Runner._ask_queue,
    steps.AskAddress: Runner._ask_address,
    steps.Send: Runner._send,
    steps.Consume: Runner._consume,
    steps.Flow: Runner._flow,
    steps.Leave: Runner._leave,
    steps.Acknowledge: Runner._acknowledge,
    steps.Expire: Runner._expire,
    steps.Commit: Runner._commit,
    steps.Rollback: Runner._rollback,
    steps.Metadata: Runner._metadata,
    steps.Credits: Runner._credits,
    steps.Xa: Runner._xa,
}
