"""Simulated applications of AMQP 0-9-1 that resume their session after every cut (ADR 0195).

A producer with confirms sends publishes that were not accepted again under their numbers: none of them may be lost or
doubled. A consumer goes on with the deliveries that it has, and repeats acknowledgements that may not have arrived.
Both keep their name in the ledger as long as the session lasts.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from typing import Any

from understudy.dataclass import dataclass
from understudy.errors import ConnectionFailed
from understudy.ledger import UNKNOWN, Row
from understudy.testing.runs.amqp_client import AmqpClient, AmqpDelivery, AmqpSession
from understudy.testing.runs.amqp_workload import (
    RECEIVE_S,
    AmqpConsumerJob,
    AmqpProducerJob,
    heartbeat_of,
    nodes_of,
    outcome,
    properties_of,
)
from understudy.testing.runs.checkers import Violation
from understudy.testing.runs.workload import (
    START_OVER_S,
    TRYING_AGAIN_HELPS,
    ClientPlan,
    NamedJob,
    body_of,
    next_name,
    wait_until,
)
from understudy.wire.amqp091 import methods as m

#: Timeout of the sessions, the longest one. Virtual seconds.
_TIMEOUT_S = 300
#: Time after the last connection within which a session must be there. Virtual seconds.
_KEPT_S = 280
_GENERATION_SHIFT = 48
#: Reply codes for errors that these clients do not make.
_ERRORS_OF_CLIENT = (406, 501, 502, 503, 504, 505, 530)


@dataclass(slots=True)
class SessionProducerJob(AmqpProducerJob):
    """A producer with confirms that resumes its session."""

    leaves_after: int = 0
    """Messages after which it cuts its connection and goes on at another node; 0: it stays as long as it can."""


@dataclass(slots=True)
class SessionConsumerJob(AmqpConsumerJob):
    """A consumer without transactions that resumes its session."""

    session: str = ""
    """UUID of its newest session, which it keeps on disk: a process that is killed leaves a session with deliveries."""
    leaves_after: int = 0
    """Messages after which it cuts its connection, as a ``SessionProducerJob`` does; 0: it stays."""


class _Resuming:
    """Connections of one application, one after the other, in one session as long as it lasts."""

    def __init__(self, plan: ClientPlan, job: NamedJob) -> None:
        self._plan = plan
        self._job = job
        self._nodes = nodes_of(plan)
        self._turn = 0
        self._last_s = 0.0
        """Time at which the last connection was of use."""
        self.name = ""
        self.uuid = ""
        """UUID of the session."""
        self.begun = False
        """Whether the channel was open before."""

    def begin(self) -> None:
        """Begin a session under the next name."""
        self.name = next_name(self._job)
        self.begun = False

    async def end_former(self) -> None:
        """End the session that a killed process of the application has left. The messages of its deliveries, and those
        for which other nodes have consumers, wait for it otherwise until its timeout."""
        while True:
            host, port = self._next_node()
            session = AmqpSession({"qpid.session.resume": self.uuid, "qpid.session.timeout": _TIMEOUT_S}, "status")
            try:
                client = await AmqpClient.connect(host, port, self._job.queue, heartbeat_of(self._plan), session)
                await client.close()
            except TRYING_AGAIN_HELPS:
                if session.refused_with == 404:
                    return
                await asyncio.sleep(START_OVER_S)
            else:
                return

    def _next_node(self) -> tuple[str, int]:
        self._turn += 1
        return self._nodes[(self._turn - 1) % len(self._nodes)]

    def complain(self, text: str) -> None:
        """Note that the broker has broken a rule of sessions."""
        self._plan.book.violations.append(Violation("client", f"{self.name}: {text}"))

    async def connect(self, tag: int, publishes: int) -> AmqpClient | None:
        """The next connection, with its channel; None: the session is gone.

        Args:
            tag: Last delivery tag that was seen.
            publishes: Number of publishes that were sent.
        """
        loop = asyncio.get_running_loop()
        while True:
            host, port = self._next_node()
            if not self.begun:
                # a start without an answer may have begun a session at its node: with the same UUID another node would
                # begin a second one (ADR 0199)
                attempt = f"{self.name} {self._turn}".encode()
                self.uuid = str(uuid.UUID(bytes=hashlib.sha256(attempt).digest()[:16], version=4))
            kind, text = ("resume", f"resume;tag={tag};seq={publishes}") if self.begun else ("start", "status")
            session = AmqpSession(
                {f"qpid.session.{kind}": self.uuid, "qpid.session.timeout": _TIMEOUT_S}, text
            )  # fmt: skip
            try:
                client = await AmqpClient.connect(host, port, self._job.queue, heartbeat_of(self._plan), session)
            except TRYING_AGAIN_HELPS:
                if session.refused_with == 404 and self.begun:
                    if loop.time() - self._last_s < _KEPT_S:
                        self.complain("the session is gone before its timeout")
                    return None
                await asyncio.sleep(START_OVER_S)
                continue
            if self.begun and not session.status["channel"]["resumed"]:
                self.complain("the channel was not resumed")
                return None
            self.begun = True
            if isinstance(self._job, SessionConsumerJob):
                self._job.session = self.uuid
            return client

    def used(self, client: AmqpClient) -> None:
        """The connection is of no use any more. The broker must not have ended it for an error of its client."""
        if client.closed_with in _ERRORS_OF_CLIENT:
            self.complain(f"the broker has closed with {client.closed_with}")
        self._last_s = asyncio.get_running_loop().time()


class _Stay:
    """The time that an application stays at a node."""

    def __init__(self, messages: int) -> None:
        """``messages``: number after which it leaves; 0: it does not."""
        self._messages = messages
        self._count = 0

    def count(self) -> None:
        """Count a message. Raises ConnectionFailed: the application leaves."""
        self._count += 1
        if self._messages and self._count > self._messages:
            raise ConnectionFailed("the application goes to another node")


# --- producers -------------------------------------------------------------------------------------


async def produce_in_session(plan: ClientPlan, job: SessionProducerJob) -> None:
    """Carry out a producer's work over as many connections as it takes."""
    resuming = _Resuming(plan, job)
    while job.done < job.count:
        resuming.begin()
        await _Producer(plan, job, resuming).run()


