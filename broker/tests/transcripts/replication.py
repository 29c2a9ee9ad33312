"""Transcripts of replication: the link of an active node to its replica, and the life of a node that is not active.

Real are ``ActiveLink`` with ``Shipping`` and ``OperationContext``, and ``StandbyLife``. The connection, the copy of the
files, the disk of the active node and the lock manager are moved by commands. Time moves by ``advance`` only.

Commands for the active node begin with ``active``, those for the other node with ``standby``. Each line of output
begins with the time in milliseconds and the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from support.replica_links import Channel, ManualAuthority, ManualCopy, StepWriter, registration
from transcripts.script import arguments, options
from understudy.cluster.membership.passive_formats import PassiveFormats
from understudy.errors import ActivationRefused, BrokerError, LockLost, LockManagerUnavailable
from understudy.ha.replication.ports import Found
from understudy.ha.replication.standby_life import StandbyLife
from understudy.replication.active_link import ActiveLink, CopyOwner, LinkOptions
from understudy.store.log.operation_context import Contract, Lane, OperationContext
from understudy.store.log.operations import Append, SyncFile
from understudy.store.replication.copy_messages import Directory
from understudy.store.replication.shipping import Shipping, ShippingWriter
from understudy.testing.manual_time import ManualTime
from understudy.wire.core import packets
from understudy.wire.core.packets_replication import ReplicaProblem

NODE_ID: Final = "11111111-2222-3333-4444-555555555555"
_SEGMENT: Final = "segment-000000000001-0000000003.log"
_ERRORS: Final[dict[str, Callable[[], BrokerError]]] = {
    "refused": lambda: ActivationRefused("another node has newer data"),
    "unavailable": lambda: LockManagerUnavailable("no answer of the lock manager"),
    "lost": lambda: LockLost("another node has the permission"),
}

Report = Callable[[str], None]


def _shown(packet: packets.Packet) -> str:
    match packet:
        case packets.ReplicaAnswer(problem=ReplicaProblem.NONE):
            return f"accepted, epoch {packet.epoch}"
        case packets.ReplicaAnswer():
            return f"refused, {ReplicaProblem(packet.problem).name}: {packet.text}"
        case packets.ReplicationOperations():
            return f"operations {packet.index} of {Directory(packet.directory).name}"
        case packets.ReplicationStopping():
            return "stopping, take over" if packet.fail_over else "stopping"
        case _:
            return type(packet).__name__


class _Channel(Channel):
    def __init__(self, name: str, report: Report) -> None:
        super().__init__()
        self.name = name
        self._report = report

    def send(self, packet: packets.Packet) -> None:
        self._report(f"to {self.name}: {_shown(packet)}")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._report(f"connection of {self.name} closed")


class _Authority(ManualAuthority):
    """Reports each call, and answers by command."""

    def reporting(self, report: Report) -> _Authority:
        self.calls = _Reported(report)
        return self

    def cancel(self) -> None:
        self.calls.append("cancel")
        super().cancel()


class _Reported(list[str]):
    """Calls at the lock manager, each reported when it is made."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def append(self, call: str) -> None:
        self._report(f"lock manager: {call}")


class _Copy(ManualCopy):
    def __init__(self, link: ActiveLink, report: Report) -> None:
        super().__init__(link)
        self._report = report

    def finish(self) -> None:
        self._report("copy: send the rest")

    def cancel(self) -> None:
        self._report("copy: ended")


