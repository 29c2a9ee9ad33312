"""The client over real sockets against a fake broker in the same process: both shells."""

from __future__ import annotations

import asyncio
import gc
import re
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from support.fake_broker import FakeBroker, Store
from understudy.client import aio, sync
from understudy.errors import (
    AuthenticationFailed,
    CommitOutcomeUnknown,
    ConfigError,
    ConnectionLost,
    FailoverTimedOut,
    ObjectClosed,
    SendOutcomeUnknown,
    TransactionRolledBack,
    Unreachable,
)
from understudy.message import Message
from understudy.wire.core.packets import Commit, Packet, SessionClose, SessionSend

OPTIONS = "reconnectAttempts=-1&retryInterval=20&initialConnectAttempts=3"


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[FakeBroker, FakeBroker, str]]:
    """A primary, its backup that does not listen yet, and the URL of both."""
    store = Store()
    primary, backup = FakeBroker(store), FakeBroker(store)
    await primary.start()
    await backup.start()
    port = backup.port
    backup.stop()
    primary.backup = ("127.0.0.1", port)
    backup.port = port
    url = f"(tcp://127.0.0.1:{primary.port},tcp://127.0.0.1:{port})?ha=true&{OPTIONS}"
    try:
        yield primary, backup, url
    finally:
        primary.stop()
        backup.stop()


def run(test: Callable[[FakeBroker, FakeBroker, str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with pair() as (primary, backup, url):
            async with asyncio.timeout(60):
                await test(primary, backup, url)

    asyncio.run(main())


def test_send_receive_browse_acknowledge() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url, "u", "p") as connection:
            assert connection.node_id == primary.store.node_id
            session = await connection.session()
            producer = await session.producer("q")
            await producer.send("text", properties={"n": 1})
            await producer.send(b"bytes")
            await producer.send(Message(b"whole", priority=9))
            browser = await session.browser("q")
            contents = [each.content async for each in browser]
            assert contents == ["text", b"bytes", b"whole"]
            assert len([each async for each in browser]) == 3, "again from the top"
            consumer = await session.consumer("q")
            first = await consumer.receive(5)
            assert first is not None
            assert (first.text, first.properties["n"]) == ("text", 1)
            assert [each.body async for each in _two(consumer)] == [b"bytes", b"whole"]
            assert await consumer.receive_nowait() is None
            assert await consumer.receive(0.01) is None
            await consumer.close()
            assert (await session.query_queue("q")).message_count == 0
            with pytest.raises(ObjectClosed):
                await consumer.receive()

    run(test)


async def _two(consumer: aio.Consumer) -> AsyncIterator[aio.ReceivedMessage]:
    for _ in range(2):
        received = await consumer.receive(5)
        assert received is not None
        yield received


def test_confirmed_sends_survive_the_loss_of_the_primary() -> None:
    """Goal: no confirmed send is lost, none is doubled, order is kept, and only the failover listener is called.

    Method: the primary stores a send and dies before its answer leaves; the backup takes over.
    """

    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        heard: list[bool] = []
        seen = 0

        def die_after_the_fifth(packet: Packet) -> bool:
            nonlocal seen
            seen += isinstance(packet, SessionSend)
            return seen < 5

        primary.after = die_after_the_fifth
        async with await aio.connect(url) as connection:
            connection.add_failure_listener(lambda error, failed_over, code: heard.append(failed_over))
            session = await connection.session()
            producer = await session.producer("q", window=3)
            consumer_session = await connection.session("client")
            consumer = await consumer_session.consumer("q")

            async def take_over() -> None:
                while connection.failovers == 0 and not connection.failing_over:
                    await asyncio.sleep(0.001)
                primary.stop()
                await backup.start(backup.port)

            switch = asyncio.create_task(take_over())
            sends = []
            for number in range(20):
                await producer.wait_sendable()
                sends.append(producer.send_nowait(str(number)))
            await asyncio.gather(*sends)
            await switch
            assert heard == [True]
            assert connection.failovers == 1
            assert connection.connector is not None
            assert connection.connector.port == backup.port
            assert backup.store.duplicates >= 1, "the stored one came again and was dropped"
            numbers: list[str | None] = []
            while len(numbers) < 20:
                received = await consumer.receive(5)
                assert received is not None
                numbers.append(received.text)
                assert await consumer.acknowledge(received)
            assert numbers == [str(number) for number in range(20)]
            assert await consumer.receive_nowait() is None

    run(test)


def test_unacknowledged_messages_come_again_and_old_ones_cannot_be_acknowledged() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url) as connection:
            session = await connection.session("client")
            producer = await session.producer("q")
            await producer.send("x")
            consumer = await session.consumer("q")
            old = await consumer.receive(5)
            assert old is not None
            primary.cut()
            again = await consumer.receive(5)
            assert again is not None
            assert again.redelivered
            assert not await consumer.acknowledge(old)
            assert await consumer.acknowledge(again)

    run(test)


def test_transactions() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url) as connection:
            session = await connection.session(transacted=True)
            producer = await session.producer("q")
            consumer = await session.consumer("q")
            await producer.send("a")
            assert await consumer.receive_nowait() is None
            await session.commit()
            received = await consumer.receive(5)
            assert received is not None
            await session.rollback()
            received = await consumer.receive(5)
            assert received is not None
            assert received.delivery_count == 2
            await session.commit()
            # A failover with work done dooms the transaction.
            await producer.send("b")
            await asyncio.sleep(0)
            primary.cut()
            while connection.failovers == 0:
                await asyncio.sleep(0.001)
            assert session.rollback_only
            with pytest.raises(TransactionRolledBack):
                await session.commit()
            # A commit that is carried out without its answer is unknown.
            await producer.send("c")
            primary.after = lambda packet: not isinstance(packet, Commit)
            with pytest.raises(CommitOutcomeUnknown):
                await session.commit()
            primary.after = None
            received = await consumer.receive(5)
            assert received is not None
            assert received.text == "c"

    run(test)


