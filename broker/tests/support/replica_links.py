"""Parts of a replicated pair that a test moves by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from understudy.errors import BrokerError
from understudy.ha.life.policy import WithoutManager
from understudy.ha.replication.moved_store import LogEnd, MovedStore
from understudy.ha.replication.ports import Cause, ReplicaPromises
from understudy.ha.replication.promotion import Promotion
from understudy.ha.replication.standing import WaitingCopy
from understudy.ports import Fence, Operation
from understudy.replication.active_link import CopyOwner
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.transport import TransportConfiguration

Done = Callable[[BaseException | None], None]


class StepWriter:
    """A log writer whose jobs end when the test says so. Implements ``ports.HoldableLogWriter``."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Sequence[Operation] | Callable[[], None], Done]] = deque()
        self.executed: list[Sequence[Operation]] = []

    def submit(self, operations: Sequence[Operation], done: Done) -> None:
        self.jobs.append((operations, done))

    def run(self, work: Callable[[], None], done: Done) -> None:
        self.jobs.append((work, done))

    def step(self, error: BaseException | None = None) -> None:
        """End the oldest job."""
        job, done = self.jobs.popleft()
        if callable(job):
            job()
        elif error is None:
            self.executed.append(job)
        done(error)

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class OpenFence:
    """Permits everything. Implements ``ports.Fence``."""

    proved_until_ms = 1 << 62
    proved_at_ms = None

    def why_not_confirm(self) -> BaseException | None:
        return None


@dataclass
class ManualAuthority:
    """Answers when the test says so. Implements ``ha.replication.ports.Authority``."""

    sequence: int = 1
    complete: bool = True
    requested: Callable[[BrokerError | None], None] | None = None
    claimed: Callable[[BrokerError | None], None] | None = None
    handed_over: Callable[[], None] | None = None
    lost: Callable[[BrokerError], None] | None = None
    calls: list[str] = field(default_factory=list)
    fence: Fence = field(default_factory=OpenFence)
    by_votes: bool = False
    cause: Cause | None = None
    """Cause of the last request."""
    shared: Callable[[BrokerError | None], None] | None = None
    listening: bool = False
    """Answer to ``listens``."""
    holds_notes: bool = False
    """Whether ``share`` waits for the test."""
    promoted: Callable[[Promotion | BrokerError], None] | None = None
    proved: Callable[[], None] | None = None
    without_manager: WithoutManager | None = None
    replica: ReplicaPromises | None = None
    promises: list[tuple[int, str | None]] = field(default_factory=list)
    """Answers of the replica to requests for a promise."""
    moved: MovedStore | None = None
    """The record that ``find_moved`` finds at once."""
    finding: Callable[[MovedStore], None] | None = None
    """The callback of the last call of ``find_moved``."""
    heard: MovedStore | None = None
    """The record that was passed to the last call of ``find_moved``."""

    def may_request(self, *, looked: bool) -> bool:
        return self.complete and (looked or not self.by_votes)

    def data_node_id(self) -> str | None:
        return None

    def request(self, cause: Cause, answer: Callable[[BrokerError | None], None]) -> None:
        self.calls.append("request")
        self.cause = cause
        self.requested = answer

    def listens(self) -> bool:
        return self.listening

    def waiting_copy(self) -> WaitingCopy | None:
        return None

    def copy_waits(self, copy: WaitingCopy) -> bool:
        return False

    def share(self, replica: str, answer: Callable[[BrokerError | None], None]) -> None:
        if self.holds_notes:
            self.shared = answer
        else:
            answer(None)

    def promote(self, answer: Callable[[Promotion | BrokerError], None]) -> None:
        self.promoted = answer

    def answer(self, error: BrokerError | None = None) -> None:
        """Answer the request."""
        requested, self.requested = self.requested, None
        assert requested is not None
        requested(error)

    def cancel(self) -> None:
        self.requested = None

    def claim(self, answer: Callable[[BrokerError | None], None], *, alone: bool) -> None:
        self.calls.append("claim alone" if alone else "claim")
        self.claimed = answer

    def commit(self, answer: Callable[[BrokerError | None], None]) -> None:
        self.calls.append("commit")
        self.claimed = answer

    def take_back(self, taken_back: Callable[[], None], *, served: bool) -> None:
        self.calls.append("take back")
        taken_back()

    def moved_record(self, end: LogEnd) -> MovedStore | None:
        return None

    def moved_away(self, end: LogEnd, answer: Callable[[BrokerError | None], None]) -> None:
        self.calls.append("moved away")
        answer(None)

    def find_moved(self, heard: MovedStore | None, found: Callable[[MovedStore], None]) -> None:
        self.heard, self.finding = heard, found
        if self.moved is not None:
            found(self.moved)

    def position_numbers(self) -> None:
        return None

    def watch(self, lost: Callable[[BrokerError], None], proved: Callable[[], None]) -> None:
        self.lost, self.proved = lost, proved

    def synced(self, replica: ReplicaPromises | None) -> None:
        self.replica = replica

    def promised(self, number: int, refusal: str | None) -> None:
        self.promises.append((number, refusal))

    def promise(self, sequence: int, duration_ms: int, answer: Callable[[str | None], None]) -> None:
        self.calls.append(f"promise {duration_ms} ms at {sequence}")
        answer(None)

    def release(self) -> None:
        self.calls.append("release")

    def hand_over(self, handed_over: Callable[[], None]) -> None:
        self.calls.append("hand over")
        self.handed_over = handed_over

    def close(self) -> None:
        self.calls.append("close")


class Channel:
    """The connection to a replica. Implements ``cluster.membership.replicas.ReplicaChannel``."""

    peer = "192.0.2.2:40000"

    def __init__(self) -> None:
        self.sent: list[packets.Packet] = []
        self.closed = False
        self.time: ManualTime | None = None
        self.heard_ms = 0
        """When the replica last sent something, by ``time``."""

    def silent_ms(self) -> int:
        return 0 if self.time is None else self.time.monotonic_ms() - self.heard_ms

    def send(self, packet: packets.Packet) -> None:
        self.sent.append(packet)

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class ManualCopy:
    """A copy of the files that the test moves on. Implements ``active_link.Copy``."""

    def __init__(self, owner: CopyOwner) -> None:
        self.owner = owner
        self.finishing = self.cancelled = False

    def receive(self, data: bytes) -> None: ...

    def finish(self) -> None:
        self.finishing = True

    def cancel(self) -> None:
        self.cancelled = True


def connector(name: str = "backup", port: int = 61617) -> TransportConfiguration:
    """A connector of a node."""
    return TransportConfiguration(name, parameters={"host": "192.0.2.2", "port": str(port)})


def registration(
    *,
    group: str | None = None,
    wants_failback: bool = False,
    node_id: str | None = None,
    protocol: int = 1,
    format_version: int = 1,
    had: tuple[str, int, int] | None = None,
) -> packets.ReplicaRegistration:
    """The registration of a backup. ``had``: node id, epoch and sequence of ``ReplicaRegistration.had_node``."""
    found = packets.ReplicaRegistration(
        protocol, "b", group, wants_failback, connector(), node_id, format_version=format_version
    )
    if had is not None:
        found.had_node, found.had_epoch, found.had_sequence = had
    return found
