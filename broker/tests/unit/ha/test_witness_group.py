"""Members of a group of witnesses, and clients that notice a state which was put back from a backup."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.errors import BrokerError, RemoteProtocolError, StoreVersionUnsupported
from understudy.ha.locks.distributed_lock import LockManager
from understudy.ha.witness.client import WitnessLockManager
from understudy.ha.witness.frames import (
    OF_GROUP,
    Answer,
    Kind,
    Request,
    Secret,
    Standing,
)
from understudy.ha.witness.options import GroupConfiguration, WitnessClientOptions
from understudy.ha.witness.registers import BALLOT_BITS, Ballot, Register, newest
from understudy.ha.witness.service import Witness
from understudy.ha.witness.session import WitnessSession
from understudy.ha.witness.state import WitnessState, decode_state
from understudy.testing.manual_time import ManualTime

SECRET = b"a secret of more than 24 bytes"
GROUP = b"g" * 16
ONE, TWO = b"1" * 16, b"2" * 16
MAX_MS, LEASE_MS = 10_000, 6_000


class Entropy:
    """Implements ``ports.Entropy``: a count."""

    def __init__(self) -> None:
        self.count = 0

    def token(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


class Process:
    """A witness whose writes succeed at once, and connections to it. Implements ``WitnessDialer``."""

    def __init__(self, time: ManualTime, data: bytes | None = None, identity: bytes = b"i" * 16) -> None:
        self.time = time
        self.data = data or WitnessState(identity).encode()
        self.up = True
        self.start()

    def start(self) -> None:
        """Start it again with the state on its disk."""
        self.witness = Witness(decode_state(self.data, "state"), self.time, self._save, self._failed, MAX_MS)
        self.links: list[Wire] = []

    def _save(self, data: bytes, done: Callable[[BaseException | None], None]) -> None:
        self.data = data
        done(None)

    def _failed(self, error: BrokerError) -> None:
        raise AssertionError(error)

    def end(self) -> None:
        """Kill it; connections are lost."""
        self.up = False
        for wire in self.links:
            wire.link.disconnected("ended")

    def dial(self, host: str, port: int, link: object) -> None:
        if not self.up:
            self.time.call_later(0, lambda: link.disconnected("refused"))  # type: ignore[attr-defined]  # a Link
        else:
            self.links.append(Wire(self, link))

    def ask(self, kind: Kind, token: bytes = ONE, first: int = LEASE_MS, second: int = 0, key: str = "n") -> Answer:
        """The answer to a request."""
        answers: list[Answer] = []
        self.witness.handle(Request(kind, 1, key, token, first, second), "client", answers.append)
        return answers[0]


class Wire:
    """Both ends of a connection. Implements ``ports.Connection`` for the client."""

    certificate_subject = None
    peer = "client"

    def __init__(self, process: Process, link: object) -> None:
        self.process = process
        self.link = link  # type: ignore[assignment]  # a Link
        self.link: object
        self.open = True
        self.session: WitnessSession | None = None
        process.time.call_later(0, self._open)

    def _open(self) -> None:
        self.link.connected(self)  # type: ignore[attr-defined]
        back = _Back(self)
        time = self.process.time
        self.session = WitnessSession(self.process.witness, Secret(SECRET), back, Entropy(), time, lambda session: None)

    def send(self, data: bytes) -> None:
        session = self.session

        def arrive() -> None:
            if self.open and session is not None:
                session.receive_data(data)

        self.process.time.call_later(0, arrive)

    def flush(self) -> None: ...

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.open = False

    abort = close


class _Back:
    """The end at the witness. Implements ``ports.Connection``."""

    certificate_subject = None
    peer = "client"

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def send(self, data: bytes) -> None:
        def arrive() -> None:
            if self.wire.open:
                self.wire.link.receive_data(data)  # type: ignore[attr-defined]

        self.wire.process.time.call_later(0, arrive)

    def flush(self) -> None: ...

    def outgoing_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self.wire.open = False

    abort = close


class Listener:
    """Implements ``ManagerListener``."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def available(self) -> None:
        self.events.append("available")

    def unavailable(self, error: BrokerError) -> None:
        self.events.append(str(error))