def test_without_duplicate_ids_the_outcome_is_unknown() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url) as connection:
            session = await connection.session()
            producer = await session.producer("q", duplicate_ids=False)
            primary.before = lambda packet: not isinstance(packet, SessionSend)
            with pytest.raises(SendOutcomeUnknown):
                await producer.send("x")

    run(test)


def test_the_end_of_attempts_ends_every_waiting_call() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        url = url.replace("reconnectAttempts=-1", "reconnectAttempts=1")
        heard: list[bool] = []
        async with await aio.connect(url) as connection:
            connection.add_failure_listener(lambda error, failed_over, code: heard.append(failed_over))
            session = await connection.session()
            producer = await session.producer("q", window=1)
            consumer = await session.consumer("q")
            waiting = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)

            def die_at_a_send(packet: Packet) -> bool:
                if isinstance(packet, SessionSend):
                    primary.stop()
                return True

            primary.before = die_at_a_send
            unknown = producer.send_nowait("x")
            blocked = asyncio.create_task(producer.send("y"))
            with pytest.raises(FailoverTimedOut):
                await waiting
            with pytest.raises(SendOutcomeUnknown):
                await unknown
            with pytest.raises((FailoverTimedOut, SendOutcomeUnknown)):
                await blocked
            assert heard == [False]

    run(test)


def test_without_reconnecting_a_loss_is_the_end() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url.partition("?")[0], failover=False) as connection:
            session = await connection.session()
            consumer = await session.consumer("q")
            primary.cut()
            with pytest.raises(ConnectionLost):
                await consumer.receive(5)

    run(test)


def test_connecting_fails_as_it_should() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        with pytest.raises(Unreachable):
            await aio.connect(f"tcp://127.0.0.1:{backup.port}")
        with pytest.raises(AuthenticationFailed):
            await aio.connect(url, "u", "wrong")
        connection = await aio.connect(url)
        await connection.close()
        await connection.close()

    run(test)


