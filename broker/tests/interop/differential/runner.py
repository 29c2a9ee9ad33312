"""Runs one program at one broker and records the observations of every step.

After each step the runner waits until every session answers a query and every consumer a forced delivery, twice without
news, so observations do not depend on timing. At the end all resources of the program are observed, then removed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from interop.differential import deliveries, steps
from interop.differential.deliveries import Consumer, Session
from interop.differential.link import CHANNEL, Link
from interop.differential.managing import Managing
from interop.differential.normaliser import Normaliser
from interop.differential.routes import Routes
from interop.differential.sending import packets_of
from understudy.ids import Xid
from understudy.message import DUPLICATE_ID, FORCED_DELIVERY, ROUTING_TYPE
from understudy.wire.core import packets

_UNKNOWN_MESSAGE = 2**52 + 7
MULTICAST, ANYCAST = 0, 1
#: How long a cut connection may take to be noticed.
_CUT_S = 1.0
#: How long more pieces of a large message, which no marker follows, may take.
_PIECES_S = 0.1
_runs = itertools.count(1)

Observation = tuple[str, Any]


class Runner:
    """One program at one broker."""

    def __init__(self, port: int, *, alone: bool = True) -> None:
        """
        Args:
            port: Port on loopback at which the broker accepts connections.
            alone: No other program is under way there.
        """
        self._port = port
        self._alone = alone
        self.seen: list[Observation] = []
        self._mark = f".r{next(_runs)}x{time.time_ns() % 10**9}"
        self._normaliser = Normaliser(self._mark)
        self._sessions: dict[str, Session] = {}
        self._names: dict[str, None] = {}
        self._branches: dict[str, None] = {}
        self._makers: dict[str, str] = {}
        """Session that made each temporary queue, by the name of the queue."""
        self._undecided: set[str] = set()
        self._suspended: set[str] = set()
        self._prepared: set[str] = set()
        self._managing: Managing | None = None
        self._routes = Routes(self.name, self._names)
        self._queues_go = False
        """A queue was deleted, or will be with its session."""
        self._grouped = False
        """Messages of groups were sent."""
        self._sequence = itertools.count(1)

    def run(self, program: steps.Program) -> list[Observation]:
        """The observations of each step, and of the end."""
        for _ in self.stages(program):
            raise AssertionError("this broker is not restarted")
        return self.seen

    def stages(self, program: steps.Program) -> Iterator[None]:
        """The same into ``seen``, from one restart to the next: at each of them it waits for being asked to go on.
        The brokers then have the dead letters of other programs, too.
        """
        seen = self.seen
        try:
            for number, step in enumerate(program):
                if isinstance(step, steps.Restart):
                    if not step.killed:
                        self._give_up_deliveries()
                    yield
                    self._forget_connections()
                    self._routes.restarted = True
                else:
                    seen.append((f"{number}: {step!r}", self._carry_out(step)))
            seen += [(f"end: close {name}", self._carry_out(steps.CloseSession(name))) for name in [*self._sessions]]
            seen.extend(self._look())
        finally:
            self._forget_connections()

    def _give_up_deliveries(self) -> None:
        """``exclusions.STOPPED_DELIVERIES``."""
        for name, session in [*self._sessions.items()]:
            if any(consumer.received and not consumer.browse for consumer in session.consumers.values()):
                self._carry_out(steps.CloseSession(name))

    def _forget_connections(self) -> None:
        for left in self._sessions.values():
            left.link.close()
        self._sessions.clear()
        self._suspended.clear()
        if self._managing is not None:
            self._managing.end()
            self._managing = None

    # --- steps ---------------------------------------------------------------------------------

    def _carry_out(self, step: steps.Step) -> Any:
        session = self._sessions.get(getattr(step, "session", ""))
        if isinstance(step, steps.MakeDivert | steps.RemoveDivert):
            answer = self._divert(step)
        elif isinstance(step, steps.OpenSession):
            if session is not None:
                return "skipped"
            answer = self._open(step)
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
        session = Session(Link(self._port), transacted=not step.auto_commit_sends)
        answer = session.link.ask(
            packets.CreateSessionV2(
                name=f"diff{self._mark}-{step.session}-{next(self._sequence)}",
                session_channel_id=CHANNEL,
                version=136,
                auto_commit_sends=step.auto_commit_sends,
                auto_commit_acks=step.auto_commit_acks,
                pre_acknowledge=step.pre_acknowledge,
                xa=step.xa,
                min_large_message_size=step.pieces,
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

    def _divert(self, step: steps.MakeDivert | steps.RemoveDivert) -> str:
        managing = self._managing = self._managing or Managing(self._port)
        name = step.name + self._mark
        if isinstance(step, steps.RemoveDivert):
            self._routes.diverts.pop(name, None)
            return managing.ask("destroyDivert", name)
        if name in self._routes.diverts or not managing.exists(self.name(step.address)):
            return "skipped"  # exclusions.DIVERT_AGAIN, DIVERT_OF_NO_ADDRESS
        answer = managing.ask(
            "createDivert",
            *(name, step.routing_name and step.routing_name + self._mark),
            *(self.name(step.address), self.name(step.forwarding_address)),
            *(step.exclusive, step.selector, None, step.routing_type),
        )
        if answer == "done":
            self._routes.diverts[name] = step
        return answer

    def _ask(self, session: Session, packet: packets.Packet) -> Any:
        return self._normaliser.packet(session.link.ask(packet))

    def _close(self, session: Session, step: steps.CloseSession) -> Any:
        answer = self._ask(session, packets.SessionClose())
        session.link.close()
        del self._sessions[step.session]
        return answer

    def _cut(self, session: Session, step: steps.Cut) -> Any:
        session.link.close()
        del self._sessions[step.session]
        time.sleep(_CUT_S)
        return "cut"

    def _start(self, session: Session, step: steps.Start) -> Any:
        session.link.send(packets.SessionStart())

    def _stop(self, session: Session, step: steps.Stop) -> Any:
        return self._ask(session, packets.SessionStop())

    def _make_address(self, session: Session, step: steps.MakeAddress) -> Any:
        known = session.link.ask(packets.BindingQuery(self.name(step.address)))
        if isinstance(known, packets.BindingQueryResponseV5) and known.exists:
            types = {*[MULTICAST] * known.supports_multicast, *[ANYCAST] * known.supports_anycast}
            if types != set(step.routing_types):
                return "skipped"  # exclusions.ADDRESS_CHANGED
        return self._ask(
            session,
            packets.CreateAddress(self.name(step.address), step.routing_types, True, step.auto_created),
        )

    def _make_queue(self, session: Session, step: steps.MakeQueue) -> Any:
        options: dict[str, Any] = dict(step.options)
        address = session.link.ask(packets.BindingQuery(self.name(step.address)))
        beside = getattr(address, "queue_names", ())
        temporary = {self.name(queue) for queue in self._makers}
        if beside and (options.get("temporary") or not temporary.isdisjoint(beside)):
            return "skipped"  # exclusions.TEMPORARY_AND_LAST
        if options.get("temporary"):
            self._queues_go = True
            self._makers.setdefault(step.name.rpartition("::")[2], step.session)
        return self._ask(session, packets.CreateQueueV2(self.name(step.address), self.name(step.name), **options))

    def _share_queue(self, session: Session, step: steps.ShareQueue) -> Any:
        options: dict[str, Any] = dict(step.options)
        return self._ask(session, packets.CreateSharedQueueV2(self.name(step.address), self.name(step.name), **options))

    def _remove_queue(self, session: Session, step: steps.RemoveQueue) -> Any:
        self._queues_go = True
        return self._ask(session, packets.DeleteQueue(self.name(step.name)))

    def _ask_queue(self, session: Session, step: steps.AskQueue) -> Any:
        if self._elsewhere(session, step.name):
            return "skipped"
        return self._ask(session, packets.QueueQuery(self.name(step.name)))

    def _ask_address(self, session: Session, step: steps.AskAddress) -> Any:
        return self._ask(session, packets.BindingQuery(self.name(step.address)))

    def _send(self, session: Session, step: steps.Send) -> Any:
        routing_type = dict(step.properties).get(ROUTING_TYPE, (0, None))[1]
        if session.branch and step.address.startswith("closed"):
            known = session.link.ask(packets.BindingQuery(self.name(step.address).partition("::")[0]))
            if not (isinstance(known, packets.BindingQueryResponse) and known.exists):
                return "skipped"  # exclusions.XA_REFUSED_SENDS
        name = self.name(step.address)
        if self._routes.is_half_diverted(name.partition("::")[0]):
            return "skipped"
        if self._routes.is_undecidable(session.link, name, routing_type):  # type: ignore[arg-type]
            return "skipped"
        duplicate_id = dict(step.properties).get(DUPLICATE_ID)
        if duplicate_id is not None and self._queues_go:
            return "skipped"  # exclusions.FORGOTTEN_DUPLICATES
        if session.transacted and duplicate_id is not None:
            if duplicate_id in session.duplicate_ids:
                return "skipped"  # exclusions.TWICE_IN_A_TRANSACTION
            session.duplicate_ids.add(duplicate_id)
        (address, *_), (before, *_) = name.split("::"), session.sent_to.split("::")
        if address == before and name != session.sent_to:
            return "skipped"  # exclusions.NAMED_AFTER_PLAIN
        session.sent_to = name
        self._grouped = self._grouped or "_AMQ_GROUP_ID" in dict(step.properties)
        session.correlation_id += 1
        *first, last = packets_of(step, self.name(step.address), session.correlation_id)
        for packet in first:
            session.link.send(packet)
        if step.answered and not step.unfinished:
            return self._ask(session, last)
        return session.link.send(last)

    def _elsewhere(self, session: Session, name: str) -> bool:
        """Whether ``address::queue`` names a queue of another address (``exclusions.OTHER_ADDRESS``)."""
        address, separator, queue = self.name(name).partition("::")
        if not separator or not address:
            return False
        known = session.link.ask(packets.QueueQuery(queue))
        return isinstance(known, packets.QueueQueryResponse) and known.exists and known.address != address

    def _takes_turns(self, session: Session, step: steps.Consume) -> bool:
        """Whether another consumer has the same right there, or a browser is among them
        (``exclusions.TURNS``, ``BROWSED_LOANS``, ``SELECTORS_OF_PAGED``).
        """
        queue = step.queue.rpartition("::")[2]
        known = session.link.ask(packets.QueueQuery(self.name(queue)))
        assert isinstance(known, packets.QueueQueryResponseV3), known
        others = [
            other
            for each in self._sessions.values()
            for other in each.consumers.values()
            if other.queue == queue and not other.browse
        ]
        if step.browse:
            paged = queue.startswith("paged") and any(other.received for other in others)
            alone = not known.durable and queue not in self._makers  # exclusions.BROWSED_ALONE
            return bool(known.non_destructive) or paged or alone  # exclusions.BROWSED_IN_PAGES
        if self._makers.get(queue, step.session) != step.session or (step.selector and queue.startswith("paged")):
            return True  # exclusions.TEMPORARY_QUEUE_OF_ANOTHER_CONNECTION, SELECTORS_OF_PAGED
        if known.exclusive:  # exclusions.EXCLUSIVE_SELECTORS
            return any(other.selective or step.selector is not None for other in others)
        return any(
            other.lent
            or other.selective
            or step.selector is not None
            or other.priority == step.priority
            or (self._grouped and not (other.unlimited and step.credits == -1))  # exclusions.BUSY_GROUPS
            for other in others
        )

    def _consume(self, session: Session, step: steps.Consume) -> Any:
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
            session.consumers[step.consumer] = Consumer(
                step.browse,
                unlimited=step.credits == -1,
                queue=step.queue.rpartition("::")[2],
                priority=step.priority,
                selective=step.selector is not None,
                last_values=bool(getattr(answer, "last_value", False)),
                lent=bool(getattr(answer, "non_destructive", False)) and not step.browse,
                paged_before_restart=self._routes.paged_before_restart(step.queue),
            )
            if step.credits is not None:
                session.link.send(packets.FlowToken(step.consumer, step.credits))
        return self._normaliser.packet(answer)

    def _flow(self, session: Session, step: steps.Flow) -> Any:
        consumer = session.consumers.get(step.consumer)
        if consumer is None or consumer.unlimited:
            return "skipped"  # exclusions.CREDITS_AFTER_UNLIMITED
        consumer.unlimited = step.credits == -1
        return session.link.send(packets.FlowToken(step.consumer, step.credits))

    def _leave(self, session: Session, step: steps.Leave) -> Any:
        if session.consumers.pop(step.consumer, None) is None:
            return "skipped"
        return self._ask(session, packets.ConsumerClose(step.consumer))

    def _acknowledge(self, session: Session, step: steps.Acknowledge) -> Any:
        message_id = self._delivered(session, step.consumer, step.delivery)
        if message_id is None:
            return "skipped"
        outstanding = session.consumers[step.consumer].outstanding
        if not step.individual:
            if message_id not in outstanding:
                return "skipped"  # exclusions.ACKNOWLEDGED_TWICE
            del outstanding[: outstanding.index(message_id) + 1]
        elif session.consumers[step.consumer].last_values and message_id in outstanding[1:]:
            return "skipped"  # exclusions.STALE_LAST_VALUES
        elif message_id in outstanding:
            outstanding.remove(message_id)
        elif session.branch:
            return "skipped"  # exclusions.XA_SPOILED
        kind = packets.IndividualAcknowledge if step.individual else packets.Acknowledge
        packet = kind(step.consumer, message_id, step.answered)
        return self._ask(session, packet) if step.answered else session.link.send(packet)

    def _expire(self, session: Session, step: steps.Expire) -> Any:
        message_id = self._delivered(session, step.consumer, step.delivery)
        if message_id is None:
            return "skipped"
        outstanding = session.consumers[step.consumer].outstanding
        if message_id in outstanding:
            outstanding.remove(message_id)
        return session.link.send(packets.Expired(step.consumer, message_id))

    def _delivered(self, session: Session, consumer_id: int, delivery: int) -> int | None:
        consumer = session.consumers.get(consumer_id)
        if consumer is None or delivery >= len(consumer.received):
            return None
        return _UNKNOWN_MESSAGE if delivery < 0 else consumer.received[delivery]

    def _commit(self, session: Session, step: steps.Commit) -> Any:
        if session.branch:
            return "skipped"  # exclusions.XA_LOCAL_OUTCOME
        session.duplicate_ids.clear()
        return self._ask(session, packets.Commit())

    def _rollback(self, session: Session, step: steps.Rollback) -> Any:
        if session.branch or any(consumer.lent for consumer in session.consumers.values()):
            return "skipped"  # exclusions.XA_LOCAL_OUTCOME, LOANS_GIVEN_BACK
        if self._among_others(session):
            return "skipped"
        self._give_back(session)
        session.duplicate_ids.clear()
        return self._ask(session, packets.Rollback(step.last_delivered))

    def _among_others(self, session: Session) -> bool:
        """Whether another session consumes where it does (``exclusions.ROLLBACK_AMONG_OTHERS``)."""
        all_consumers = [consumer for each in self._sessions.values() for consumer in each.consumers.values()]
        queues = [consumer.queue for consumer in all_consumers if not consumer.browse]
        return any(queues.count(consumer.queue) > 1 for consumer in session.consumers.values() if not consumer.browse)

    @staticmethod
    def _give_back(session: Session) -> None:
        """Return outstanding deliveries, so that a later acknowledgement has no effect."""
        for consumer in session.consumers.values():
            consumer.outstanding.clear()
            consumer.partial = False

    def _metadata(self, session: Session, step: steps.Metadata) -> Any:
        kind = packets.UniqueAddMetadata if step.unique else packets.AddMetadataV2
        return self._ask(session, kind(step.key, step.value + self._mark, True))

    def _credits(self, session: Session, step: steps.Credits) -> Any:
        session.link.send(packets.ProducerRequestCredits(step.credits, self.name(step.address)))

    def _xid(self, branch: str) -> Xid:
        self._branches.setdefault(branch)
        return Xid(7, f"g{self._mark}".encode(), branch.encode())

    def _xa(self, session: Session, step: steps.Xa) -> Any:
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
        others = {each.branch for each in self._sessions.values() if each is not session}
        if request in ("Prepare", "Commit", "Rollback") and step.branch in others:
            return "skipped"  # exclusions.XA_ILLEGAL_OUTCOMES
        if request == "Commit" and step.branch in self._undecided and step.flag == (step.branch in self._prepared):
            return "skipped"  # exclusions.XA_ILLEGAL_OUTCOMES
        if request == "Prepare":
            self._prepared.add(step.branch)
        if request in ("Resume", "End"):
            self._suspended.discard(step.branch)
        if request == "Rollback" and self._among_others(session):
            return "skipped"
        if request == "Rollback" and session.branch and step.branch not in self._undecided:
            return "skipped"  # exclusions.XA_ROLLBACK_OF_UNKNOWN
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
        """Wait until the broker sends nothing more. Returns the unsolicited packets by session and consumer."""
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

    def _rest_of(self, session: Session, name: str = "", news: dict[str, list[Any]] | None = None) -> bool:
        """One round of one session. Whether anything came."""
        link = session.link
        wanted = {next(self._sequence): key for key, consumer in session.consumers.items() if not consumer.partial}
        for sequence, consumer_id in wanted.items():
            link.send(packets.ForceConsumerDelivery(consumer_id, sequence))
        link.ask(packets.QueueQuery("nothing of this name"))
        link.wait(lambda: not deliveries.missing(link, wanted) or deliveries.is_gone(link), 3)
        partial = any(consumer.partial for consumer in session.consumers.values()) or deliveries.begun_by(link)
        link.take(_PIECES_S if partial else 0.001)
        link.wait(lambda: not deliveries.missing(link, wanted) or deliveries.is_gone(link), 3)
        missing = deliveries.missing(link, wanted)
        fresh = False
        for packet in link.unasked:
            message = deliveries.message_of(packet)
            consumer = session.consumers.get(getattr(packet, "consumer_id", -1))
            if message is not None and FORCED_DELIVERY in message.properties:
                continue
            if deliveries.is_left_out(consumer, packet, message):
                continue
            fresh = True
            key = name
            if message is not None and consumer is not None:
                deliveries.note(consumer, packet, message)
            if isinstance(packet, packets.DisconnectConsumer):
                session.consumers.pop(packet.consumer_id, None)
                missing.discard(packet.consumer_id)
            elif hasattr(packet, "consumer_id"):
                key = f"{name}.{packet.consumer_id}"
            if news is not None:
                self._normaliser.add(news.setdefault(key, []), packet, message)
        link.unasked.clear()
        for consumer_id in missing:
            session.consumers.pop(consumer_id, None)
            if news is not None:
                news.setdefault(f"{name}.{consumer_id}", []).append("no marker")
        if link.closed and news is not None and name in self._sessions:
            news.setdefault(name, []).append("connection closed by the broker")
            del self._sessions[name]
        return fresh

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
        for divert in self._routes.diverts:
            self._managing = self._managing or Managing(self._port)
            self._managing.ask("destroyDivert", divert)
        for number, name in enumerate(names):
            short = self._normaliser.text(name)
            seen.append((f"end: address {short}", self._ask(session, packets.BindingQuery(name))))
            answer = session.link.ask(packets.QueueQuery(name))
            lends = getattr(answer, "non_destructive", False)  # exclusions.DELIVERIES_OF_LOANS
            if isinstance(answer, packets.QueueQueryResponse) and answer.exists and not lends:
                browse = steps.Consume("look", number, "", browse=True)
                seen.append((f"end: in {short}", self._drain(session, browse, name)))
                if answer.durable:  # else exclusions.BROWSED_ALONE; by now Artemis has moved dead letters, too
                    answer = session.link.ask(packets.QueueQuery(name))
            seen.append((f"end: queue {short}", self._normaliser.packet(answer)))
        for number, name in enumerate(("dead", "expired"), len(names)):
            consume = steps.Consume("look", number, "")
            seen.append((f"end: in {name}", self._drain(session, consume, name)))
        for name in names:
            session.link.ask(packets.DeleteQueue(name))
        self._close(session, steps.CloseSession("look"))
        return seen

    def _drain(self, session: Session, step: steps.Consume, name: str) -> Any:
        """All messages of a queue, consumed and acknowledged."""
        own = None if step.browse or self._alone else f"_AMQ_ORIG_ADDRESS LIKE '%{self._mark}%'"
        session.link.ask(packets.CreateConsumer(step.consumer, name, own, step.browse, True, 0))
        session.link.send(packets.FlowToken(step.consumer, -1))
        session.consumers[step.consumer] = Consumer(
            step.browse, paged_before_restart=self._routes.paged_before_restart(name)
        )
        news = self._rest().get(f"look.{step.consumer}", [])
        consumer = session.consumers.pop(step.consumer, None)
        if consumer is not None:
            if consumer.received and not step.browse:
                session.link.ask(packets.Acknowledge(step.consumer, consumer.received[-1], True))
            session.link.ask(packets.ConsumerClose(step.consumer))
        if not step.browse:  # the order in time of dead letters of different queues is not promised
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
