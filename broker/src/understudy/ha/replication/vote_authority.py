"""The authority of a pair without a lock manager: the notes of the node, votes of the cluster, the network check.

A replica that lost its active node asks the other nodes of the cluster whether that is gone; an active node that lost
its replica asks, if it is configured to, whether it is still seen. Where the network check has targets its result
replaces the votes. At a start the notes of the node decide whether its data can be the newest (ADR 0059). Nothing
proves the permission while it is held: two nodes that do not reach each other can both be active where the votes allow
it.

Source: artemis-ha s. 3.1-3.3. Not here: the votes (``ha.votes.decisions``), the rules about data (``standing``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ActivationRefused, BrokerError, LockLost
from understudy.ha.life.network_check import NetworkCheck
from understudy.ha.life.policy import WithoutManager
from understudy.ha.locks.local_sequence import LocalSequence, failure_of
from understudy.ha.locks.noted_position import PositionNumbers
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.ports import Answer, Cause, ReplicaPromises
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.shared_note import SharedNote
from understudy.ha.replication.standing import (
    CopyNote,
    Notes,
    Origin,
    Standing,
    Start,
    WaitingCopy,
    has_moved,
    refusal,
    standing,
    start,
    waiting_copy,
    was_last_active,
)
from understudy.ha.votes.decisions import QuorumVoter
from understudy.ha.votes.round import Pending
from understudy.ports import Fence

log = logging.getLogger(__name__)


class NoFence:
    """A fence of a pair without a lock, which confirms all writes. Implements ``ports.Fence``."""

    proved_until_ms: Final = 2**63 - 1
    proved_at_ms: Final = None

    def why_not_confirm(self) -> BaseException | None:
        return None


@dataclass(frozen=True, slots=True)
class VoteAuthorityOptions:
    """Settings of the authority (artemis-ha s. 1)."""

    primary: bool
    check_for_active: bool = False
    """Element check-for-active-server."""
    vote_on_failure: bool = False
    """Element vote-on-replication-failure."""
    place: str = ""
    """``host:port`` of the own connector."""


class VoteAuthority:
    """Authority that asks the votes of other nodes. Implements ``ha.replication.ports.Authority``."""

    by_votes = True

    def __init__(
        self,
        options: VoteAuthorityOptions,
        local: LocalSequence,
        shared: SharedNote,
        copy: Callable[[], CopyNote],
        node_id: Callable[[], str],
        voter: QuorumVoter,
        network: NetworkCheck | None,
    ) -> None:
        """Args:
        options: Settings.
        local: Activation sequence of the data of this node.
        shared: The note about its replica.
        copy: Reads the note about the copy that the data is.
        node_id: The present node id.
        voter: Asks the cluster, or the network check.
        network: The network check, if it has targets; also a replica that was requested to take over asks it.
        """
        self._options = options
        self._local = local
        self._shared = shared
        self._copy = copy
        self._node_id = node_id
        self._voter = voter
        self._network = network
        self._fence = NoFence()
        self._answer: Answer | None = None
        """Callback of a request that has no answer yet."""
        self._claimed: Answer | None = None
        self._before_commit: int | None = None
        """The sequence in the file before the commit of this activation; None: it was not begun."""
        self._heard: WaitingCopy | None = None
        """The last statement of a waiting copy (ADR 0064)."""
        self._pending: Pending | None = None
        """A vote under way."""

    # --- Authority -----------------------------------------------------------------------------------

    @property
    def fence(self) -> Fence:
        return self._fence

    @property
    def sequence(self) -> int:
        return -1 if self._local.value is None else self._local.value

    def standing(self) -> Standing:
        """The standing of the data of this node. Raises StoreError: the notes cannot be read."""
        return standing(self._notes())

    def _notes(self) -> Notes:
        copy = self._copy()
        shared_at = self._shared.load()
        sequence = self._local.load()
        return Notes(
            copy.origin, sequence, copy.sequence, shared_at, self._shared.replica, self._local.moved_away, copy.node_id
        )

    def listens(self) -> bool:
        return self.standing() is Standing.SHARED

    def waiting_copy(self) -> WaitingCopy | None:
        return waiting_copy(self._notes(), self._node_id(), "")

    def copy_waits(self, copy: WaitingCopy) -> bool:
        proved = was_last_active(self._notes(), self._node_id(), copy)
        if proved:
            self._heard = copy
        return proved

    def data_node_id(self) -> str | None:
        """See ``Authority``. A primary without data looks for its own node id only, too (check-for-active-server)."""
        if self._options.primary:
            return self._node_id()
        return None if self.standing() in (Standing.INCOMPLETE, Standing.NEW) else self._node_id()

    def may_request(self, *, looked: bool) -> bool:
        return looked or self._start(self.standing()) is Start.ACTIVATE

    def _start(self, found: Standing) -> Start:
        options = self._options
        heard = self._heard
        last_active = heard is not None and was_last_active(self._notes(), self._node_id(), heard)
        primary, check = options.primary, options.check_for_active
        return start(found, primary=primary, check_for_active=check, last_active=last_active)

    def request(self, cause: Cause, answer: Answer) -> None:
        if cause is Cause.START:
            found = self.standing()
            if self._start(found) is Start.FOLLOW_ONLY:
                text, hint = refusal(found, self._node_id(), self._local.value)
                answer(ActivationRefused(text, hint=hint))
            else:
                answer(None)
            return
        if self.standing() is Standing.INCOMPLETE:
            # an operation failed here: what the page cache has of it may not be on the disk, in the middle of the log
            text, hint = refusal(Standing.INCOMPLETE, self._node_id(), self._local.value)
            answer(ActivationRefused(text, hint=hint))
            return
        self._answer = answer
        if cause is Cause.LOST:
            self._wait(self._voter.ask_whether_gone(self._node_id(), self._decided_gone), answer)
        elif self._network is not None:
            self._wait(self._network.ask(self._decided_gone), answer)
        else:
            self._decided_gone(True)

    def _wait(self, pending: Pending, answer: Answer) -> None:
        if self._answer is answer or self._claimed is answer:
            self._pending = pending

    def _decided_gone(self, gone: bool) -> None:
        answer, self._answer, self._pending = self._answer, None, None
        if answer is None:
            return
        if gone:
            answer(None)
            return
        replaced = self._network is not None
        reason = "the network check reaches no target" if replaced else "the vote of the cluster was lost"
        text = f"node {self._node_id()}: {reason}, so the active node may still serve"
        answer(ActivationRefused(text, hint="this node looks for the active node again"))

    def cancel(self) -> None:
        self._answer = None
        if self._claimed is None:
            self._end_vote()

    def _end_vote(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()

    def claim(self, answer: Answer, *, alone: bool) -> None:
        self._claimed = answer
        self._before_commit = None
        # a statement counts for the time that this node waits; later its maker may have taken over
        self._heard = None
        if alone and (self._options.vote_on_failure or self._network is None):
            # the vote also keeps the other nodes from letting the former replica take over (ADR 0067)
            self._wait(self._voter.ask_whether_active(self._decided_active), answer)
        elif alone:
            self._raise_sequence()
        else:
            # a copy whose activation fails stays a copy, and its statement lets the other node activate
            self._end_claim(None)

    def commit(self, answer: Answer) -> None:
        self._claimed = answer
        self._before_commit = self._local.value
        self._raise_sequence()

    def take_back(self, taken_back: Callable[[], None], *, served: bool) -> None:
        """See ``Authority``. Nothing is noted before the commit, which may have written its sequence although it
        failed. With that a copy would count as newer than the data of the other node, although nothing was served.
        """
        before, self._before_commit = self._before_commit, None
        if served or before is None:
            taken_back()
            return

        def written(error: BaseException | None) -> None:
            log.warning(
                "the activation failed before anything was served: its activation sequence is given up",
                extra={"node": self._node_id(), "sequence": before, "restored": error is None},
            )
            taken_back()

        self._local.write(before, written)

    def _decided_active(self, active: bool) -> None:
        self._pending = None
        if self._claimed is None:
            return
        if active or not self._options.vote_on_failure:
            self._raise_sequence()
            return
        text = f"node {self._node_id()}: the replica is lost, and the vote whether this node may stay active, too"
        self._end_claim(LockLost(text))

    def _raise_sequence(self) -> None:
        value = max(0, self.sequence) + 1

        def written(error: BaseException | None) -> None:
            if error is None:
                log.info("activation sequence", extra={"node": self._node_id(), "sequence": value})
            self._end_claim(failure_of(self._local.path, error))

        self._local.write(value, written)

    def _end_claim(self, error: BrokerError | None) -> None:
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed(error)

    def share(self, replica: str, answer: Answer) -> None:
        self._shared.write(self.sequence, replica, lambda error: answer(failure_of(self._shared.path, error)))

    def moved_record(self, end: LogEnd) -> MovedStore | None:
        """See ``Authority``. Data that is no copy any more is not recognised by the node that was active before."""
        copy = self._copy()
        known = copy.sequence if copy.origin is Origin.COPIED else -1
        return MovedStore(self._node_id(), self.sequence, end, known, self._options.place)

    def moved_away(self, end: LogEnd, answer: Answer) -> None:
        """See ``Authority``. A node that ends before its note activates again, moves nothing and writes it."""
        self._local.write_moved(lambda error: answer(failure_of(self._local.path, error)))

    def find_moved(self, heard: MovedStore | None, found: Callable[[MovedStore], None]) -> None:
        """See ``Authority``. Only a primary begins anew: a backup waits for it."""
        if heard is not None and self._options.primary and has_moved(self._notes(), self._node_id(), heard):
            found(heard)

    def position_numbers(self) -> PositionNumbers | None:
        """See ``Authority``: the nodes that vote keep no numbers."""
        return None

    def watch(self, lost: Callable[[BrokerError], None], proved: Callable[[], None]) -> None:
        """See ``Authority``: votes give no permission that could end."""

    @property
    def without_manager(self) -> WithoutManager | None:
        """Return nothing, because votes need no lock manager; see ``Authority``."""
        return None

    def synced(self, replica: ReplicaPromises | None) -> None:
        """See ``Authority``: nothing is asked of it."""

    def promised(self, number: int, refusal: str | None) -> None:
        """See ``Authority``: nothing was asked."""

    def promise(self, sequence: int, duration_ms: int, answer: Callable[[str | None], None]) -> None:
        """See ``Authority``: a vote decides, whatever the replica says."""
        answer("this node has no lock manager")

    def release(self) -> None:
        """Do nothing, because there is no lock to give back; see ``Authority``."""

    def hand_over(self, handed_over: Callable[[], None]) -> None:
        """See ``Authority``. The replica was requested to take over; this node then looks for it."""
        handed_over()

    def promote(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        """Ask for the votes to become active; the data of the other node is not known. See ``Authority``."""
        found = self.standing()
        if found in (Standing.INCOMPLETE, Standing.NEW):
            text, hint = refusal(found, self._node_id(), self._local.value)
            answer(ActivationRefused(text, hint=hint))
            return
        before = self._local.value
        value = max(0, self.sequence, self._copy().sequence) + 1

        def written(error: BaseException | None) -> None:
            answer(failure_of(self._local.path, error) or Promotion(self._node_id(), before, None, value))

        self._local.write(value, written)

    def close(self) -> None:
        self._answer = self._claimed = None
        self._end_vote()
