"""State that the sessions of a node share: above all its XA branches, under way, in doubt, and decided by an operator.

Branches that were not prepared are rolled back when they are too old (``transaction-timeout``); a
prepared one waits for its transaction manager without limit, through restarts and takeovers, unless an
operator decides (a *heuristic* outcome), which is remembered until the manager forgets it. So is the node
to which a scale-down moved one (``branch``).

Not here: what a session asks about branches (``xa``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Final, NoReturn

from understudy.errors import BrokerError, TransactionError, TransactionRolledBack, XaCode, XaError
from understudy.ids import Xid
from understudy.limits import TRANSACTION_MESSAGES_OF_NODE_MAX, XA_BRANCHES_MAX
from understudy.ports import Clock, Timers
from understudy.routing.batch import BatchSends
from understudy.routing.lifecycle.periodic_scan import PeriodicScan
from understudy.routing.memory import AddressMemory
from understudy.routing.post_office import Done, PostOffice, ResponseOrder
from understudy.routing.queues.queue import Queue
from understudy.session.branch import Branch, BranchMember, Event, Kind, MovedBranches, State, decode_name, encode_name
from understudy.session.transaction import Transaction, Work
from understudy.store.messages.reference import MessageReference
from understudy.store.state import StoreState, TransactionRecord

log = logging.getLogger(__name__)

Returned = dict[Queue, list[MessageReference]]
"""Acknowledged deliveries of a transaction that was rolled back, to be given back to their queues."""

_HEURISTIC_CODES: Final = {
    Kind.HEURISTICALLY_COMMITTED: XaCode.HEURISTIC_COMMIT,
    Kind.HEURISTICALLY_ROLLED_BACK: XaCode.HEURISTIC_ROLLBACK,
}


class ResourceManager:
    """All XA branches of a node, by their identifiers."""

    def __init__(
        self,
        office: PostOffice,
        clock: Clock,
        timers: Timers,
        *,
        timeout_ms: int = 300_000,
        scan_period_ms: int = 1_000,
    ) -> None:
        """Args:
        timeout_ms: Age at which a branch that is not prepared is rolled back (transaction-timeout).
        scan_period_ms: How often ages are looked at (transaction-timeout-scan-period).
        """
        self.timeout_ms = timeout_ms
        self.work = Work("node", TRANSACTION_MESSAGES_OF_NODE_MAX)
        """Number of messages in all open transactions, with or without XA."""
        self.batch_sends = BatchSends(office)
        """Takes the plain messages of all sessions."""
        self._office = office
        self._clock = clock
        self._branches: dict[Xid, Branch] = {}
        self._heuristics: dict[Xid, tuple[Kind, int]] = {}
        """Kind, and the transaction of the log that remembers it."""
        self._moved = MovedBranches(office)
        self._order = ResponseOrder()
        self._sweep = PeriodicScan(timers, scan_period_ms, self._expire)

    def __len__(self) -> int:
        return len(self._branches)

    def __iter__(self) -> Iterator[Branch]:
        """All branches, prepared or not."""
        return iter(list(self._branches.values()))

    def close(self) -> None:
        """The node stops; the next activation rolls back branches that are not prepared."""
        self._sweep.close()

    # -- branches ---------------------------------------------------------------------------------

    def create(self, xid: Xid, event: Event, timeout_ms: int, work: Work) -> Branch:
        """A new branch. Raises XaError: the name is taken, or there are too many."""
        known = self._branches.get(xid)
        if known is not None and known.state is State.ROLLED_BACK and known.refusal:
            # the transaction manager took the rollback code of its prepare as the end of the branch
            self.roll_back(known)
        if xid in self._branches or xid in self._heuristics or self._moved.has_come(xid):
            raise XaError("there is a branch of this name", xa_code=XaCode.DUPLICATE_XID)
        if len(self._branches) >= XA_BRANCHES_MAX:
            raise XaError(f"{len(self._branches)} branches, limit {XA_BRANCHES_MAX}")
        now_ms = self._clock.monotonic_ms()
        transaction = Transaction(self._office, started_ms=now_ms, within=work)
        branch = Branch(xid, transaction, expires_ms=now_ms + timeout_ms)
        branch.fire(event)
        self._branches[xid] = branch
        self._moved.remove(xid)
        return branch

    def failed(self, xid: Xid, timeout_ms: int, work: Work) -> Branch:
        """The branch of that name, which a failover made rollback-only; a session goes on working in it.

        One that is not known is made, so that its manager gets a rollback code for it. Work for a branch that is
        prepared or decided already must not count, and must not be the branch's either: the branch returned for it
        is not registered and is rolled back when the session leaves it. The same if there are too many branches.
        """
        branch = self._branches.get(xid)
        decided_or_moved = xid in self._heuristics or xid in self._moved
        if branch is None and not decided_or_moved and len(self._branches) < XA_BRANCHES_MAX:
            branch = self.create(xid, Event.FAILED, timeout_ms, work)
        elif branch is None or branch.state in (State.PREPARED, State.ROLLED_BACK):
            # a prepared branch may still commit: its end must not say that it was rolled back
            decided = decided_or_moved or (branch is not None and branch.state is State.PREPARED)
            branch = Branch(xid, Transaction(self._office, within=work), expires_ms=0)
            branch.undone = XaCode.PROTOCOL if decided else XaCode.ROLLED_BACK
            branch.fire(Event.FAILED)
        else:
            branch.fire(Event.FAILED)
        branch.transaction.fail(TransactionRolledBack("a failover undid work of this branch"))
        return branch

    def get(self, xid: Xid, *, of_cluster: bool = False) -> Branch:
        """The branch of that name.

        Args:
            of_cluster: Whether another node of the cluster asks, not a client.

        Raises:
            XaError: no such branch, its outcome was heuristic, it was moved to another node, it is on its way here, or
                another node of the pair may have it by now.
        """
        branch = self._branches.get(xid)
        if branch is not None and branch.arriving and not of_cluster:
            raise XaError("another node moves the branch here", xa_code=XaCode.RESOURCE_MANAGER_FAILED)
        if branch is None:
            heuristic = self._heuristics.get(xid)
            if heuristic is not None:
                raise XaError(f"the branch was {heuristic[0].name.lower()}", xa_code=_HEURISTIC_CODES[heuristic[0]])
            node_id = self._moved.node_of(xid)
            if node_id is not None:
                # the error is not UNKNOWN_XID, from which a transaction manager concludes that the branch was decided
                text = f"the branch was moved to the node {node_id}, which decides it"
                raise XaError(text, xa_code=XaCode.RESOURCE_MANAGER_FAILED)
            self._check_active()
            raise XaError("no branch of this name", xa_code=XaCode.UNKNOWN_XID)
        return branch

    def _check_active(self) -> None:
        """Raise XaError (RESOURCE_MANAGER_FAILED) if another node of the pair may have taken over meanwhile, and may
        have branches that are not here: from UNKNOWN_XID, and from a list without its branch, a transaction manager
        concludes that the branch was decided.
        """
        if not self._office.permission.is_given():
            text = "another node of the pair may have taken over: ask again"
            raise XaError(text, xa_code=XaCode.RESOURCE_MANAGER_FAILED)

    def prepare(self, branch: Branch, *, came: bool = False) -> None:
        """Promise that it can commit. A promise given before holds: its answer was lost when it is asked for again.

        Args:
            branch: No session works in it.
            came: A scale-down has moved it here.

        Raises:
            XaError: it cannot be, and was rolled back.
        """
        if branch.state is State.PREPARED:
            return
        self._check_not_undone(branch)
        branch.require(Event.PREPARE)
        try:
            branch.transaction.prepare(encode_name(Kind.BRANCH, branch.xid))
        except BrokerError as error:
            self._refuse_prepare(branch, error)
        branch.fire(Event.PREPARE)
        branch.arriving = False
        if came:
            # after the branch in the log: only one that is here may be remembered
            self._moved.came(branch.xid)

    def commit(self, branch: Branch, one_phase: bool, order: ResponseOrder, done: Done) -> None:
        """Commit a branch. Raises XaError: it cannot be committed; with a rollback code it was rolled back."""
        event = Event.COMMIT_ONE_PHASE if one_phase else Event.COMMIT
        self._check_not_undone(branch)
        branch.require(event)
        try:
            branch.transaction.commit(order, done)
        except BrokerError as error:
            self._undo(branch, error)
        branch.fire(event)
        del self._branches[branch.xid]
        self._moved.decided(branch.xid)

    def roll_back(self, branch: Branch) -> Returned:
        """Roll a branch back. Returns the acknowledged deliveries, which the caller gives back.

        Raises:
            XaError: it cannot be decided now.
        """
        undone = branch.state is State.ROLLED_BACK
        branch.take(Event.ROLL_BACK)
        del self._branches[branch.xid]
        self._moved.decided(branch.xid)
        return {} if undone else branch.transaction.roll_back()

    def _check_not_undone(self, branch: Branch) -> None:
        """Raises XaError(ROLLED_BACK): it was rolled back, by a session or because it could not be prepared, which its
        manager learns by this.
        """
        if branch.state is State.ROLLED_BACK:
            if not branch.refusal:
                self.roll_back(branch)
            reason = branch.refusal or "its session has done so"
            raise XaError(f"the branch was rolled back: {reason}", xa_code=branch.undone or XaCode.ROLLED_BACK)

    def undo(self, branch: Branch, member: BranchMember) -> Returned:
        """A session rolls back the work in a branch that it is associated with, and leaves it. The branch is remembered
        as rolled back until its manager has rolled it back too, or until its timeout.

        Returns:
            The acknowledged deliveries, which the caller gives back.
        """
        returned = self._undo_work(branch, XaCode.ROLLED_BACK)
        self.left(branch, member)
        return returned

    def abandon(self, branch: Branch, member: BranchMember) -> None:
        """A session that worked in it lost its connection: undo its work. Forgotten unless others work in it."""
        self.give_back(self._undo_work(branch, XaCode.ROLLED_BACK))
        self.left(branch, member)
        if branch.state is State.ROLLED_BACK:
            self.roll_back(branch)

    def _undo_work(self, branch: Branch, code: XaCode) -> Returned:
        """Roll back while sessions work in it: their later work can only be rolled back again.

        Args:
            branch: Active.
            code: What ``end`` tells these sessions, unless the work was undone before for another reason.
        """
        dead = branch.transaction
        branch.undone = branch.undone or code
        branch.transaction = Transaction(self._office, within=self.work)
        branch.transaction.fail(TransactionRolledBack("the branch was rolled back before its end"))
        for member in branch.members:
            if member.branch is branch:
                member.enlist(branch.transaction)
        return dead.roll_back()

    def _undo(self, branch: Branch, error: BrokerError) -> NoReturn:
        """Refuse a branch that cannot be committed, because of an error of its own or of an operation in it; others are
        none of the branch's.
        """
        if not isinstance(error, TransactionError) and not branch.transaction.rollback_only:
            raise error
        self.give_back(self.roll_back(branch))
        raise XaError(f"the branch was rolled back: {error}", xa_code=branch.undone or XaCode.ROLLED_BACK) from error

    def _refuse_prepare(self, branch: Branch, error: BrokerError) -> NoReturn:
        """Refuse like ``_undo``; the branch is known until its manager rolls it back, or until its timeout: managers
        roll back after any error of ``prepare``, and an unknown branch would tell them that its outcome is not known.
        """
        if not isinstance(error, TransactionError) and not branch.transaction.rollback_only:
            raise error
        branch.refusal = str(error)
        branch.fire(Event.UNDO)
        self.give_back(branch.transaction.roll_back())
        # the exception of a standard client has no text
        log.warning("a branch was rolled back", extra={"xid": str(branch.xid), "reason": branch.refusal})
        raise XaError(f"the branch was rolled back: {error}", xa_code=branch.undone or XaCode.ROLLED_BACK) from error

    def left(self, branch: Branch, member: BranchMember) -> None:
        """A session no longer works in it."""
        branch.members.remove(member)
        if branch.members:
            return
        branch.fire(Event.LEAVE)
        if branch.undone is XaCode.ROLLED_BACK_TIMEOUT or self._branches.get(branch.xid) is not branch:
            branch.fire(Event.EXPIRE)
            if self._branches.get(branch.xid) is branch:
                del self._branches[branch.xid]
        elif branch.undone is not None:
            branch.fire(Event.UNDO)
        else:
            return
        # return the messages that were consumed in the branch after its rollback
        self.give_back(branch.transaction.roll_back())

    def give_back(self, returned: Returned) -> None:
        """Acknowledged deliveries of a branch that was rolled back go back to their queues."""
        for queue, references in returned.items():
            self._office.redelivery.cancel(queue, references)

    # -- ages -------------------------------------------------------------------------------------

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        overdue = [
            branch
            for branch in self._branches.values()
            if branch.expires_ms <= now_ms
            and branch.state is not State.PREPARED
            and branch.undone is not XaCode.ROLLED_BACK_TIMEOUT
        ]
        for branch in overdue:
            if branch.state is State.ACTIVE:
                # the session gets the error with its next request; the messages do not wait for that
                self.give_back(self._undo_work(branch, XaCode.ROLLED_BACK_TIMEOUT))
                branch.undone = XaCode.ROLLED_BACK_TIMEOUT
                continue
            undone = branch.state is State.ROLLED_BACK
            branch.fire(Event.EXPIRE)
            del self._branches[branch.xid]
            if not undone:
                self.give_back(branch.transaction.roll_back())

    # -- in doubt ---------------------------------------------------------------------------------

    def prepared(self) -> Iterator[Branch]:
        """Branches that wait for their outcome."""
        return (branch for branch in self._branches.values() if branch.state is State.PREPARED)

    def will_move(self, node_id: str) -> None:
        """Prepared branches may be at another node from now on, until they are handed over or decided here."""
        for branch in self.prepared():
            self._moved.goes(branch.xid, node_id)

    def may_be_at(self, xid: Xid, node_id: str) -> bool:
        """Whether a scale-down to that node has begun to move a branch, now or before a restart."""
        return self._moved.node_of(xid) == node_id

    def hand_over(self, branch: Branch) -> None:
        """Remove a prepared branch that another node has taken as prepared; only that node is remembered."""
        branch.fire(Event.ROLL_BACK)
        del self._branches[branch.xid]
        branch.transaction.hand_over()

    def in_doubt(self, *, came: bool = False) -> tuple[Xid, ...]:
        """Branches for a recovering transaction manager: prepared ones, and those decided by an operator.

        Args:
            came: Whether to add, for a node that is scaled down, the branches that it moved here and that are decided
                since.

        Raises:
            XaError: another node of the pair may have taken over.
        """
        self._check_active()
        moved = filter(self._moved.has_come, self._moved) if came else ()
        return tuple(dict.fromkeys((*(branch.xid for branch in self.prepared()), *self._heuristics, *moved)))

    def heuristic(self, kind: Kind) -> list[Xid]:
        """Branches that an operator decided so and that were not forgotten (XA forget)."""
        return [xid for xid, (known, _) in self._heuristics.items() if known is kind]

    def decide(self, xid: Xid, *, commit: bool) -> None:
        """Decide a prepared branch in place of its transaction manager; remembered until ``forget``.

        Raises:
            XaError: no such branch is prepared.
        """
        branch = self.get(xid)
        if branch.state is not State.PREPARED:
            raise XaError("the branch is not prepared", xa_code=XaCode.PROTOCOL)
        kind = Kind.HEURISTICALLY_COMMITTED if commit else Kind.HEURISTICALLY_ROLLED_BACK
        # the memory first: a crash in between finds both, and then carries out the decision
        store = self._office.store
        memory = store.next_id()
        store.store_prepare(memory, encode_name(kind, xid))
        self._heuristics[xid] = (kind, memory)
        self._carry_out(branch, commit)

    def _carry_out(self, branch: Branch, commit: bool) -> None:
        if commit:
            branch.transaction.commit(self._order, None)
            branch.fire(Event.COMMIT)
            del self._branches[branch.xid]
            self._moved.decided(branch.xid)
        else:
            self.give_back(self.roll_back(branch))

    def forget(self, xid: Xid) -> None:
        """The manager knows the heuristic outcome, or where the branch is. Raises XaError(UNKNOWN_XID)."""
        found = self._heuristics.pop(xid, None)
        if found is None:
            if self._moved.remove(xid):
                return
            self._check_active()
            raise XaError("no heuristic outcome of this name", xa_code=XaCode.UNKNOWN_XID)
        self._office.store.store_rollback(found[1])

    # -- after a crash ----------------------------------------------------------------------------

    def restore(self, state: StoreState) -> None:
        """Take over what the log says is prepared; once, after ``PostOffice.restore``.

        Raises:
            StoreError: the name of one cannot be read.
        """
        self._moved.restore(state)
        records = [record for record in state.transactions.values() if record.xid is not None]
        if not records:
            return
        directory = self._office.directory
        queues = {queue.queue_id: queue for queue in directory.queues.values()}
        addresses = {address.address_id: address for address in directory.addresses.values()}
        held = _take_held(self._office, records, queues)
        for record in records:
            kind, xid = decode_name(record.xid or b"")
            if kind is not Kind.BRANCH:
                self._heuristics[xid] = (kind, record.tx_id)
                continue
            sends = [(queues[queue_id], reference) for queue_id, reference in record.adds if queue_id in queues]
            _count_sends(sends)
            acknowledged: dict[Queue, list[MessageReference]] = {}
            for key in record.acknowledges:
                reference = held.get(key)
                if reference is not None:
                    acknowledged.setdefault(queues[key[0]], []).append(reference)
            duplicate_ids = [(addresses[key], value) for key, value in record.duplicate_ids if key in addresses]
            transaction = Transaction.restored(
                self._office, record.tx_id, sends, acknowledged, duplicate_ids, self.work
            )
            branch = Branch(xid, transaction, expires_ms=0)
            branch.fire(Event.RESTORE)
            self._branches[xid] = branch
        for xid, (kind, _) in self._heuristics.items():
            undecided = self._branches.get(xid)
            if undecided is not None:
                self._carry_out(undecided, kind is Kind.HEURISTICALLY_COMMITTED)


def _take_held(
    office: PostOffice, records: list[TransactionRecord], queues: dict[int, Queue]
) -> dict[tuple[int, int], MessageReference]:
    """Messages that prepared branches have acknowledged: they count as delivered and are not in their queues."""
    wanted: dict[int, set[int]] = {}
    for record in records:
        for queue_id, message_id in record.acknowledges:
            wanted.setdefault(queue_id, set()).add(message_id)
    held: dict[tuple[int, int], MessageReference] = {}
    for queue_id, message_ids in wanted.items():
        queue = queues.get(queue_id)
        if queue is None:
            continue
        taken = queue.pending.take(message_ids)
        if len(taken) < len(message_ids):
            # the clock went back: a delivered message is scheduled again
            for reference in chain.from_iterable(office.scheduled.remove(queue)):
                if reference.message_id in message_ids:
                    queue.scheduled_count -= 1
                    taken.append(reference)
                else:
                    office.scheduled.add(queue, reference, reference.scheduled_ms)
        queue.delivering_count += len(taken)
        held.update({(queue_id, reference.message_id): reference for reference in taken})
    return held


def _count_sends(sends: list[tuple[Queue, MessageReference]]) -> None:
    """Count the sends of a restored branch for their addresses, a message in several queues once; they stay
    invisible."""
    copies: dict[tuple[AddressMemory, int], list[MessageReference]] = {}
    for queue, reference in sends:
        queue.incoming += 1
        copies.setdefault((queue.address, reference.message_id), []).append(reference)
    for (address, _), references in copies.items():
        address.adopt(references[0].size_bytes, 1)
        address.hold(references[0].message_id, len(references))