def client(process: Process, time: ManualTime, group: GroupConfiguration | None = None) -> WitnessLockManager:
    """A client of a witness, started."""
    options = WitnessClientOptions([("w", 1)], SECRET, "node", LEASE_MS, group=group)
    return WitnessLockManager(options, process, time, time, Entropy())  # type: ignore[arg-type]  # dials


def started(manager: LockManager, time: ManualTime) -> Listener:
    """Start a manager; its listener."""
    listener = Listener()
    manager.start(listener)
    time.advance(10)
    return listener


def formed(process: Process, configuration: int = 1) -> None:
    """Make a witness a member of a group."""
    assert process.ask(Kind.FORM, GROUP, 0, configuration, "").kind is Kind.YES


# --- a state that was put back ----------------------------------------------------------------------------------


def test_a_state_that_was_put_back_from_a_backup_is_refused() -> None:
    time = ManualTime()
    process = Process(time)
    manager = client(process, time)
    listener = started(manager, time)
    numbers: list[object] = []
    manager.number("n").set(4, numbers.append)
    time.advance(10)
    backup = process.data
    manager.number("n").set(5, numbers.append)
    time.advance(10)
    assert numbers == [None, None]
    process.end()
    process.data, process.up = backup, True
    process.start()
    manager.number("n").get(numbers.append)
    time.advance(LEASE_MS * 3)
    assert 4 not in numbers
    assert listener.events[0] == "available"
    assert "put back from a backup" in listener.events[1]


def test_a_restart_and_an_earlier_version_of_the_witness_are_no_old_state() -> None:
    time = ManualTime()
    process = Process(time)
    manager = client(process, time)
    listener = started(manager, time)
    manager.number("n").set(4, lambda error: None)
    time.advance(10)
    process.end()
    process.up = True
    process.start()
    time.advance(LEASE_MS * 3)
    assert listener.events == ["available"]
    assert Standing.of(Answer(Kind.YES, 1).value) == Standing(0, 0)


def test_the_count_of_changes_survives_a_restart() -> None:
    process = Process(ManualTime())
    process.ask(Kind.SET, first=7)
    before = Standing.of(process.ask(Kind.PING).value)
    process.start()
    assert Standing.of(process.ask(Kind.PING).value) == before == Standing(0, 1)


# --- members ------------------------------------------------------------------------------------------------------


def test_a_member_serves_clients_of_its_group_only() -> None:
    process = Process(ManualTime())
    single = [Kind.ACQUIRE, Kind.GET, Kind.SET, Kind.SWAP]
    for kind in (Kind.READ, Kind.PREPARE, Kind.ACCEPT):
        assert process.ask(kind).kind is Kind.ERROR
    assert process.ask(Kind.ACQUIRE, second=OF_GROUP).kind is Kind.ERROR
    formed(process)
    for kind in single:
        assert process.ask(kind).kind is Kind.ERROR


def test_what_single_clients_were_granted_does_not_count_for_the_group() -> None:
    time = ManualTime()
    process = Process(time)
    time.advance(MAX_MS)
    assert process.ask(Kind.ACQUIRE).kind is Kind.YES
    formed(process)
    assert process.ask(Kind.RENEW, second=OF_GROUP).kind is Kind.NO
    assert process.ask(Kind.ACQUIRE, TWO, second=OF_GROUP).kind is Kind.NO
    time.advance(MAX_MS)
    assert process.ask(Kind.ACQUIRE, TWO, second=OF_GROUP).kind is Kind.YES


def test_a_new_member_grants_nothing_for_two_leases_also_after_a_restart() -> None:
    time = ManualTime()
    process = Process(time)
    time.advance(5 * MAX_MS)
    formed(process, 2)
    process.start()
    time.advance(2 * MAX_MS - 1)
    assert process.ask(Kind.ACQUIRE, second=OF_GROUP).kind is Kind.NO
    time.advance(1)
    assert process.ask(Kind.ACQUIRE, second=OF_GROUP).kind is Kind.YES
    process.start()
    time.advance(MAX_MS)
    assert process.ask(Kind.ACQUIRE, ONE, second=OF_GROUP).kind is Kind.YES