def test_tls(tmp_path: Path) -> None:
    """Goal: encrypted, the certificate checked for trust and name. Method: one made by openssl."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True, timeout=60)

    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        await backup.start(tls=context)
        trusted = f"sslEnabled=true&trustStorePath={certificate}"
        async with await aio.connect(f"tcp://localhost:{backup.port}?{trusted}") as connection:
            await (await (await connection.session()).producer("q")).send("x")
        with pytest.raises(Unreachable, match="certificate"):
            await aio.connect(f"tcp://127.0.0.1:{backup.port}?{trusted}")
        async with await aio.connect(f"tcp://127.0.0.1:{backup.port}?{trusted}&verifyHost=false"):
            pass
        with pytest.raises(Unreachable, match="certificate"):
            await aio.connect(f"tcp://localhost:{backup.port}?sslEnabled=true")
        async with await aio.connect(f"tcp://localhost:{backup.port}?sslEnabled=true&trustAll=true"):
            pass
        with pytest.raises(ConfigError, match=r"nowhere\.pem"):
            await aio.connect(f"tcp://localhost:{backup.port}?sslEnabled=true&trustStorePath=/nowhere.pem")

    run(test)


def test_handler_and_cancelled_receivers() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url) as connection:
            session = await connection.session()
            producer = await session.producer("q")
            consumer = await session.consumer("q")
            receiver = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)
            receiver.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiver
            got: list[str | None] = []

            async def handler(received: aio.ReceivedMessage) -> None:
                got.append(received.text)
                if len(got) == 3:
                    await consumer.close()

            for number in range(3):
                await producer.send(str(number))
            await consumer.handle(handler)
            assert got == ["0", "1", "2"]

    run(test)


@contextmanager
def resource_warnings() -> Iterator[list[str]]:
    """Texts of resource warnings. The warnings themselves are not kept: they would keep their objects alive."""
    # objects that other tests left open would cause warnings, too
    gc.collect()
    told: list[str] = []

    def show(message: Warning | str, category: type[Warning], *rest: object, **more: object) -> None:
        if category is ResourceWarning:
            told.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show  # type: ignore[assignment]
        yield told


def test_a_connection_that_is_never_closed_gives_a_warning_with_its_place() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        connection = await aio.connect(url)
        consumer = await (await connection.session()).consumer("q")
        del connection
        gc.collect()
        assert primary.connections == 1, "its session is still in use"
        with resource_warnings() as told:
            del consumer
            gc.collect()
        for what in ("session", "connection"):
            assert any(re.match(rf"{what} made at .*test_client_fake\.py.* was never closed", each) for each in told), (
                told
            )
        while primary.connections:
            await asyncio.sleep(0.001)

    run(test)


def test_discovery_without_broadcasts_fails() -> None:
    async def main() -> None:
        with pytest.raises(Unreachable, match="no broker heard"):
            await aio.connect("udp://231.7.7.7:29876?localBindAddress=127.0.0.1&discoveryInitialWaitTimeout=200")

    asyncio.run(main())


def test_a_session_that_is_never_closed_gives_a_warning_with_its_place() -> None:
    async def test(primary: FakeBroker, backup: FakeBroker, url: str) -> None:
        async with await aio.connect(url) as connection:
            lost, kept = await connection.session(), await connection.session()
            with resource_warnings() as told:
                del lost
                gc.collect()
            (found,) = told
            assert found.startswith("session made at")
            assert "test_client_fake.py" in found
            while not any(isinstance(each, SessionClose) for each in primary.received):
                await asyncio.sleep(0.001)
            await kept.query_queue("q")
            assert sum(isinstance(each, SessionClose) for each in primary.received) == 1
            with resource_warnings() as told:
                await kept.close()
                del kept
                gc.collect()
            assert told == []

    run(test)


@contextmanager
def running_broker() -> Iterator[str]:
    """A fake broker on a thread of its own, for the blocking shell."""
    ready, loop_holder = threading.Event(), []
    broker = FakeBroker(Store())

    def serve() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(broker.start())
        loop_holder.append(loop)
        ready.set()
        loop.run_forever()
        broker.stop()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    try:
        yield f"tcp://127.0.0.1:{broker.port}?{OPTIONS}"
    finally:
        loop_holder[0].call_soon_threadsafe(loop_holder[0].stop)
        thread.join()


def test_blocking_shell() -> None:
    with running_broker() as url, sync.connect(url, "u", "p") as connection:
        assert connection.failovers == 0
        assert "test_client_fake.py" in connection.created_at
        with connection.session() as session:
            producer = session.producer("q")
            producer.send("first")
            sends = [producer.send_nowait(str(number)) for number in range(100)]
            for each in sends:
                each.result(10)
            assert producer.in_flight == 0
            assert len(list(session.browser("q"))) == 101
            consumer = session.consumer("q")
            texts = []
            for received in consumer:
                texts.append(received.text)
                if len(texts) == 101:
                    break
            assert texts == ["first", *(str(number) for number in range(100))]
            assert consumer.receive_nowait() is None
            assert consumer.receive(0.01) is None
            consumer.close()
            assert list(consumer) == []
        with connection.session(transacted=True) as session:
            producer = session.producer("q")
            producer.send("t")
            session.rollback()
            session.commit()
            assert session.query_queue("q").message_count == 0


def test_blocking_shell_from_many_threads() -> None:
    with running_broker() as url, sync.connect(url) as connection:
        session = connection.session()
        producer = session.producer("q")

        def send() -> None:
            for each in [producer.send_nowait(b"x") for _ in range(200)]:
                each.result(10)

        threads = [threading.Thread(target=send) for _ in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert session.query_queue("q").message_count == 1600


def test_blocking_shell_ends_with_the_interpreter() -> None:
    """Goal: a program that never closes ends at once, with a warning and no noise. Method: run one."""
    program = (
        "import sys\n"
        "from understudy.client import sync\n"
        "connection = sync.connect(sys.argv[1])\n"
        "connection.session().producer('q').send('x')\n"
        "print('done')\n"
    )
    with running_broker() as url:
        ended = subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning", "-c", program, url],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "was never closed" in ended.stderr
    assert "Traceback" not in ended.stderr
