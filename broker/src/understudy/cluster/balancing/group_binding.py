"""The binding of one message group to one queue of one member, as one node knows it (artemis-ha s. 7.8).

A member with a REMOTE handler proposes the queue that would get the first message of the group, and waits for the
answer of the LOCAL one. It proposes again when no answer comes in time; after ten proposals the messages that wait are
routed without their group. At the LOCAL handler the answer is the record of the binding on the disk. A queue that is
named and not known here is waited for, because members learn of it at different times; if it does not come, the group
is free. Messages that wait are sent again in the order in which they came.

Not here: proposals, answers and records (``groups``), the sessions that wait (``protocols``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Final, Protocol

from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.ports import Timer

#: Proposals after which messages are routed without their group.
PROPOSALS_MAX: Final = 10


class State(Enum):
    """States of a binding."""

    UNBOUND = auto()
    """No queue was chosen for the group."""
    PROPOSED = auto()
    """Messages wait for the answer."""
    UNSEEN = auto()
    """Messages wait for the queue, which is decided and not known here."""
    BOUND = auto()
    DOUBTED = auto()
    """The group was bound; notifications may have been missed since."""
    CHECKED = auto()
    """Messages wait for the confirmation that it is still bound to the same queue."""
    UNGROUPED = auto()
    """No decision was made; messages that have waited are routed without their group."""


class Event(Enum):
    """Events of a binding."""

    ASK = auto()
    """A message has no queue yet."""
    BIND = auto()
    """The queue is decided."""
    MISS = auto()
    """A message is to go to the queue, which is not known here."""
    SEEN = auto()
    """The queue is known here now."""
    LATE = auto()
    """The time for an answer, or for the queue, is over."""
    GIVE_UP = auto()
    """The timeout has passed after the last proposal, and the group stays unbound."""
    RELEASED = auto()
    """The messages that waited were routed without their group."""
    FREE = auto()
    """The binding was removed: its queue is gone, it was idle, or a member asked for it."""
    DOUBT = auto()
    """The member that decides was away."""


_S, _E = State, Event
_WAITING: Final = frozenset((_S.PROPOSED, _S.UNSEEN, _S.CHECKED))


class GroupOwner(Protocol):
    """The handler of a binding."""

    waiting: int
    """Sessions of which a message waits."""

    @property
    def allowance_bytes(self) -> int:
        """Number of bytes that one waiting session may hold."""
        ...

    def propose(self, binding: GroupBinding) -> None:
        """Have the queue ``binding.proposal`` decided."""

    def await_queue(self, binding: GroupBinding) -> None:
        """Fire LATE when the queue of the binding does not become known in time."""

    def moved(self, binding: GroupBinding, before: str) -> None:
        """Called when the group is bound to another queue, or to none (empty)."""

    def disown(self, binding: GroupBinding) -> None:
        """The queue did not become known: tell the other members that the group is free."""

    def gave_up(self, binding: GroupBinding, waiting: int) -> None:
        """Report that ``waiting`` sessions have waited for a decision that was not made."""


class GroupBinding(Machine[State, Event]):
    """Binding of one message group to a queue of the cluster. Implements ``routing.grouping.Undecided``."""

    STATES = State
    EVENTS = Event
    INITIAL = State.UNBOUND

    def __init__(self, key: str, owner: GroupOwner) -> None:
        super().__init__()
        self.key = key
        """Group and routing name (``routing.grouping.group_key``)."""
        self.queue = ""
        """Cluster name of the decided queue; empty: none."""
        self.proposal = ""
        """Cluster name of the proposed queue."""
        self.proposals = 0
        """Since a message was last routed by it."""
        self.used_ms = 0
        """Monotonic time of the last message or proposal."""
        self.asked_ms = 0
        """Monotonic time of the last proposal of this node."""
        self.source = ""
        """Id of the node that has published the decision."""
        self.timer: Timer | None = None
        self._owner = owner
        self._waiting: list[Callable[[], None]] = []

    # -- routing.grouping.Undecided ---------------------------------------------------------------

    def when_decided(self, call: Callable[[], None]) -> None:
        self._waiting.append(call)
        self._owner.waiting += 1

    @property
    def allowance_bytes(self) -> int:
        return self._owner.allowance_bytes

    # -- for the handler --------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of sessions that wait for the decision."""
        return len(self._waiting)

    @property
    def waits(self) -> bool:
        """Whether a message of the group has to wait now."""
        return self._state in _WAITING

    @property
    def destination(self) -> str | None:
        """Cluster name of the queue that gets messages which cannot wait; None: not decided."""
        return self.queue if self.queue and self._state is not _S.UNGROUPED else None

    def look(self, queues: Collection[str]) -> None:
        """A message is to be routed to one of these queues; nothing is proposed."""
        if self._state is _S.BOUND and self.queue not in queues:
            self.fire(_E.MISS)
        elif self._state is _S.UNSEEN and self.queue in queues:
            self.fire(_E.SEEN)
        elif self._state is _S.DOUBTED:
            self.fire(_E.ASK, self.queue)

    def late(self) -> None:
        """End the wait for a decision; called by the timer."""
        self.timer = None
        self.fire(_E.GIVE_UP if self.proposals >= PROPOSALS_MAX else _E.LATE)

    def close(self) -> None:
        """Called when the node is not active any more."""
        self._stop_timer()
        self._waiting.clear()

    # -- actions ----------------------------------------------------------------------------------

    def _propose(self, queue: str) -> None:
        self.proposal = queue
        self.proposals += 1
        self._owner.propose(self)

    def _bind(self, queue: str, source: str = "") -> None:
        self._stop_timer()
        before, self.queue, self.source = self.queue, queue, source
        if before != queue:
            self._owner.moved(self, before)
        self._release()

    def _await(self) -> None:
        self._owner.await_queue(self)

    def _trust(self) -> None:
        self._stop_timer()
        self._release()

    def _retry(self) -> None:
        self._stop_timer()
        self._release()

    def _free(self) -> None:
        self._stop_timer()
        before, self.queue = self.queue, ""
        self._owner.moved(self, before)
        self._release()

    def _disown(self) -> None:
        self._owner.disown(self)
        self._free()

    def _give_up(self) -> None:
        self._owner.gave_up(self, self.waiting)
        if self.queue:
            self._owner.disown(self)
            before, self.queue = self.queue, ""
            self._owner.moved(self, before)
        self.proposals = 0
        try:
            self._release()
        finally:
            self.fire(_E.RELEASED)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _release(self) -> None:
        """Have all waiting messages sent again; those that must wait longer wait in the same order."""
        waiting, self._waiting = self._waiting, []
        self._owner.waiting -= len(waiting)
        bug: Exception | None = None
        for call in waiting:
            try:
                call()
            except Exception as error:  # an error of one session must not stop the calls of the others
                bug = bug or error
        if bug is not None:
            raise bug

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (_S.UNBOUND, _E.ASK): To(_S.PROPOSED, _propose),
            (_S.UNBOUND, _E.BIND): To(_S.BOUND, _bind),
            (_S.PROPOSED, _E.BIND): To(_S.BOUND, _bind),
            (_S.PROPOSED, _E.LATE): To(_S.UNBOUND, _retry),
            (_S.PROPOSED, _E.GIVE_UP): To(_S.UNGROUPED, _give_up),
            (_S.UNSEEN, _E.SEEN): To(_S.BOUND, _trust),
            (_S.UNSEEN, _E.BIND): To(_S.BOUND, _bind),
            (_S.UNSEEN, _E.LATE): To(_S.UNBOUND, _disown),
            (_S.UNSEEN, _E.GIVE_UP): To(_S.UNGROUPED, _give_up),
            (_S.UNSEEN, _E.FREE): To(_S.UNBOUND, _free),
            (_S.BOUND, _E.MISS): To(_S.UNSEEN, _await),
            (_S.BOUND, _E.BIND): To(_S.BOUND, _bind),
            (_S.BOUND, _E.FREE): To(_S.UNBOUND, _free),
            (_S.BOUND, _E.DOUBT): To(_S.DOUBTED),
            (_S.DOUBTED, _E.ASK): To(_S.CHECKED, _propose),
            (_S.DOUBTED, _E.BIND): To(_S.BOUND, _bind),
            (_S.DOUBTED, _E.FREE): To(_S.UNBOUND, _free),
            (_S.CHECKED, _E.BIND): To(_S.BOUND, _bind),
            (_S.CHECKED, _E.LATE): To(_S.BOUND, _trust),
            (_S.CHECKED, _E.GIVE_UP): To(_S.BOUND, _trust),
            (_S.CHECKED, _E.FREE): To(_S.UNBOUND, _free),
            (_S.UNGROUPED, _E.RELEASED): To(_S.UNBOUND),
        },
        otherwise={
            _E.ASK: ILLEGAL,
            _E.BIND: IGNORED,
            _E.MISS: ILLEGAL,
            _E.SEEN: IGNORED,
            _E.LATE: ILLEGAL,
            _E.GIVE_UP: ILLEGAL,
            _E.RELEASED: ILLEGAL,
            _E.FREE: IGNORED,
            _E.DOUBT: IGNORED,
        },
    )
