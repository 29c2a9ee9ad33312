"""A branch of an XA transaction: a transaction that others decide about, perhaps after a crash.

Its work is done by the sessions that are associated with it; once all of them have ended their part it can be prepared,
and then only its outcome is missing. What a prepared branch is called in the log (``encode_name``) is how it is found
again after a restart or takeover.

Source: artemis-core s. 4.5, X/Open XA. Not here: which branches there are (``resource_manager``), what sessions ask
(``xa``).

``MovedBranches`` are prepared branches that a scale-down moves, remembered in the logs of both nodes (ADR 0110). The
node that had a branch remembers its target: a transaction manager that decides the branch at the old node must not get
the answer "unknown", which after a lost connection means "already decided", so that it would forget a branch that waits
at the target. The target remembers that a branch came: if the other node was killed before its log had the end of the
move, it sends the branch again, perhaps after its decision here, and the target does not take it a second time.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from enum import Enum, auto
from typing import ClassVar, Final, Protocol

from understudy.errors import StoreError, StoreFormatHeld, XaCode, XaError
from understudy.ids import Xid
from understudy.limits import XA_BRANCHES_MAX
from understudy.machine import ILLEGAL, Machine, Refusal, To, table
from understudy.routing.post_office import PostOffice
from understudy.session.transaction import Transaction
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.store.state import StoreState


class State(Enum):
    """Life of a branch."""

    NEW = auto()
    ACTIVE = auto()
    """Sessions work in the branch."""
    SUSPENDED = auto()
    IDLE = auto()
    """No session works in it any more; it can be prepared or decided."""
    PREPARED = auto()
    ROLLED_BACK = auto()
    """A session has undone its work (SESS_ROLLBACK); the transaction manager does not know that yet."""
    DECIDED = auto()
    """Committed, rolled back, or given up for its age."""


class Event(Enum):
    """Events of a branch."""

    START = auto()
    RESTORE = auto()
    """The log contains the branch as prepared."""
    FAILED = auto()
    """A client reports that a failover undid work of the branch (SESS_XA_FAILED) and goes on working in it."""
    JOIN = auto()
    LEAVE = auto()
    """A session has ended its part of the branch, or was closed."""
    SUSPEND = auto()
    RESUME = auto()
    PREPARE = auto()
    COMMIT_ONE_PHASE = auto()
    COMMIT = auto()
    ROLL_BACK = auto()
    UNDO = auto()
    """The work of the branch was undone by a local rollback, and no session works in it any more."""
    EXPIRE = auto()
    """The timeout of the branch has passed while no session works in it."""


_TABLE: Final = table(
    State,
    Event,
    {
        (State.NEW, Event.START): To(State.ACTIVE),
        (State.NEW, Event.RESTORE): To(State.PREPARED),
        (State.NEW, Event.FAILED): To(State.ACTIVE),
        (State.ACTIVE, Event.FAILED): To(State.ACTIVE),
        (State.SUSPENDED, Event.FAILED): To(State.ACTIVE),
        (State.IDLE, Event.FAILED): To(State.ACTIVE),
        (State.ACTIVE, Event.JOIN): To(State.ACTIVE),
        (State.ACTIVE, Event.LEAVE): To(State.IDLE),
        (State.ACTIVE, Event.SUSPEND): To(State.SUSPENDED),
        (State.SUSPENDED, Event.RESUME): To(State.ACTIVE),
        (State.SUSPENDED, Event.LEAVE): To(State.IDLE),
        (State.SUSPENDED, Event.EXPIRE): To(State.DECIDED),
        (State.IDLE, Event.JOIN): To(State.ACTIVE),
        (State.IDLE, Event.PREPARE): To(State.PREPARED),
        (State.IDLE, Event.COMMIT_ONE_PHASE): To(State.DECIDED),
        (State.IDLE, Event.ROLL_BACK): To(State.DECIDED),
        (State.IDLE, Event.UNDO): To(State.ROLLED_BACK),
        (State.IDLE, Event.EXPIRE): To(State.DECIDED),
        (State.ROLLED_BACK, Event.ROLL_BACK): To(State.DECIDED),
        (State.ROLLED_BACK, Event.EXPIRE): To(State.DECIDED),
        (State.PREPARED, Event.COMMIT): To(State.DECIDED),
        (State.PREPARED, Event.ROLL_BACK): To(State.DECIDED),
    },
    otherwise=dict.fromkeys(Event, ILLEGAL),
)


class BranchMember(Protocol):
    """A session that may work in a branch."""

    branch: Branch | None
    """The branch in which the session works."""

    def enlist(self, transaction: Transaction) -> None:
        """Work in another transaction of the same branch from then on."""


class Branch(Machine[State, Event]):
    """One XA branch with its sessions, its state and its transaction."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.NEW
    TABLE = _TABLE

    def __init__(self, xid: Xid, transaction: Transaction, *, expires_ms: int) -> None:
        """Args:
        expires_ms: Monotonic time at which it may be rolled back unless it is prepared.
        """
        super().__init__()
        self.xid = xid
        self.transaction = transaction
        self.expires_ms = expires_ms
        self.undone: XaCode | None = None
        """Code that ``end`` answers to the sessions that were working in the branch when its work was undone."""
        self.refusal = ""
        """Reason why the branch could not be prepared or committed and was rolled back; empty without one."""
        self.arriving = False
        """Whether another node moves it here and has not prepared it yet: only nodes of the cluster work with it."""
        self.members: list[BranchMember] = []
        """Sessions that work in the branch."""

    def require(self, event: Event) -> None:
        """Raises XaError(PROTOCOL) if the event cannot be taken now."""
        if isinstance(self.TABLE[self._state, event], Refusal):
            name = event.name.lower().replace("_", " ")
            raise XaError(f"{name} of a branch that is {self._state.name.lower()}", xa_code=XaCode.PROTOCOL)

    def take(self, event: Event) -> None:
        """The event, as the request of a client; raises XaError(PROTOCOL)."""
        self.require(event)
        self.fire(event)


