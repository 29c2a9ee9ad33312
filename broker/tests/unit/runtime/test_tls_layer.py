"""The TLS layer of an accepted connection, with a client in memory."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from support.certificates import Made, make
from understudy.errors import RemoteProtocolError
from understudy.limits import OUTGOING_BYTES_BEFORE_LOGIN_MAX, READ_BYTES_BEFORE_LOGIN_MAX
from understudy.runtime.net.handshakes import Handshakes
from understudy.runtime.net.tls_layer import State, TlsLayer, TlsPort
from understudy.testing.manual_time import ManualTime
from understudy.tls.contexts import client_context, server_context
from understudy.tls.settings import Store, TlsSettings


class Worker:
    """Runs steps when it is asked to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((work, done))

    def close(self) -> None:
        pass

    def work(self) -> None:
        """Run the waiting steps."""
        jobs, self.jobs = self.jobs, []
        for work, done in jobs:
            error: BaseException | None = None
            try:
                work()
            except ssl.SSLError as raised:
                error = raised
            done(error)


class Turn:
    """Collects the layers that have output."""

    def __init__(self) -> None:
        self.dirty: list[TlsLayer] = []

    def mark_dirty(self, layer: TlsLayer) -> None:
        self.dirty.append(layer)

    def flush(self) -> None:
        dirty, self.dirty = self.dirty, []
        for layer in dirty:
            layer.flush()


class Socket:
    """The layer below: its output arrives at the client."""

    peer = "10.0.0.9:1"
    certificate_subject = None
    upgrade_without_name = False

    def __init__(self) -> None:
        self.to_client = ssl.MemoryBIO()
        self.ended: list[str] = []
        self.waiting = 0

    def write(self, data: bytes) -> None:
        if not self.ended:
            self.to_client.write(data)

    def send(self, data: bytes) -> None:
        raise AssertionError("output goes around the flush of the socket")

    def outgoing_bytes(self) -> int:
        return self.waiting

    def close(self) -> None:
        self.ended.append("close")

    def abort(self) -> None:
        self.ended.append("abort")


class Handler:
    """The layer above: repeats its input, at most ``portion`` bytes per call."""

    held_back = held_up = proved = False

    def __init__(self, connection: TlsLayer) -> None:
        self.connection = connection
        self.received = bytearray()
        self.calls: list[int] = []
        self.portion = 1 << 30
        self.lost: list[str] = []
        self._left = bytearray()

    def receive_data(self, data: bytes | memoryview) -> bool:
        self.calls.append(len(data))
        self._left += data
        if self._left.startswith(b"refused"):
            self.connection.send(b"because of its name")
            raise RemoteProtocolError("refused")
        if self._left.startswith(b"bug"):
            raise RemoteProtocolError("not understood")
        taken = bytes(self._left[: self.portion])
        del self._left[: self.portion]
        self.received += taken
        if taken:
            self.connection.send(taken)
        return bool(self._left)

    def congested(self) -> bool:
        return False

    def disconnect(self) -> None:
        self.connection.send(b"bye")

    def connection_lost(self, reason: str) -> None:
        self.lost.append(reason)


class Setting:
    """A layer, its surroundings, and a client."""

    def __init__(self, path: Path, *, need_client_auth: bool = False, own: Made | None = None) -> None:
        authority = make("CN=authority", authority=True)
        trust = Store("trustStore", str(authority.write_certificate(path / "ca.pem")))
        keys = Store("keyStore", str(make(issuer=authority).write(path / "server.pem")))
        server = server_context(TlsSettings(key_store=keys, trust_store=trust, need_client_auth=need_client_auth))
        mine = make("CN=alice,O=Example", authority).write(path / "client.pem")
        self.client_settings = TlsSettings(
            trust_store=trust, key_store=Store("keyStore", str(mine)) if need_client_auth else None
        )
        self.worker, self.turn, self.socket = Worker(), Turn(), Socket()
        self.handshakes = Handshakes(self.worker, ManualTime())
        self.port = TlsPort.of(server.context, self.handshakes, timeout_ms=60_000)
        self.layer = TlsLayer(self.socket, self.port, self.turn, Handler)  # type: ignore[arg-type]
        self.to_server = ssl.MemoryBIO()
        self.client = client_context(self.client_settings).wrap_bio(
            self.socket.to_client, self.to_server, server_hostname="localhost"
        )

    @property
    def handler(self) -> Handler:
        assert isinstance(self.layer.handler, Handler)
        return self.layer.handler

    def shake_hands(self) -> None:
        for _ in range(4):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            self.deliver()
        assert self.layer.state is State.OPEN

    def deliver(self, portion: int = 1 << 20) -> None:
        """The output of the client arrives, in portions; steps of the handshake run, and the turn ends."""
        while self.to_server.pending or self.worker.jobs:
            data = self.to_server.read(portion) if not self.layer.congested() else b""
            backlogged = self.layer.receive_data(data)
            while backlogged:
                backlogged = self.layer.receive_data(b"")
            self.worker.work()
            # a socket that was paused is resumed by a call without data
            if not self.layer.congested():
                self.layer.receive_data(b"")
            self.turn.flush()

    def read(self) -> bytes:
        """Everything that has arrived at the client."""
        received = bytearray()
        try:
            while data := self.client.read(1 << 20):
                received += data
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return bytes(received)


