"""The local transaction of one session: its work, its commit or rollback, and its outcome after a failover. In sessions
without one: the return of messages in work.

Artemis-core s. 6.4 and 8.3: work that was given to a server's session went with it, so the next
commit rolls back and fails with ``TransactionRolledBack``; a commit that was under way has an unknown
outcome, ``CommitOutcomeUnknown``, and the way to find out is to do the transaction again with
the same duplicate ids: it commits, or fails with ``DuplicateIdRejected`` because it had committed.

Messages sent while no connection works go to the next session, so they are not lost with the old one.

A message is in work from the moment in which the application gets it until the next one is asked for (AUTO, DUPS_OK) or
until it is acknowledged (CLIENT, INDIVIDUAL). To give it back with its delivery counted is JMS recover (artemis-core
s. 6.4): stop, acknowledge the finished ones, roll back, start. A rollback takes back all deliveries of the session:

- AUTO and DUPS_OK acknowledge at the server at once. The rollback counts the first outstanding delivery of each
  consumer, which is the message in work. A consumer without one, but with messages in its buffer, is replaced by a
  new one before the rollback, so that none of these counts as delivered.
- CLIENT and INDIVIDUAL acknowledge in a transaction of the server's session. Messages that are acknowledged in the
  transaction which is rolled back count as delivered, the others do not.

Not here: XA branches (``xa``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.client.core.connection.calls import Call, Interrupted, Waiter, settle
from understudy.client.core.consumer.consumers import Consumers
from understudy.client.core.consumer.state import ConsumerState
from understudy.client.core.session.channel import Channel
from understudy.client.core.session.sends import Sends
from understudy.errors import BrokerError, CommitOutcomeUnknown, IllegalState, TransactionRolledBack
from understudy.wire.core.packets import Commit, NullResponse, Packet, Rollback, SessionStop


class Transactions:
    """The local transactions of one session, one after the other."""

    def __init__(self, channel: Channel, sends: Sends, consumers: Consumers) -> None:
        self._channel = channel
        self._sends = sends
        self._consumers = consumers
        self._transacted = channel.options.transacted
        self._work = channel.open_work

    @property
    def uncommitted(self) -> bool:
        """Whether a local transaction has work that the next commit would make count."""
        return self._transacted and (self._work.given or self._work.late)

    def session_lost(self, *, in_branch: bool) -> bool:
        """The server's session is gone; whether it took work of ours with it."""
        work = self._work
        doomed = (work.given and self._transacted) or in_branch
        # A commit that was not sent takes the news with it and the next work is a new transaction.
        work.rollback_only = (doomed or work.rollback_only) and not self._channel.calls.bound
        work.given = work.late and not doomed
        work.late = False
        return doomed

    def commit(self, waiter: Waiter[None]) -> None:
        """Commit; fails with ``TransactionRolledBack`` or ``CommitOutcomeUnknown`` as they say."""
        self._check()
        # sends that wait for credits belong to the transaction: its commit must not overtake them
        self._sends.when_none_waits(lambda: self._commit(waiter))

    def _commit(self, waiter: Waiter[None]) -> None:
        if self._work.rollback_only:
            self.rollback(waiter, TransactionRolledBack("a failover undid the work of this transaction"))
            return

        def build(correlation_id: int) -> Packet:
            self._consumers.acknowledge_all()
            self._work.given = False
            return Commit(correlation_id)

        def interruption(error: BrokerError, sent: bool) -> BaseException:
            if sent:
                return CommitOutcomeUnknown(
                    f"the connection was lost before the answer to the commit: {error}",
                    hint="the same again with the same duplicate ids commits, or fails with DuplicateIdRejected",
                )
            return TransactionRolledBack(f"the connection was lost before the commit: {error}")

        answered = settle(waiter, lambda _: None)
        call = Call("commit", build, (NullResponse,), answered, Interrupted.FAIL, interruption, bound=True)
        self._channel.calls.add(call)

    def rollback(self, waiter: Waiter[None], outcome: BrokerError | None = None) -> None:
        """Undo the transaction: stop, acknowledge the taken messages (so that their delivery count
        stays), roll back, start (artemis-core s. 6.4).

        Args:
            outcome: Error to hand to the waiter when done.
        """
        self._check()
        channel, consumers = self._channel, self._consumers
        self._sends.drop()

        def stopped(packet: Any, error: BaseException | None) -> None:
            consumers.rolled_back()

        def done(packet: Any, error: BaseException | None) -> None:
            self._work.given = self._work.rollback_only = False
            # a reattachment repeats deliveries of before, if the stop got no answer in time: they are returned, too
            consumers.returned()
            channel.start()
            settle(waiter, lambda _: None)(None, error or outcome)

        stop = Call("stop", lambda _: SessionStop(), (NullResponse,), stopped, Interrupted.FORGET, bound=True)
        channel.calls.add(stop)
        undo = Call("rollback", lambda _: Rollback(False), (NullResponse,), done, Interrupted.FORGET, bound=True)
        channel.calls.add(undo)

    def work_failed(self, consumer: ConsumerState, waiter: Waiter[None]) -> None:
        """Give back the messages in work if this consumer has one."""
        self.return_unfinished(lambda: settle(waiter)(None, None), of=consumer)

    def return_unfinished(
        self, then: Callable[[], None], *, of: ConsumerState | None = None, closing: bool = False
    ) -> None:
        """Give back all messages in work of the session, if there are any; their deliveries count. In a transacted
        session there are none: its rollback or close does it.

        An error at the broker is logged: it costs the connection, and the messages come back with that.

        Args:
            then: Called when the broker has them.
            of: Only if this consumer has one; None for any consumer.
            closing: The session will be closed next, so that nothing is delivered to it any more.
        """
        channel, consumers = self._channel, self._consumers
        if channel.closed is not None or not (consumers.in_work if of is None else of.work.unfinished):
            then()
            return
        count_first = consumers.acknowledge_at_once

        def stopped(packet: Any, error: BaseException | None) -> None:
            if packet is None:
                return  # the server's session is gone, and its deliveries with it
            channel.generation += 1
            consumers.acknowledge_finished()
            if count_first:
                consumers.replace_idle(closing=closing)
            consumers.returned()

        def done(packet: Any, error: BaseException | None) -> None:
            if error is not None:
                channel.complaint(f"messages in work could not be given back: {error}")
            elif packet is not None:
                # a reattachment repeats deliveries of before, as in ``rollback``
                consumers.returned()
                if not closing:
                    channel.start()
            then()

        stop = Call("stop", lambda _: SessionStop(), (NullResponse,), stopped, Interrupted.FORGET, bound=True)
        channel.calls.add(stop)
        undo = Call("give back", lambda _: Rollback(count_first), (NullResponse,), done, Interrupted.FORGET, bound=True)
        channel.calls.add(undo)

    def _check(self) -> None:
        channel = self._channel
        if channel.closed is not None:
            raise channel.closed
        if not self._transacted:
            raise IllegalState("the session is not transacted")
