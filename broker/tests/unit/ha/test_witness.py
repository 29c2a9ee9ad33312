"""The witness: grants on the disk before they are answered, no grant after a start, damaged state, and its frames."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from understudy.errors import (
    BrokerError,
    ClusterSecurityError,
    DiskFailed,
    IncompatibleVersion,
    JournalCorrupt,
    LimitExceeded,
    RemoteProtocolError,
    StoreVersionUnsupported,
)
from understudy.ha.witness import frames as frames
from understudy.ha.witness.frames import Answer, Kind, Request, Secret
from understudy.ha.witness.service import Witness
from understudy.ha.witness.state import Holder, WitnessState, decode_state
from understudy.testing.manual_time import ManualTime

LEASE_MS = 6_000
MAX_MS = 10_000
ONE, TWO = b"1" * 16, b"2" * 16


class Bench:
    """A witness whose writes the test carries out."""

    def __init__(self, state: WitnessState | None = None, *, started: bool = True) -> None:
        self.time = ManualTime()
        self.disk: list[bytes] = []
        self.saves: list[Callable[[BaseException | None], None]] = []
        self.failures: list[BrokerError] = []
        self.witness = Witness(state or WitnessState(b"i" * 16), self.time, self._save, self.failures.append, MAX_MS)
        if started:
            self.time.advance(MAX_MS)

    def _save(self, data: bytes, done: Callable[[BaseException | None], None]) -> None:
        self.disk.append(data)
        self.saves.append(done)

    def saved(self, error: BaseException | None = None) -> None:
        """The oldest write has ended."""
        self.saves.pop(0)(error)

    def ask(
        self, kind: Kind, token: bytes = ONE, first: int = LEASE_MS, second: int = 0, lock_id: str = "n"
    ) -> list[Answer]:
        """Answers to a request; empty as long as there is none."""
        answers: list[Answer] = []
        self.witness.handle(Request(kind, 1, lock_id, token, first, second), "client", answers.append)
        return answers

    def now(self, kind: Kind, token: bytes = ONE, first: int = LEASE_MS, second: int = 0, lock_id: str = "n") -> Answer:
        """The answer to a request, after the writes."""
        answers = self.ask(kind, token, first, second, lock_id)
        while self.saves:
            self.saved()
        (answer,) = answers
        return answer

    def restarted(self) -> Bench:
        """A new process with the last written state."""
        return Bench(decode_state(self.disk[-1], "state"), started=False)


def test_a_grant_is_on_the_disk_before_it_is_answered() -> None:
    bench = Bench()
    answers = bench.ask(Kind.ACQUIRE)
    assert answers == []
    assert decode_state(bench.disk[-1], "state").holders == {"n": Holder(ONE, "client", LEASE_MS)}
    bench.saved()
    assert [answer.kind for answer in answers] == [Kind.YES]


def test_a_number_that_is_not_on_the_disk_is_not_read() -> None:
    bench = Bench()
    swap, get = bench.ask(Kind.SWAP, first=0, second=-1), bench.ask(Kind.GET)
    assert swap == get == []
    bench.saved()
    assert swap[0].kind is Kind.YES
    assert get[0].value == -1


def test_changes_during_a_write_are_written_together_after_it() -> None:
    bench = Bench()
    first = bench.ask(Kind.SET, first=1)
    second, third = bench.ask(Kind.SET, first=2), bench.ask(Kind.SET, first=3)
    assert len(bench.disk) == 1
    bench.saved()
    assert len(first) == 1
    assert second == third == []
    assert len(bench.disk) == 2
    bench.saved()
    assert len(second) == len(third) == 1
    assert bench.saves == []


def test_a_state_that_cannot_be_written_ends_the_witness_without_an_answer() -> None:
    bench = Bench()
    answers = bench.ask(Kind.ACQUIRE)
    bench.saved(DiskFailed("no space"))
    assert answers == []
    assert [str(error) for error in bench.failures] == ["no space"]


def test_a_lock_has_one_holder_until_its_lease_ends() -> None:
    bench = Bench()
    assert bench.now(Kind.ACQUIRE).kind is Kind.YES
    assert bench.now(Kind.ACQUIRE).kind is Kind.YES, "the same token: its first answer was lost"
    refusal = bench.now(Kind.ACQUIRE, TWO)
    assert refusal.kind is Kind.NO
    assert "held by client" in refusal.text
    bench.time.advance(LEASE_MS - 1)
    assert bench.now(Kind.RENEW).kind is Kind.YES
    bench.time.advance(LEASE_MS)
    assert bench.now(Kind.ACQUIRE, TWO).kind is Kind.NO
    bench.time.advance(1)
    assert bench.now(Kind.ACQUIRE, TWO).kind is Kind.YES
    assert bench.now(Kind.RENEW).kind is Kind.NO, "the former holder learns of it"
    assert bench.now(Kind.RELEASE).kind is Kind.YES, "and releases nothing"
    assert bench.now(Kind.RENEW, TWO).kind is Kind.YES


def test_a_renewal_writes_nothing() -> None:
    bench = Bench()
    bench.now(Kind.ACQUIRE)
    written = len(bench.disk)
    assert [answer.kind for answer in bench.ask(Kind.RENEW)] == [Kind.YES]
    assert len(bench.disk) == written


def test_after_a_start_only_the_recorded_holder_gets_its_lock_for_the_longest_lease() -> None:
    bench = Bench()
    bench.now(Kind.ACQUIRE)
    bench.now(Kind.SET, first=7)
    again = bench.restarted()
    for token, kind in ((TWO, Kind.NO), (ONE, Kind.YES)):
        assert again.now(Kind.ACQUIRE, token).kind is kind
    assert "grants locks in" in again.now(Kind.ACQUIRE, TWO, lock_id="other").text, "also a lock without a holder"
    assert again.now(Kind.GET).value == 7
    again.time.advance(MAX_MS - 1)
    assert again.now(Kind.ACQUIRE, TWO, lock_id="other").kind is Kind.NO
    again.time.advance(1)
    assert again.now(Kind.ACQUIRE, TWO, lock_id="other").kind is Kind.YES
    assert again.now(Kind.ACQUIRE, TWO).kind is Kind.YES, "its lease has ended meanwhile"


def test_a_lease_that_is_longer_than_the_present_maximum_is_waited_for() -> None:
    again = Bench(WitnessState(b"i" * 16, {}, {"n": Holder(ONE, "client", 60_000)}), started=False)
    again.time.advance(59_999)
    assert again.now(Kind.ACQUIRE, TWO).kind is Kind.NO
    again.time.advance(1)
    assert again.now(Kind.ACQUIRE, TWO).kind is Kind.YES


def test_a_longer_lease_is_recorded_before_it_is_answered() -> None:
    bench = Bench()
    bench.now(Kind.ACQUIRE)
    answers = bench.ask(Kind.RENEW, first=MAX_MS)
    assert answers == []
    assert decode_state(bench.disk[-1], "state").holders["n"].lease_ms == MAX_MS
    bench.saved()
    assert answers[0].kind is Kind.YES


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(Kind.ACQUIRE, 1, "n", ONE, MAX_MS + 1), "10001 ms"),
        (Request(Kind.ACQUIRE, 1, "n", ONE, 499), "499 ms"),
        (Request(Kind.ACQUIRE, 1, "n", first=LEASE_MS), "without a token"),
        (Request(Kind.GET, 1, ""), "without an id"),
    ],
)
def test_impossible_requests_are_answered_with_an_error(request_: Request, text: str) -> None:
    answers: list[Answer] = []
    Bench().witness.handle(request_, "client", answers.append)
    assert answers[0].kind is Kind.ERROR
    assert text in answers[0].text


def test_the_number_of_ids_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.ha.witness.service.WITNESS_IDS_MAX", 2)
    bench = Bench()
    assert bench.now(Kind.SET, lock_id="a").kind is Kind.YES
    assert bench.now(Kind.ACQUIRE, lock_id="b").kind is Kind.YES
    assert bench.now(Kind.SET, lock_id="c").kind is Kind.ERROR
    assert bench.now(Kind.SET, lock_id="a").kind is Kind.YES


def test_status_shows_locks_and_numbers_and_no_token() -> None:
    bench = Bench()
    bench.now(Kind.ACQUIRE)
    bench.now(Kind.SET, first=7)
    text = bench.now(Kind.STATUS).text
    assert '"n": 7' in text
    assert '"held": true' in text
    assert ONE.hex() not in text


class TestState:
    """The file of the state."""

    STATE = WitnessState(b"i" * 16, {"n": -4, "m": 2**63 - 1}, {"n": Holder(ONE, "client", 5)})

    def test_it_is_read_as_it_was_written(self) -> None:
        assert decode_state(self.STATE.encode(), "f") == self.STATE

    def test_every_damaged_byte_is_noticed(self) -> None:
        data = self.STATE.encode()
        for offset in range(len(data)):
            damaged = bytearray(data)
            damaged[offset] ^= 0x40
            with pytest.raises((JournalCorrupt, StoreVersionUnsupported)):
                decode_state(bytes(damaged), "f")
        for length in range(len(data)):
            with pytest.raises((JournalCorrupt, StoreVersionUnsupported)):
                decode_state(data[:length], "f")

    def test_the_error_names_the_file_and_the_offset(self) -> None:
        with pytest.raises(JournalCorrupt, match=r"f at offset 18: the checksum is wrong.*restore the file"):
            decode_state(self.STATE.encode()[:-1] + b"x", "f")


class TestFrames:
    """The handshake and the codes of frames."""

    SECRET = Secret(b"the secret of this test, shared")
    HELLO = frames.Hello(1, 1, b"i" * 16, b"n" * 32).encode()

    def test_both_sides_prove_the_secret(self) -> None:
        proof, transcript = frames.encode_proof(self.SECRET, self.HELLO, 1, b"c" * 32, "client")
        name, theirs = frames.check_proof(self.SECRET, self.HELLO, proof)
        assert (name, theirs) == ("client", transcript)
        frames.check_welcome(self.SECRET, transcript, frames.encode_welcome(self.SECRET, theirs))

    def test_a_wrong_secret_and_a_repeated_proof_are_refused(self) -> None:
        proof, transcript = frames.encode_proof(Secret(b"another"), self.HELLO, 1, b"c" * 32, "client")
        with pytest.raises(ClusterSecurityError, match="does not know the secret"):
            frames.check_proof(self.SECRET, self.HELLO, proof)
        proof, transcript = frames.encode_proof(self.SECRET, self.HELLO, 1, b"c" * 32, "client")
        other = frames.Hello(1, 1, b"i" * 16, b"m" * 32).encode()
        with pytest.raises(ClusterSecurityError):
            frames.check_proof(self.SECRET, other, proof)
        with pytest.raises(ClusterSecurityError, match="does not know the secret"):
            frames.check_welcome(self.SECRET, transcript, frames.encode_welcome(Secret(b"another"), transcript))
        with pytest.raises(ClusterSecurityError, match="refuses: no"):
            frames.check_welcome(self.SECRET, transcript, frames.encode_refusal("no"))

    def test_a_proof_is_not_accepted_as_a_welcome(self) -> None:
        proof, transcript = frames.encode_proof(self.SECRET, self.HELLO, 1, b"c" * 32, "")
        reflected = bytes((Kind.WELCOME,)) + proof[-32:]
        with pytest.raises(ClusterSecurityError):
            frames.check_welcome(self.SECRET, transcript, reflected)

    def test_changed_repeated_and_reflected_frames_are_refused(self) -> None:
        def read(data: bytes) -> bytes:
            reader = frames.FrameReader()
            reader.add(data)
            body = reader.next()
            assert body is not None
            return body

        client = self.SECRET.frames(b"t", client=True)
        sent = client.encode(Request(Kind.GET, 7, "n").encode())
        assert frames.decode_request(self.SECRET.frames(b"t", client=False).open(read(sent))).id == "n"
        server = self.SECRET.frames(b"t", client=False)
        server.open(read(sent))
        with pytest.raises(ClusterSecurityError):
            server.open(read(sent))
        with pytest.raises(ClusterSecurityError):
            client.open(read(sent))
        with pytest.raises(ClusterSecurityError):
            self.SECRET.frames(b"t", client=False).open(read(sent[:-1] + b"x"))

    def test_versions(self) -> None:
        with pytest.raises(IncompatibleVersion, match="versions 2 to 3"):
            frames.Hello.decode(frames.Hello(2, 3, b"i" * 16, b"n" * 32).encode())
        assert frames.Hello.decode(frames.Hello(1, 3, b"i" * 16, b"n" * 32).encode()).version_max == 3
        with pytest.raises(RemoteProtocolError, match="no witness"):
            frames.Hello.decode(b"SSH-2.0-OpenSSH")

    def test_long_frames_are_refused_before_they_are_read(self) -> None:
        reader = frames.FrameReader()
        reader.add((513).to_bytes(4, "big"))
        with pytest.raises(LimitExceeded, match="513 bytes, 512 allowed"):
            reader.next()
        reader = frames.FrameReader()
        reader.add(bytes(4))
        with pytest.raises(LimitExceeded):
            reader.next()

    @pytest.mark.parametrize("length", range(60))
    def test_junk_raises_documented_errors_only(self, length: int) -> None:
        for first in range(48):
            body = bytes((first,)) * length
            for decode in (frames.decode_request, frames.decode_answer, frames.Hello.decode):
                try:
                    decode(body)
                except BrokerError:
                    pass
            with pytest.raises(BrokerError):
                frames.check_proof(self.SECRET, self.HELLO, body)
