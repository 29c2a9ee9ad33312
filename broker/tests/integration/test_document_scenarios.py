"""Situations that the documents about high availability describe, with real processes (docs/build/coverage.md)."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, Node, Pair
from support.replicated import ReplicatedPair, wait_in_sync, wait_until
from understudy.client.sync import connect


def _run(*arguments: object) -> str:
    done = forked.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _change(node: Node, old: str, new: str) -> None:
    text = node.config.read_text()
    assert old in text
    node.config.write_text(text.replace(old, new))


def test_the_server_overrides_the_ttl_of_a_client(pair: Pair) -> None:
    """A client that asks for no limit is closed when it is silent, because the node has one of its own."""
    _change(pair.primary, "<acceptors>", "<connection-ttl-override>1500</connection-ttl-override><acceptors>")
    node = pair.primary.start()
    node.wait_ready("active")
    url = f"tcp://127.0.0.1:{node.port}?connectionTTL=-1&clientFailureCheckPeriod=-1"
    client = forked.Popen(
        [str(COMMAND), "consume", "--url", url, "--queue", "q", "--follow"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: (node.queue("q") or {}).get("consumer_count") == 1, node)
        client.send_signal(signal.SIGSTOP)
        wait_until(lambda: (node.queue("q") or {}).get("consumer_count") == 0, node, timeout_s=30)
        assert client.poll() is None
    finally:
        client.kill()
        client.wait()


@pytest.fixture
def notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager, to which a process says that its start is complete."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield manager


@pytest.mark.parametrize("waits", [True, False])
def test_a_start_waits_for_the_activation_unless_it_is_configured_not_to(
    pair: Pair, notified: socket.socket, waits: bool
) -> None:
    """A second primary of a store reports its start at once only with wait-for-activation=false."""
    pair.primary.start().wait_ready("active")
    assert b"READY=1" in notified.recv(4096)
    second = pair.backup
    shutil.copy(pair.primary.config, second.config)
    _change(second, f"127.0.0.1:{pair.primary.port}</acceptor>", f"127.0.0.1:{second.port}</acceptor>")
    wait = f"<wait-for-activation>{str(waits).lower()}</wait-for-activation>"
    _change(second, "<failover-on-shutdown>", f"{wait}<failover-on-shutdown>")
    second.start()
    wait_until(lambda: second.get("/health/live")[0] == 200, second)
    wait_until(lambda: dict(second.facts().get("ha") or {}).get("state") not in (None, "starting"), second)  # type: ignore[call-overload]  # JSON
    notified.settimeout(2 if waits else 30)
    try:
        ready = b"READY=1" in notified.recv(4096)
    except TimeoutError:
        ready = False
    assert ready == (not waits)
    pair.primary.kill()
    second.wait_ready("active")
    notified.settimeout(30)
    while waits and not ready:
        ready = b"READY=1" in notified.recv(4096)


def test_a_journal_copied_from_the_backup_serves_at_the_primary(make_pair: Callable[..., ReplicatedPair]) -> None:
    """Both nodes are down, the newest data is at the backup: its journal, copied, serves at the primary."""
    pair = make_pair().start()
    _run("produce", "--url", pair.url, "--queue", "q", "--count", 20)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    _run("produce", "--url", pair.url, "--queue", "q", "--count", 30)
    pair.backup.kill()
    store = pair.primary.directory / "data"
    shutil.rmtree(store)
    shutil.copytree(pair.backup.directory / "data", store)
    pair.primary.start().wait_ready("active")
    queue = pair.primary.queue("q")
    assert queue is not None
    assert queue["message_count"] == 50


def test_a_connector_of_the_client_replaces_the_announced_one_of_its_name(pair: Pair) -> None:
    """The announced address of the backup leads nowhere; the client has its own connector of that name."""
    wrong = free_port()
    for node in (pair.primary, pair.backup):
        _change(node, f'name="backup">tcp://127.0.0.1:{pair.backup.port}<', f'name="backup">tcp://127.0.0.1:{wrong}<')
    pair.start()
    url = (
        f"(tcp://127.0.0.1:{pair.primary.port}?name=primary,tcp://127.0.0.1:{pair.backup.port}?name=backup)"
        "?ha=true&reconnectAttempts=-1&retryInterval=100"
    )
    with connect(url) as connection:
        session = connection.session()
        producer = session.producer("q")
        producer.send(b"before")
        pair.primary.kill()
        pair.backup.wait_ready("active")
        producer.send(b"after")
        consumer = session.consumer("q")
        bodies = []
        for _ in range(2):
            message = consumer.receive(30)
            assert message is not None
            bodies.append(message.body)
        assert connection.failovers == 1
    assert bodies == [b"before", b"after"]


def test_two_peers_with_one_coordination_id_compete_and_the_other_one_is_the_backup(
    make_pair: Callable[..., ReplicatedPair],
) -> None:
    """Two primaries are peers: the first one serves, the other one is its replica and serves after a kill."""
    identity = "<coordination-id>peer-journal-001</coordination-id>"
    pair = make_pair(replication=identity)
    for old, new in (
        ("<backup>", "<primary>"),
        ("</backup>", "</primary>"),
        ("<allow-failback>false</allow-failback>", ""),
    ):
        _change(pair.backup, old, new)
    pair.start()
    ids = {str(node.facts()["node_id"]).replace("-", "") for node in (pair.primary, pair.backup)}
    assert ids == {b"peer.journal.001".hex()}
    _run("produce", "--url", pair.url, "--queue", "q", "--count", 10)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    pair.primary.start()
    wait_in_sync(pair.backup, pair.primary)
    assert pair.backup.get("/health/ready")[1]["state"] == "active"
    queue = pair.backup.queue("q")
    assert queue is not None
    assert queue["message_count"] == 10