def test_the_configuration_rises_by_the_command_only() -> None:
    process = Process(ManualTime())
    formed(process)
    assert process.ask(Kind.FORM, GROUP, 0, 1, "").kind is Kind.YES, "repeated"
    assert process.ask(Kind.FORM, b"h" * 16, 1, 2, "").kind is Kind.NO, "another group"
    assert process.ask(Kind.FORM, GROUP, 3, 4, "").kind is Kind.NO
    assert process.ask(Kind.FORM, GROUP, 1, 2, "").kind is Kind.YES
    assert process.witness.status()["configuration"] == 2


def test_a_register_takes_no_ballot_of_another_configuration_or_below_its_promise() -> None:
    process = Process(ManualTime())
    formed(process)
    low, high = Ballot(1 << BALLOT_BITS | 1, ONE), Ballot(1 << BALLOT_BITS | 2, ONE)
    assert process.ask(Kind.PREPARE, high.token, high.number).kind is Kind.TEXT
    for kind in (Kind.PREPARE, Kind.ACCEPT):
        assert process.ask(kind, low.token, low.number, 7).kind is Kind.NO
    assert process.ask(Kind.PREPARE, high.token, high.number).kind is Kind.NO, "not twice"
    assert process.ask(Kind.ACCEPT, ONE, 2 << BALLOT_BITS | 1, 7).kind is Kind.NO
    assert process.ask(Kind.ACCEPT, high.token, high.number, 7).kind is Kind.TEXT
    read = process.ask(Kind.READ)
    assert (read.value, Register.decode(read.text)) == (1, Register(high, high, 7))


def test_the_state_of_a_member_is_read_back_and_not_by_an_earlier_version() -> None:
    register = Register(Ballot(5, ONE), Ballot(4, TWO), -3)
    state = WitnessState(b"i" * 16, {}, {}, 9, 2, GROUP, True, {"n": register})
    assert decode_state(state.encode(), "state") == state
    assert state.encode()[8:10] == b"\0\2"
    assert WitnessState(b"i" * 16, {"n": 1}, changes=3).encode()[8:10] == b"\0\1", "as before"
    with pytest.raises(StoreVersionUnsupported):
        decode_state(state.encode()[:8] + b"\0\3" + state.encode()[10:], "state")


def test_the_newest_of_several_registers() -> None:
    one = Register(Ballot(9, ONE), Ballot(2, ONE), 20)
    two = Register(Ballot(5, ONE), Ballot(2, TWO), 21)
    assert newest([one, two]) == Register(Ballot(9, ONE), Ballot(2, TWO), 21)
    with pytest.raises(RemoteProtocolError):
        Register.decode("[1]")


# --- clients of members ---------------------------------------------------------------------------------------------


def test_the_lease_of_a_member_that_was_replaced_counts_to_its_end_and_no_longer() -> None:
    time, group = ManualTime(), GroupConfiguration()
    process = Process(time)
    formed(process)
    time.advance(MAX_MS)
    manager = client(process, time, group)
    started(manager, time)
    lock = manager.lock("n")
    answers: list[object] = []
    lock.try_acquire(answers.append)
    time.advance(10)
    assert answers == [True]
    until_ms = lock.fence.proved_until_ms
    group.note(2)
    time.advance(LEASE_MS // 2)
    assert lock.fence.proved_until_ms == until_ms
    assert lock.fence.held
    time.advance(LEASE_MS)
    assert not lock.fence.held


def test_a_lease_that_ended_by_itself_is_granted_again_at_once_after_a_start_of_the_witness() -> None:
    time = ManualTime()
    process = Process(time)
    time.advance(MAX_MS)
    manager = client(process, time)
    listener = started(manager, time)
    answers: list[object] = []
    manager.lock("n").try_acquire(answers.append)
    time.advance(10)
    process.end()
    time.advance(2 * LEASE_MS)
    assert listener.events[-1] != "available"
    process.up = True
    process.start()
    started(manager, time)
    manager.lock("n").try_acquire(answers.append)
    time.advance(10)
    assert answers == [True, True], "without the wait of a witness after a start"