def run(path: Path, test: Callable[[Setting], None], **options: bool) -> None:
    """Run a test on a loop, which the timers of layers need."""

    async def body() -> None:
        test(Setting(path, **options))

    asyncio.run(body())


@pytest.mark.parametrize("portion", [1, 7, 1 << 20])
def test_bytes_arrive_both_ways_however_they_are_cut(tmp_path: Path, portion: int) -> None:
    def test(setting: Setting) -> None:
        for _ in range(4):
            try:
                setting.client.do_handshake()
            except ssl.SSLWantReadError:
                pass
            setting.deliver(portion)
        sent = random.Random(1).randbytes(50_000 if portion == 1 else 300_000)
        for start in range(0, len(sent), 9_999):
            setting.client.write(sent[start : start + 9_999])
        setting.deliver(portion)
        assert bytes(setting.handler.received) == sent
        assert setting.read() == sent
        assert not setting.socket.ended

    run(tmp_path, test)


def test_an_answer_that_says_why_the_connection_is_dropped_reaches_the_client(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        setting.client.write(b"refused")
        with pytest.raises(RemoteProtocolError):
            setting.deliver()
        assert setting.read() == b"because of its name"

    run(tmp_path, test)


def test_the_subject_of_the_client_is_known_before_its_first_byte(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        subject = setting.layer.certificate_subject
        assert subject is not None
        assert subject.text == "CN=alice, O=Example"

    run(tmp_path, test, need_client_auth=True)


def test_a_client_without_the_required_certificate_gets_no_layer_above(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def test(setting: Setting) -> None:
        settings = TlsSettings(trust_store=setting.client_settings.trust_store)
        setting.client = client_context(settings).wrap_bio(
            setting.socket.to_client, setting.to_server, server_hostname="localhost"
        )
        with pytest.raises(ssl.SSLWantReadError):
            setting.client.do_handshake()
        setting.deliver()
        setting.client.do_handshake()
        setting.client.write(b"ARTEMIS")
        setting.deliver()
        assert setting.layer.handler is None
        assert setting.socket.ended == ["close"]
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            setting.client.read(10)
        assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in caplog.records[-1].error  # type: ignore[attr-defined]

    run(tmp_path, test, need_client_auth=True)


def test_a_read_before_the_login_is_small_and_the_rest_follows(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        sent = bytes(3 * READ_BYTES_BEFORE_LOGIN_MAX)
        setting.client.write(sent[:-5])
        setting.client.write(sent[-5:])
        while setting.to_server.pending:
            setting.layer.receive_data(setting.to_server.read())
        while setting.layer.receive_data(b""):
            pass
        assert bytes(setting.handler.received) == sent
        assert max(setting.handler.calls) <= READ_BYTES_BEFORE_LOGIN_MAX

    run(tmp_path, test)


def test_input_that_the_layer_above_leaves_over_is_continued_before_the_end(tmp_path: Path) -> None:
    """A client that sends much and closes at once: everything is handled before the connection ends."""

    def test(setting: Setting) -> None:
        setting.shake_hands()
        setting.handler.portion = 10
        setting.client.write(bytes(1000))
        with pytest.raises(ssl.SSLWantReadError):
            setting.client.unwrap()
        handler = setting.handler
        backlogged = setting.layer.receive_data(setting.to_server.read())
        assert backlogged
        assert not setting.socket.ended
        while backlogged:
            backlogged = setting.layer.receive_data(b"")
        assert len(handler.received) == 1000
        assert setting.socket.ended == ["close"]
        assert setting.read() == bytes(1000), "with the answers and close_notify"

    run(tmp_path, test)


def test_close_writes_the_output_and_close_notify(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        setting.layer.send(b"the last words")
        setting.layer.close()
        setting.layer.send(b"dropped")
        assert setting.client.read(100) == b"the last words"
        # a stream without close_notify would raise an error here
        assert setting.client.read(100) == b""
        assert setting.socket.ended == ["close"]

    run(tmp_path, test)


def test_a_node_that_stops_tells_its_clients(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        setting.layer.disconnect()
        assert setting.read() == b"bye"
        assert setting.socket.ended == ["close"]

    run(tmp_path, test)


def test_the_layer_above_learns_of_a_lost_socket_once(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        handler = setting.handler
        setting.client.write(b"cut in the middle of a record")
        setting.layer.receive_data(setting.to_server.read()[:-3])
        setting.layer.connection_lost("reset")
        setting.layer.connection_lost("reset")
        assert handler.lost == ["reset"]
        assert not handler.received
        assert len(setting.handshakes) == 0

    run(tmp_path, test)


@pytest.mark.parametrize("first", [b"ARTEMIS\0", b"GET / HTTP/1.1\r\n", b"\x80\x2e\x01", b"AMQP\0\1\0\0", b"\0"])
def test_a_client_that_speaks_plain_text_is_closed_with_a_log_line(
    tmp_path: Path, first: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def test(setting: Setting) -> None:
        setting.layer.receive_data(first)
        assert setting.socket.ended == ["close"]
        assert setting.socket.to_client.pending == 0
        assert "plain text" in caplog.text

    run(tmp_path, test)


def test_a_record_that_was_changed_ends_the_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        setting.client.write(b"good")
        good = setting.to_server.read()
        setting.client.write(b"changed")
        record = bytearray(setting.to_server.read())
        record[-1] ^= 1
        setting.layer.receive_data(good + bytes(record))
        assert bytes(setting.handler.received) == b"good"
        assert setting.socket.ended == ["close"]
        assert "TLS failed" in caplog.text

    run(tmp_path, test)


def test_nothing_is_read_while_a_step_is_computed(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            setting.client.do_handshake()
        setting.layer.receive_data(setting.to_server.read())
        assert setting.layer.state is State.COMPUTING
        assert setting.layer.held_up
        assert setting.layer.congested()
        setting.worker.work()
        assert not setting.layer.congested()

    run(tmp_path, test)


def test_a_connection_lost_during_a_step_is_left_alone_by_its_result(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            setting.client.do_handshake()
        setting.layer.receive_data(setting.to_server.read())
        setting.layer.connection_lost("reset")
        setting.worker.work()
        assert setting.layer.state is State.CLOSED
        assert setting.socket.to_client.pending == 0
        assert len(setting.handshakes) == 0

    run(tmp_path, test)


def test_a_changed_context_is_for_new_connections_only(tmp_path: Path) -> None:
    def test(setting: Setting) -> None:
        setting.shake_hands()
        other = make("CN=other")
        setting.port.context = server_context(
            TlsSettings(key_store=Store("keyStore", str(other.write(tmp_path / "other.pem"))))
        ).context
        setting.client.write(b"still here")
        setting.deliver()
        assert setting.read() == b"still here"

    run(tmp_path, test)


def test_a_client_that_makes_the_layer_answer_and_does_not_read_is_dropped(tmp_path: Path) -> None:
    """TLS 1.3 lets a client ask for new keys, which is answered, as often as it likes."""

    def test(setting: Setting) -> None:
        setting.shake_hands()
        setting.socket.waiting = OUTGOING_BYTES_BEFORE_LOGIN_MAX + 1
        setting.layer._outgoing.write(b"an answer of OpenSSL")
        setting.client.write(b"x")
        setting.layer.receive_data(setting.to_server.read())
        assert setting.socket.ended == ["abort"]

    run(tmp_path, test)


@pytest.mark.parametrize("seed", range(30))
def test_any_input_ends_the_connection_at_worst(tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Garbage, and handshakes with changed or missing bytes: no exception, and no layer above without a handshake."""
    caplog.set_level(logging.CRITICAL)
    choose = random.Random(seed)

    def test(setting: Setting) -> None:
        try:
            setting.client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        data = bytearray(setting.to_server.read())
        for _ in range(choose.randint(1, 5)):
            if choose.random() < 0.5:
                data[choose.randrange(len(data))] = choose.randrange(256)
            else:
                start = choose.randrange(len(data))
                del data[start : start + choose.randint(1, 40)]
        data += choose.randbytes(choose.randint(0, 3000))
        while data and not setting.socket.ended:
            length = choose.randint(1, 500)
            setting.layer.receive_data(bytes(data[:length]))
            del data[:length]
            setting.worker.work()
        setting.layer.connection_lost("closed")
        assert setting.layer.state is State.CLOSED
        assert len(setting.handshakes) == 0

    run(tmp_path, test)


def test_a_handshake_has_a_time_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        setting = Setting(tmp_path)
        setting.port.timeout_ms = 1
        layer = TlsLayer(setting.socket, setting.port, setting.turn, Handler)  # type: ignore[arg-type]
        with pytest.raises(ssl.SSLWantReadError):
            setting.client.do_handshake()
        layer.receive_data(setting.to_server.read()[:20])
        fired = asyncio.Event()
        # due after the timer of the layer
        asyncio.get_running_loop().call_later(0.002, fired.set)
        await fired.wait()
        assert setting.socket.ended == ["abort"]
        assert "no TLS handshake within the time limit" in caplog.text

    asyncio.run(body())