class _Producer:
    """A producer in one session."""

    def __init__(self, plan: ClientPlan, job: SessionProducerJob, resuming: _Resuming) -> None:
        self._plan = plan
        self._job = job
        self._resuming = resuming
        self._sent: dict[int, tuple[int, bytes]] = {}
        """Number in the ledger and body of publishes that are not confirmed, by their number on the channel."""
        self._next = 1
        """Number of the next publish on the channel."""
        self._named = 1
        """Number of the next message in the ledger."""
        self._confirmed = 0
        """Highest number on the channel that was confirmed."""

    async def run(self) -> None:
        job = self._job
        while job.done < job.count or self._sent:
            client = await self._resuming.connect(0, self._next - 1)
            if client is None:
                return
            try:
                await self._go_on(client)
                await self._publish(client)
                await client.close()
            except TRYING_AGAIN_HELPS:
                await asyncio.sleep(START_OVER_S)
            finally:
                if client.returned:
                    self._resuming.complain(f"{client.returned} messages were returned, although the queue is there")
                client.fail(ConnectionFailed("the application has ended it"))
                self._resuming.used(client)

    async def _go_on(self, client: AmqpClient) -> None:
        """Select confirms on a new channel, or send publishes again that were not accepted."""
        status: dict[str, Any] = client.status["channel"]
        if not status["resumed"] or status["mode"] != "confirm":
            if self._next > 1:
                self._resuming.complain("the mode of the channel is lost")
            await client.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
            return
        publishes = status["publishes"]
        accepted = publishes["accepted"]
        if accepted >= self._next:
            self._resuming.complain(f"{accepted} publishes accepted of {self._next - 1}")
        if self._job.leaves_after and accepted < self._confirmed:
            self._resuming.complain(f"{accepted} publishes accepted, and {self._confirmed} were confirmed")
        for number in [each for each in self._sent if each <= accepted]:
            named, _ = self._sent.pop(number)
            if number in publishes["rejected"]:
                self._plan.book.refused(self._resuming.name, named, self._job.queue)
            else:
                self._plan.book.confirmed(self._resuming.name, named, self._job.queue, UNKNOWN)
        # numbers that were confirmed may be missing where the log is damaged
        self._sent = dict(enumerate(self._sent.values(), accepted + 1))
        self._next = accepted + 1 + len(self._sent)
        client.number_from(accepted + 1)
        for number in list(self._sent):
            self._send(client, number)

    def _send(self, client: AmqpClient, number: int) -> None:
        name, queue = self._resuming.name, self._job.queue
        named, body = self._sent[number]
        future = client.publish(queue, properties_of(name, named), body)
        future.add_done_callback(outcome(self._plan, name, named, queue))

        def forget(done: asyncio.Future[bool]) -> None:
            if not done.cancelled() and done.exception() is None:
                self._sent.pop(number, None)
                self._confirmed = max(self._confirmed, number)

        future.add_done_callback(forget)

    async def _publish(self, client: AmqpClient) -> None:
        job, book = self._job, self._plan.book
        stays = _Stay(job.leaves_after)
        while job.done < job.count:
            stays.count()
            if client.error is not None:
                raise client.error
            body = body_of(self._resuming.name, self._named, job.size_bytes)
            book.sent(self._resuming.name, self._named, job.queue, body)
            job.done += 1
            self._sent[self._next] = self._named, body
            self._named, self._next = self._named + 1, self._next + 1
            self._send(client, self._next - 1)
            while len(self._sent) >= job.window:
                await client.confirmation()
            if job.pause_s:
                await asyncio.sleep(job.pause_s)
        while self._sent:
            await client.confirmation()


