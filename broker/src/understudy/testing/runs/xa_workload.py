"""Simulated applications that work in XA branches, each with a transaction manager of its own.

A worker starts a branch, sends or acknowledges in it, ends it, has it prepared and then commits it or rolls it back.
``BranchLog`` is the log of its transaction manager: it outlives the process of the worker. A worker that starts again
asks the broker which branches are in doubt and decides each of them as the log says, or rolls it back if the log has no
decision. So the outcome of every branch of two phases is known in the end, and the ledger has it: messages sent in it
are CONFIRMED or REFUSED, and acknowledgements are ACKNOWLEDGED or REFUSED.

Any ``XaError`` that a failover does not explain is not caught and fails the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from enum import Enum, auto
from functools import partial
from typing import Final

from understudy.client import aio
from understudy.client.core.connection.listeners import FailureCode
from understudy.client.core.session.xa import is_rollback
from understudy.dataclass import dataclass
from understudy.errors import AddressFull, BrokerError, ConnectionLost, XaCode, XaError
from understudy.ids import Xid
from understudy.ledger import Row
from understudy.testing.runs.workload import (
    NUMBER_PROPERTY,
    PRODUCER_PROPERTY,
    START_OVER_S,
    TRYING_AGAIN_HELPS,
    ClientPlan,
    ConsumerJob,
    ProducerJob,
    body_of,
    close_connection,
    confirmer,
    next_name,
    receive,
    start_over,
    unread_if_it_fails,
    wait_until,
)

_FORMAT_ID: Final = 1
_RECEIPT_BYTES: Final = 60
#: Codes that say of a branch which was not prepared that a failover ended it, or that its request was cut off.
_ENDED_BY_FAILOVER: Final = (XaCode.UNKNOWN_XID, XaCode.RESOURCE_MANAGER_FAILED)


class Ending(Enum):
    """The end that a worker chooses for a branch."""

    COMMIT = auto()
    COMMIT_ONE_PHASE = auto()
    """The branch is committed without having been prepared."""
    ROLL_BACK = auto()
    ROLL_BACK_PREPARED = auto()
    """The branch is prepared and then rolled back."""


@dataclass(slots=True)
class BranchWork:
    """The sends and receives of a worker in a branch."""

    producer: str
    queue: str
    numbers: range
    """Numbers of the messages that were sent in the branch."""
    size_bytes: int
    taken: list[Row]
    """DELIVERED rows of the messages that it acknowledged."""
    decided: bool = False
    """Whether the branch is prepared, and its transaction manager has decided to commit it."""
    node_id: str = ""
    """Node id of the store in which it was to be prepared."""

    @property
    def transaction(self) -> str:
        """The name of the branch in the ledger."""
        return f"{self.producer}/{self.numbers.start}"


@dataclass(slots=True)
class BranchLog:
    """The log of a transaction manager, which survives its process."""

    open: dict[Xid, BranchWork] = field(default_factory=dict)
    """Branches that the broker was asked to prepare and whose outcome is not settled."""
    uncertain: bool = False
    """A request to prepare was cut off: the broker may still carry it out."""
    begun: int = 0


@dataclass(slots=True)
class BranchProducerJob(ProducerJob):
    """A producer that sends ``batch`` messages in each branch."""

    one_phase_every: int = 0
    """Number of branches of which one is committed without being prepared; 0: none is."""
    decide_s: float = 0.0
    """Between the answer to the request to prepare and the decision. Virtual seconds."""
    sends_on: bool = False
    """Whether the producer sends in a branch that a failover has rolled back, as the client of Artemis does; ours drops
    such messages."""
    patience_s: float = 10.0
    """After which a request that was cut off is not carried out any more."""
    log: BranchLog = field(default_factory=BranchLog, init=False, repr=False)


@dataclass(slots=True)
class BranchConsumerJob(ConsumerJob):
    """A consumer that acknowledges ``batch`` messages in each branch."""

    one_phase_every: int = 0
    """Like the field of a producer."""
    decide_s: float = 0.0
    """Time in s after which a prepared branch is decided, as for a producer, until all messages are sent."""
    receipts: int = 0
    """Number of messages that the job sends itself, one in each branch."""
    sends_on: bool = False
    """Like the field of a producer."""
    sent: int = 0
    log: BranchLog = field(default_factory=BranchLog, init=False, repr=False)


class _Manager:
    """The transaction manager of one worker, with the worker's present session."""

    def __init__(
        self,
        plan: ClientPlan,
        job: BranchProducerJob | BranchConsumerJob,
        name: str,
        connection: aio.Connection,
        session: aio.Session,
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._book = plan.book
        self._job = job
        self._log = job.log
        self._name = name
        self._session = session

    @property
    def _draining(self) -> bool:
        """All messages are sent. A single consumer with a pause in each branch could need longer than a run lasts."""
        return isinstance(self._job, BranchConsumerJob) and self._job.draining_since_s is not None

    async def begin(self) -> Xid:
        """Start a branch of the transaction manager.

        Raises:
            ConnectionLost: the answer was cut off. The session may work in the branch, so it is given up with it.
        """
        self._log.begun += 1
        xid = Xid(_FORMAT_ID, f"{self._name}/{self._log.begun}".encode(), b"\1")
        try:
            await self._session.xa.start(xid)
        except XaError as error:
            if error.xa_code != XaCode.RESOURCE_MANAGER_FAILED:
                raise
            raise ConnectionLost(f"the start of a branch was cut off: {error}") from error
        return xid

    def next_ending(self) -> Ending:
        """The end of the next branch, by the job."""
        job = self._job
        job.transactions += 1
        if job.rollback_every and job.transactions % job.rollback_every == 0:
            prepared = job.transactions // job.rollback_every % 2 == 0
            return Ending.ROLL_BACK_PREPARED if prepared else Ending.ROLL_BACK
        if job.one_phase_every and job.transactions % job.one_phase_every == 0:
            return Ending.COMMIT_ONE_PHASE
        return Ending.COMMIT

    def send(self, producer: aio.Producer, number: int, size_bytes: int) -> asyncio.Future[None]:
        """Send a message in the branch."""
        if self._job.sends_on:
            # the client would drop it in a branch that a failover undid, and count it as sent
            self._session._state.channel.open_work.rollback_only = False
        return producer.send_nowait(
            body_of(self._name, number, size_bytes),
            properties={PRODUCER_PROPERTY: self._name, NUMBER_PROPERTY: number},
        )

    async def conclude(
        self, xid: Xid, work: BranchWork, ending: Ending, sends: Sequence[asyncio.Future[None]] = ()
    ) -> None:
        """End the branch and decide it."""
        try:
            with unread_if_it_fails(sends):
                await self._session.xa.end(xid)
        except XaError as error:
            _check(error)
            ending = Ending.ROLL_BACK
        if any(await asyncio.gather(*sends, return_exceptions=True)):
            # one of the messages does not belong to the branch
            ending = Ending.ROLL_BACK
        if ending is Ending.ROLL_BACK:
            await self._roll_back(xid)
            self._note_sends_refused(work)
            return
        self._note_attempt(work)
        if ending is Ending.COMMIT_ONE_PHASE:
            await self._commit_one_phase(xid, work)
            return
        self._log.open[xid] = work
        work.node_id = confirmer(self._connection).node_id
        try:
            committed = await self._two_phases(xid, work, ending)
        except XaError as error:
            moved = error.xa_code == XaCode.UNKNOWN_XID and self._plan.others
            if error.xa_code != XaCode.RESOURCE_MANAGER_FAILED and not moved:
                raise
            # a request was cut off, or went to a member without the branch; the brokers know what became of it
            await self.recover()
        else:
            self._settled(xid, committed=committed)

    async def _two_phases(self, xid: Xid, work: BranchWork, ending: Ending) -> bool:
        """Prepare the branch and decide it. Whether it is committed.

        Raises:
            XaError: with RESOURCE_MANAGER_FAILED, the connection was lost before an answer.
        """
        try:
            await self._session.xa.prepare(xid)
        except XaError as error:
            _check(error)
            if error.xa_code == XaCode.RESOURCE_MANAGER_FAILED:
                raise
            return False
        if self._job.decide_s and not self._draining:
            await asyncio.sleep(self._job.decide_s)
        if ending is Ending.ROLL_BACK_PREPARED:
            await self._session.xa.rollback(xid)
            return False
        work.decided = True
        await self._session.xa.commit(xid)
        return True

    async def _commit_one_phase(self, xid: Xid, work: BranchWork) -> None:
        try:
            await self._session.xa.commit(xid, one_phase=True)
        except XaError as error:
            _check(error)
            if error.xa_code == XaCode.RESOURCE_MANAGER_FAILED:
                # commit and rollback are both correct outcomes
                self._count_done(work)
            else:
                self._note_refused(work)
            return
        self._note_done(work)

    async def _roll_back(self, xid: Xid) -> None:
        """Roll back a branch that may be rolled back already."""
        try:
            await self._session.xa.rollback(xid)
        except XaError as error:
            _check(error)

    async def recover(self) -> bool:
        """Decide the branches of this worker that are in doubt, and settle what the log has of others. Whether there
        were any.
        """
        while True:
            try:
                return await self._recover()
            except XaError as error:
                if error.xa_code != XaCode.RESOURCE_MANAGER_FAILED:
                    raise

    async def _recover(self) -> bool:
        in_doubt: set[Xid] = set()
        # a branch that moves meanwhile is at one of two members in at least one of two searches
        for _ in range(2 if self._plan.others else 1):
            in_doubt |= await self._decide(self._session)
            for url in self._plan.others:
                in_doubt |= await self._decide_at(url)
        if self._plan.nodes:
            in_doubt |= await self._decide_at_nodes()
        for xid, work in tuple(self._log.open.items()):
            # a branch that is decided and not in doubt was committed by a request whose answer was lost
            self._log.uncertain = self._log.uncertain or not (work.decided or xid in in_doubt)
            self._settled(xid, committed=work.decided)
        return bool(in_doubt)

    async def _decide(self, session: aio.Session) -> set[Xid]:
        """Decide the branches of this worker that are in doubt at one broker, and return their names."""
        prefix = f"{self._job.name}.".encode()
        in_doubt = {xid for xid in await session.xa.recover() if xid.global_transaction_id.startswith(prefix)}
        for xid in sorted(in_doubt, key=str):
            work = self._log.open.get(xid)
            try:
                if work is not None and work.decided:
                    await session.xa.commit(xid)
                else:
                    await session.xa.rollback(xid)
            except XaError as error:
                # the request before was still under way, or the branch has moved
                if error.xa_code != XaCode.UNKNOWN_XID:
                    raise
        return in_doubt

    async def _decide_at_nodes(self) -> set[Xid]:
        """``_decide`` at single nodes, until the store of each open branch was asked."""
        in_doubt: set[Xid] = set()
        missing = {work.node_id for work in self._log.open.values()}
        while missing:
            for url in self._plan.nodes:
                with suppress(*TRYING_AGAIN_HELPS):
                    connection = await self._plan.connect(url)
                    try:
                        in_doubt |= await self._decide(await connection.session(xa=True))
                        missing.discard(confirmer(connection).node_id)
                    finally:
                        await close_connection(connection)
            if missing:
                await asyncio.sleep(START_OVER_S)
        return in_doubt

    async def _decide_at(self, url: str) -> set[Xid]:
        """Decide a branch at another member once that member can be reached."""
        while True:
            connection: aio.Connection | None = None
            try:
                connection = await self._plan.connect(url)
                return await self._decide(await connection.session(xa=True))
            except TRYING_AGAIN_HELPS:
                await asyncio.sleep(START_OVER_S)
            finally:
                if connection is not None:
                    await close_connection(connection)

    async def settle(self, patience_s: float) -> None:
        """Wait until no branch of this worker is in doubt and none can become it any more."""
        if self._log.uncertain:
            await asyncio.sleep(patience_s)
            while await self.recover():
                continue
            self._log.uncertain = False

    # rows for the ledger

    def _settled(self, xid: Xid, *, committed: bool) -> None:
        work = self._log.open.pop(xid)
        if committed:
            self._note_done(work)
        else:
            self._note_refused(work)

    def _note_attempt(self, work: BranchWork) -> None:
        for number in work.numbers:
            body = body_of(work.producer, number, work.size_bytes)
            self._book.sent(work.producer, number, work.queue, body, work.transaction)
        for row in work.taken:
            self._book.acknowledging(row)

    def _count_done(self, work: BranchWork) -> None:
        if isinstance(self._job, BranchProducerJob):
            self._job.done += len(work.numbers)

    def _note_done(self, work: BranchWork) -> None:
        self._count_done(work)
        for number in work.numbers:
            self._book.confirmed(work.producer, number, work.queue, confirmer(self._connection), work.transaction)
        for row in work.taken:
            self._book.acknowledged(row, confirmer(self._connection))

    def _note_refused(self, work: BranchWork) -> None:
        self._note_sends_refused(work)
        for row in work.taken:
            self._book.acknowledgement_refused(row)

    def _note_sends_refused(self, work: BranchWork) -> None:
        for number in work.numbers:
            self._book.refused(work.producer, number, work.queue, work.transaction)


def _check(error: XaError) -> None:
    """Raise an error that does not say that a branch was rolled back, or may have been."""
    if error.xa_code not in _ENDED_BY_FAILOVER and not is_rollback(error):
        raise error


async def produce_in_branches(plan: ClientPlan, job: BranchProducerJob) -> None:
    """Carry out a producer's work, starting over as often as it takes."""
    await start_over(plan, partial(next_name, job), partial(_produce, plan, job))


async def _produce(plan: ClientPlan, job: BranchProducerJob, name: str, connection: aio.Connection) -> None:
    session = await connection.session(xa=True)
    manager = _Manager(plan, job, name, connection, session)
    await manager.recover()
    producer = await session.producer(job.queue, window=max(job.window, job.batch))
    number = 0
    while job.done < job.count:
        xid = await manager.begin()
        numbers = range(number, number + min(job.batch, job.count - job.done))
        number = numbers.stop
        sends: list[asyncio.Future[None]] = []
        ending = manager.next_ending()
        try:
            with unread_if_it_fails(sends):
                for each in numbers:
                    await producer.wait_sendable()
                    sends.append(manager.send(producer, each, job.size_bytes))
                    if not job.hasty:
                        await sends[-1]
                    if job.pause_s:
                        await asyncio.sleep(job.pause_s / job.batch)
        except AddressFull:
            ending = Ending.ROLL_BACK
        await manager.conclude(xid, BranchWork(name, job.queue, numbers, job.size_bytes, []), ending, sends)
    await manager.settle(job.patience_s)
    await session.close()


async def consume_in_branches(plan: ClientPlan, job: BranchConsumerJob) -> None:
    """Carry out a consumer's work, starting over as often as it takes."""
    if job.begins_s:
        await wait_until(job.begins_s)
    await start_over(plan, partial(next_name, job), partial(_consume, plan, job))


async def _consume(plan: ClientPlan, job: BranchConsumerJob, name: str, connection: aio.Connection) -> None:
    session = await connection.session(xa=True)
    manager = _Manager(plan, job, name, connection, session)
    await manager.recover()
    plan.book.opened(job.queue, name)
    consumer = await session.consumer(job.queue)
    producer = await session.producer(job.queue) if job.receipts else None
    loop = asyncio.get_running_loop()
    last, failovers = loop.time(), 0
    began_ms = plan.book.now_ms()
    number = 0

    def failed_over(error: BrokerError, succeeded: bool, code: FailureCode) -> None:
        nonlocal began_ms
        began_ms = plan.book.now_ms()

    connection.add_failure_listener(failed_over)
    ended = False
    while not ended:
        xid = await manager.begin()
        taken: list[Row] = []
        silent = False
        while len(taken) < job.batch and not (silent and taken) and not ended:
            received = await receive(job, consumer)
            silent = received is None
            if received is not None:
                taken.append(plan.book.delivered(received, name, began_ms))
                last = loop.time()
                if job.pause_s:
                    await asyncio.sleep(job.pause_s)
            if connection.failing_over or connection.failovers > failovers:
                # silence counts only while the broker could have sent something
                last, failovers = loop.time(), connection.failovers
            since = job.draining_since_s
            ended = silent and since is not None and loop.time() - max(last, since) >= job.idle_s
        numbers, sends = range(number, number), []
        if producer is not None and taken and job.sent < job.receipts:
            job.sent += 1
            numbers = range(number, number + 1)
            await producer.wait_sendable()
            sends.append(manager.send(producer, number, _RECEIPT_BYTES))
        number = numbers.stop
        work = BranchWork(name, job.queue, numbers, _RECEIPT_BYTES, taken)
        await manager.conclude(xid, work, manager.next_ending() if taken else Ending.ROLL_BACK, sends)
        if ended and await manager.recover():
            # an interrupted request arrived late: the messages of its branch are in the queue again
            ended, last = False, loop.time()
    await session.close()
    plan.book.closed(job.queue, name)