# -- names in the log --------------------------------------------------------------------------------

_NAME: Final = struct.Struct("<BiBB")


class Kind(Enum):
    """Meaning of a prepared transaction in the log."""

    BRANCH = 0
    HEURISTICALLY_COMMITTED = 1
    """Heuristic completion: the record is empty and is kept until the transaction manager forgets the branch."""
    HEURISTICALLY_ROLLED_BACK = 2


def encode_name(kind: Kind, xid: Xid) -> bytes:
    """Little endian: kind, i32 format id, lengths of both parts, global transaction id, qualifier."""
    parts = (xid.global_transaction_id, xid.branch_qualifier)
    return _NAME.pack(kind.value, xid.format_id, *map(len, parts)) + b"".join(parts)


def decode_name(name: bytes) -> tuple[Kind, Xid]:
    """Decode a name of a branch. Raises StoreError: no broker has written it."""
    try:
        kind, format_id, first, second = _NAME.unpack_from(name)
        rest = name[_NAME.size :]
        if len(rest) != first + second:
            raise ValueError(f"{len(rest)} bytes of {first + second}")
        return Kind(kind), Xid(format_id, rest[:first], rest[first:])
    except (struct.error, ValueError) as error:
        raise StoreError(f"name of a prepared transaction: {error}") from error


log = logging.getLogger(__name__)

_KIND: Final = SettingKind.MOVED_BRANCH
_NODE: Final = "node"


class MovedBranches:
    """The moved branches of one node: the newest ``XA_BRANCHES_MAX``, through restarts and takeovers."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self._nodes: dict[Xid, str] = {}
        """Node id of the target; empty: the branch came here. The newest at the end."""

    def __contains__(self, xid: Xid) -> bool:
        return xid in self._nodes

    def __iter__(self) -> Iterator[Xid]:
        return iter(self._nodes)

    def node_of(self, xid: Xid) -> str | None:
        """Node id of the target to which a branch was moved; None: it was not."""
        return self._nodes.get(xid) or None

    def has_come(self, xid: Xid) -> bool:
        """Whether another node has moved a branch here, where it may have been decided since."""
        return self._nodes.get(xid) == ""

    def goes(self, xid: Xid, node_id: str) -> None:
        """A branch may be at another node from now on."""
        self._add(xid, node_id)

    def came(self, xid: Xid) -> None:
        """Note that this node has a prepared branch of another node."""
        self._add(xid, "")

    def _add(self, xid: Xid, node_id: str) -> None:
        try:
            self._office.store.store_setting(SettingRecord(_KIND, _match(xid), {_NODE: node_id}))
        except StoreFormatHeld as held:
            log.warning("the target of a prepared transaction is not remembered", extra={"reason": str(held)})
            return
        self._nodes.pop(xid, None)
        self._nodes[xid] = node_id
        if len(self._nodes) > XA_BRANCHES_MAX:
            self.remove(next(iter(self._nodes)))

    def decided(self, xid: Xid) -> None:
        """Called when a branch is decided at this node, which had begun to move it and has given up."""
        if self.node_of(xid) is not None:
            self.remove(xid)

    def remove(self, xid: Xid) -> bool:
        """Forget a branch: it is here again, or its manager does not need it. Whether it was remembered."""
        known = self._nodes.pop(xid, None) is not None
        if known:
            self._office.store.store_setting(SettingRecord(_KIND, _match(xid), None))
        return known

    def restore(self, state: StoreState) -> None:
        """Take over what the log says; once.

        Raises:
            StoreError: the name of one cannot be read.
        """
        for record in state.settings.values():
            if record.scope is _KIND and record.values is not None:
                xid = decode_name(bytes.fromhex(record.match))[1]
                self._nodes[xid] = str(record.values[_NODE])


def _match(xid: Xid) -> str:
    return encode_name(Kind.BRANCH, xid).hex()
