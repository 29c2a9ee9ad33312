"""The Artemis JMS client against our pair, also across a SIGKILL of the active."""

from __future__ import annotations

import io
import re
import subprocess
import time
from collections.abc import Callable

import pytest

from support.processes import COMMAND, Pair
from support.proxy import proxy_to
from understudy.client.sync import connect

pytestmark = pytest.mark.maven

Java = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.feature(
    "JMS basics: bodies, properties, acknowledgement modes, transactions, topics, browsing, request and reply"
)
def test_jms_basics(java: Java, pair: Pair) -> None:
    """Bodies, properties, acknowledgement modes, transactions, topics, browsing, request and reply."""
    process = java("JmsBasics", f"tcp://127.0.0.1:{pair.primary.port}")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert output.count("ok ") == 10, output


@pytest.mark.feature("failover: sends, consumers, temporary queues, transactions, XA, listeners")
def test_jms_client_keeps_receiving_across_a_kill(java: Java, pair: Pair) -> None:
    """A stock client with ha=true and reconnectAttempts=-1 gets every message although the active is killed."""
    count = 2_000
    producer = subprocess.Popen(
        [str(COMMAND), "produce", "--url", pair.url, "--queue", "interop.failover", "--count", str(count),
         "--size", "100", "--rate", "400", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    consumer = java("ReceiveAcrossFailover", pair.url, "interop.failover", str(count))
    assert consumer.stdout is not None
    seen = []
    for line in consumer.stdout:
        seen.append(line)
        progress = re.match(r"got (\d+)", line)
        if progress and int(progress[1]) >= count // 4:
            break
    pair.primary.kill()
    pair.backup.wait_ready("active")
    rest, _ = consumer.communicate(timeout=120)
    produced, _ = producer.communicate(timeout=60)
    assert producer.returncode == 0, produced
    assert consumer.returncode == 0, "".join(seen) + rest
    assert f"done {count} distinct, 0 seen again" in rest, rest[-500:]


@pytest.mark.feature("reattachment within the confirmation window")
def test_jms_transactions_survive_cut_connections(java: Java, pair: Pair) -> None:
    """The stock client with a confirmation window reattaches: nothing is rolled back, lost or repeated."""
    with proxy_to(pair.primary.port) as proxy:
        url = (
            f"tcp://127.0.0.1:{proxy.port}?reconnectAttempts=-1&retryInterval=50&confirmationWindowSize=1048576"
            "&useTopologyForLoadBalancing=false"
        )
        client = java("AcrossCuts", url, "interop.cuts", "2000")
        assert client.stdout is not None
        lines, cuts = [], 0
        for line in client.stdout:
            lines.append(line)
            if re.match(r"at \d+50$", line):
                cuts += proxy.cut() > 0
        assert client.wait(60) == 0, "".join(lines[-30:])
        assert lines[-1] == "done\n"
    assert cuts >= 15
    assert pair.primary.log.read_text().count("session reattached") >= cuts


@pytest.mark.feature("XA transactions")
def test_xa_with_a_commit_after_failover(java: Java, pair: Pair) -> None:
    """Branches as a transaction manager has them; the prepared one is in doubt at the other node and commits there."""
    process = java("Xa", pair.url, stdin=subprocess.PIPE)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line == "ready\n":
            break
    assert process.poll() is None, "".join(seen)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    output, _ = process.communicate("go\n", timeout=120)
    assert process.returncode == 0, "".join(seen) + output
    assert sum(line.startswith("ok ") for line in seen) == 5
    assert output.endswith("ok failover\nok interrupted branch\ndone\n"), output


def large_body(size_bytes: int) -> bytes:
    """The body that LargeMessages.java makes."""
    return bytes((index * 31 + (index >> 8) * 17 + (index >> 16)) & 0xFF for index in range(size_bytes))


def finished(process: subprocess.Popen[str], timeout_s: float = 180) -> str:
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, output[-3000:]
    return output


def large_files(pair: Pair) -> list[str]:
    return sorted(path.name for path in (pair.store / "large-messages").iterdir())


def wait_without_large_files(pair: Pair, timeout_s: float = 60) -> None:
    """Files go some seconds after their last reference."""
    deadline = time.monotonic() + timeout_s
    while large_files(pair) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert large_files(pair) == []


@pytest.mark.feature("large messages")
@pytest.mark.parametrize("options", ["", "&compressLargeMessage=true"])
def test_jms_large_messages(java: Java, pair: Pair, options: str) -> None:
    """Streams, text, non-persistent, browsing, rollback and transactions, plain and compressed."""
    output = finished(java("LargeMessages", pair.url + options, "interop.large", "basics"))
    assert output.count("ok ") == 6, output
    wait_without_large_files(pair)


@pytest.mark.long
@pytest.mark.feature("large messages")
@pytest.mark.parametrize("compress", [False, True])
def test_jms_and_our_client_exchange_large_messages(java: Java, pair: Pair, compress: bool) -> None:
    """10 MiB from a stream and 300,000 characters, from theirs to ours and back."""
    size, units = 10 * 1024 * 1024, 300_000
    body, text = large_body(size), "".join(chr(97 + index % 26) for index in range(units))
    options = "&compressLargeMessage=true" if compress else ""
    url = pair.url + options
    finished(java("LargeMessages", url, "interop.a", "send", str(size), "1"))
    finished(java("LargeMessages", url, "interop.a", "text", str(units), "1"))
    with connect(url) as connection, connection.session() as session:
        consumer = session.consumer("interop.a")
        received = consumer.receive(60)
        assert received is not None
        assert received.properties["_AMQ_LARGE_SIZE"] == size
        assert received.read_body() == body
        received = consumer.receive(60)
        assert received is not None
        assert received.text == text
        consumer.close()
        producer = session.producer("interop.b")
        producer.send(io.BytesIO(body))
        producer.send(body)
        finished(java("LargeMessages", url, "interop.b", "receive", str(size), "2"))
        producer.send(text)
        finished(java("LargeMessages", url, "interop.b", "readText", str(units), "1"))
    wait_without_large_files(pair)


@pytest.mark.feature("failover with large messages")
def test_jms_large_messages_across_a_kill(java: Java, pair: Pair) -> None:
    """Senders and receivers of 4 MiB bodies go on when the active is killed under both."""
    size, count = 4 * 1024 * 1024, 30
    sender = java("LargeMessages", pair.url, "interop.kill", "send", str(size), str(count))
    receiver = java("LargeMessages", pair.url, "interop.kill", "receive", str(size), str(count))
    assert receiver.stdout is not None
    seen = []
    for line in receiver.stdout:
        seen.append(line)
        if line.startswith("got 3"):
            break
    pair.primary.kill()
    pair.backup.wait_ready("active")
    assert receiver.poll() is None, "".join(seen)
    rest = "".join(seen) + finished(receiver)
    sent = finished(sender)
    assert f"sent {count}" in sent
    assert f"got {count}" in rest