class _Active:
    """An active node around its link. Implements ``LinkEvents``."""

    def __init__(self, time: ManualTime, report: Report, contract: Contract) -> None:
        self._report = report
        self.authority = _Authority().reporting(report)
        self.local = StepWriter()
        shipping = Shipping()
        self._writer = ShippingWriter(self.local, Directory.LOG, shipping)
        self._context = OperationContext()
        self._context.demand(contract, [Contract.LOCAL])
        self._channels: dict[str, _Channel] = {}
        self.link = ActiveLink(
            LinkOptions(),
            self.authority,
            shipping,
            self,
            time,
            time,
            PassiveFormats(),
        )
        self.link.open(NODE_ID, 3, self._context)

    def make_copy(self, link: CopyOwner, protocol: int) -> _Copy:
        return _Copy(link, self._report)

    def replica_in_sync(self, registration: packets.ReplicaRegistration) -> None:
        asks = ", asks to become active" if registration.wants_failback else ""
        self._report(f"replica in sync{asks}")

    def replica_lost(self, registration: packets.ReplicaRegistration) -> None:
        self._report("replica lost")

    def cannot_go_on(self, error: BrokerError) -> None:
        self._report(f"ends: {error}")

    def put_back(self, registration: packets.ReplicaRegistration) -> None:
        return None

    def register(self, name: str, *flags: str) -> None:
        """A backup registers."""
        channel = self._channels[name] = _Channel(name, self._report)
        self.link.register(registration(wants_failback="failback" in flags), channel)

    def caught_up(self) -> None:
        """Little of the log is left to copy."""
        self.link.little_left()

    def copied(self) -> None:
        """The replica has noted that its copy is complete."""
        self.link.copied()

    def write(self, sequence: str) -> None:
        """A client sends a durable message."""
        self._write(int(sequence), self._context)

    def _write(self, number: int, lane: Lane) -> None:
        self._context.appended = number
        lane.when_durable(number, lambda each: self._report(f"message {each} confirmed"), number)
        append = Append(_SEGMENT, 4096, (b"x" * 40,), 40, number)

        def done(error: BaseException | None) -> None:
            if error is None:
                self._context.advance(number)

        self._writer.submit((append, SyncFile(_SEGMENT)), done)

    def write_local(self, sequence: str) -> None:
        """A client sends a durable message to an address whose contract is ``local``."""
        self._write(int(sequence), self._context.lane(Contract.LOCAL) or self._context)

    def disk(self) -> None:
        """The local disk ends its oldest job."""
        self.local.step()

    def progress(self, name: str, received: str, durable: str) -> None:
        """The replica reports its progress."""
        self.link.received(self._channels[name], packets.ReplicationProgress(int(received), int(durable)))

    def lose(self, name: str) -> None:
        """The connection of the replica ends."""
        self.link.connection_lost(self._channels[name], "connection reset")

    def claimed(self, error: str = "") -> None:
        """The lock manager answers the claim."""
        answer, self.authority.claimed = self.authority.claimed, None
        assert answer is not None
        answer(_ERRORS[error]() if error else None)

    def leave(self) -> None:
        """The node is about to stop, or to give the service back."""
        self.link.leave()

    def finish(self) -> None:
        """Report when the link is done, after the store of the node was closed."""
        self.link.finish(lambda: self._report("store closed, replica done"))


class _Standby:
    """A node that is not active. Implements ``Decisions`` and ``Standby`` in part, and ``Replica``."""

    found = Found.NOTHING

    def __init__(self, time: ManualTime, report: Report, *, complete: bool) -> None:
        self._report = report
        self.authority = _Authority(complete=complete).reporting(report)
        self.life = StandbyLife(self, self, self.authority, time, lambda life: self, retry_wait_ms=2_000)  # type: ignore
        self._ended: list[Callable[[], None]] = []

    def others_not_asked(self) -> list[str]:
        return []

    def take_place(self) -> None:
        self._report("passive")

    def activate(self) -> None:
        self._report("activates")

    def queue_again(self) -> None:
        self._report("begins again")

    def fail(self, error: BrokerError) -> None:
        self._report(f"ends: {error}")

    def watch_cluster(self) -> None:
        self._report("learns the members of the cluster")

    def follow(self) -> None:
        self._report("in sync: reads the log")

    def seek(self) -> None:
        self._report("looks for an active node")

    def end(self, ended: Callable[[], None]) -> None:
        self._report("ends the copy")
        self._ended.append(ended)

    def begin(self) -> None:
        """The node starts, or begins again."""
        self.life.begin()

    def answer(self, error: str = "") -> None:
        """The lock manager answers the request."""
        self.authority.answer(_ERRORS[error]() if error else None)

    def not_found(self) -> None:
        """No active node takes this replica."""
        self.life.not_found("no active node")

    def accepted(self) -> None:
        """The registration is accepted."""
        self.life.accepted()

    def synchronised(self) -> None:
        """The copy is complete."""
        self.life.in_sync()

    def lost(self) -> None:
        """The connection ends."""
        self.life.lost("connection reset")

    def take_over(self) -> None:
        """The active node has stopped and asks this one to take over."""
        self.life.fail_over()

    def executed(self) -> None:
        """Everything received is executed."""
        self._ended.pop(0)()


class ReplicationDriver:
    """Carries out the commands of one transcript."""

    def __init__(self) -> None:
        self._time = ManualTime()
        self._lines: list[str] = []
        self._sides: dict[str, _Active | _Standby] = {}

    def command(self, words: list[str]) -> Iterator[str]:
        """See ``script.Driver``."""
        name, given, chosen = words[0], arguments(words[1:]), options(words[1:])
        if name == "node" and given[0] == "active":
            contract = Contract[chosen.get("contract", "replica-disk").replace("-", "_").upper()]
            self._sides["active"] = _Active(self._time, self._reporter("active"), contract)
        elif name == "node":
            complete = chosen.get("complete", "yes") == "yes"
            self._sides["standby"] = _Standby(self._time, self._reporter("standby"), complete=complete)
        elif name == "advance":
            self._time.advance(int(given[0]))
        else:
            getattr(self._sides[name], given[0].replace("-", "_"))(*given[1:])
        yield from self._lines
        self._lines.clear()

    def close(self) -> None:
        """Nothing is open."""

    def _reporter(self, side: str) -> Report:
        return lambda line: self._lines.append(f"{self._time.monotonic_ms():>6} {side:<7}  {line}")