# --- consumers -------------------------------------------------------------------------------------


async def consume_in_session(plan: ClientPlan, job: SessionConsumerJob) -> None:
    """Carry out a consumer's work over as many connections as it takes."""
    if job.begins_s:
        await wait_until(job.begins_s)
    resuming = _Resuming(plan, job)
    if job.session:
        resuming.uuid = job.session
        await resuming.end_former()
    ended = False
    while not ended:
        resuming.begin()
        ended = await _Consumer(plan, job, resuming).run()


class _Consumer:
    """A consumer in one session."""

    def __init__(self, plan: ClientPlan, job: SessionConsumerJob, resuming: _Resuming) -> None:
        self._plan = plan
        self._job = job
        self._resuming = resuming
        self._began_ms = plan.book.now_ms()
        self._seen = 0
        """Tag of the last delivery."""
        self._settled = 0
        """Tag of the last delivery that was acknowledged."""
        self._taken: list[tuple[AmqpDelivery, Row]] = []

    async def run(self) -> bool:
        """Consume. Returns whether the work is done; False: the session is gone."""
        while True:
            client = await self._resuming.connect(self._seen, 0)
            if client is None:
                return False
            try:
                await self._go_on(client)
                await self._consume(client)
                await client.close()
                return True
            except TRYING_AGAIN_HELPS:
                await asyncio.sleep(START_OVER_S)
            finally:
                client.fail(ConnectionFailed("the application has ended it"))
                self._resuming.used(client)

    async def _go_on(self, client: AmqpClient) -> None:
        """Begin to consume on a new channel, or settle again on a resumed one."""
        job, status = self._job, client.status
        consumers = [each["tag"] for each in status["channel"]["consumers"] if each["state"] == "active"]
        if not consumers:
            self._plan.book.opened(job.queue, self._resuming.name)
            await client.ask(m.BasicQos(0, max(job.prefetch, job.batch), for_channel=False), m.BasicQosOk)
            await client.ask(m.BasicConsume(0, job.queue, self._resuming.name), m.BasicConsumeOk)
            return
        deliveries = status["channel"]["deliveries"]
        lost = deliveries["lost"] or status["session"]["generation"] != self._seen >> _GENERATION_SHIFT
        if lost:
            self._taken = []
        if self._settled:
            # it may not have arrived; after a loss it is of a former generation
            client.send(m.BasicAck(self._settled, multiple=True))
        first = iter(deliveries["unacked"])
        unacked = {tag for begin, end in zip(first, first, strict=True) for tag in range(begin, end + 1)}
        missing = [each.tag for each, _ in self._taken if each.tag not in unacked]
        if missing:
            self._resuming.complain(f"deliveries {missing} are outstanding, and not in the status")

    async def _consume(self, client: AmqpClient) -> None:
        loop, job, book = asyncio.get_running_loop(), self._job, self._plan.book
        last, stays = loop.time(), _Stay(job.leaves_after)
        while True:
            received = await client.receive(RECEIVE_S)
            if received is not None:
                stays.count()
                self._seen = received.tag
                self._taken.append((received, book.delivered(received, self._resuming.name, self._began_ms)))
                last = loop.time()
                if job.pause_s:
                    await asyncio.sleep(job.pause_s)
            if self._taken and (received is None or len(self._taken) >= job.batch):
                for _, row in self._taken:
                    book.acknowledging(row)
                taken, self._taken = self._taken, []
                self._settled = taken[-1][0].tag
                client.send(m.BasicAck(self._settled, multiple=True))
            since = job.draining_since_s
            if received is None and since is not None and loop.time() - max(last, since) >= job.idle_s:
                break
        book.closed(job.queue, self._resuming.name)
