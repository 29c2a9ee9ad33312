"""Goal: TLS from end to end: logins by certificate, failover, refusals, and certificates that change.

Method: real processes; certificates are made by each test.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from support import forked
from support.certificates import make, served_certificate
from support.nodes import Nodes
from support.processes import COMMAND, READY_S, TOKEN, Node, Pair
from understudy.client.aio import connect as connect_aio
from understudy.client.sync import connect
from understudy.errors import AuthenticationFailed, BrokerError

OFTEN = "<configuration-file-refresh-period>50</configuration-file-refresh-period>"


class Certificates:
    """Files of one authority: server, alice (a user), stranger (of another authority)."""

    def __init__(self, directory: Path) -> None:
        authority = make("CN=authority,O=Example", authority=True)
        self.authority = authority
        self.ca = authority.write_certificate(directory / "ca.pem")
        self.server = make(issuer=authority).write(directory / "server.pem")
        self.alice = make("CN=alice,OU=clients,O=Example", authority).write(directory / "alice.pem")
        self.unknown = make("CN=unknown,O=Example", authority).write(directory / "unknown.pem")
        self.stranger = make("CN=alice,OU=clients,O=Example").write(directory / "stranger.pem")
        for path in directory.glob("*.pem"):
            path.chmod(0o600)

    def acceptor(self, more: str = "") -> str:
        return f"?sslEnabled=true;keyStorePath={self.server};trustStorePath={self.ca}{more}"

    def connector(self) -> str:
        return f"?sslEnabled=true;trustStorePath={self.ca};keyStorePath={self.server}"

    def client(self, own: Path | None = None) -> str:
        return f"sslEnabled=true&trustStorePath={self.ca}" + (f"&keyStorePath={own}" if own else "")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    directory = tmp_path / "certificates"
    directory.mkdir()
    return Certificates(directory)


@pytest.fixture
def made(nodes: Nodes) -> Callable[..., Pair]:
    def make_pair(**options: object) -> Pair:
        pair = nodes.pair(security=True, **options)
        for node in (pair.primary, pair.backup):
            etc = node.config.parent
            (etc / "cert-users.properties").write_text("alice = CN=alice, OU=clients, O=Example\n")
            (etc / "cert-roles.properties").write_text("everything = alice\n")
        return pair

    return make_pair


def until(node: Node, holds: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < READY_S, node.tail()
        time.sleep(0.02)


def test_a_pair_with_certificates_on_both_sides(certificates: Certificates, made: Callable[..., Pair]) -> None:
    """Clients and the backup prove themselves with certificates; a failover keeps every message."""
    pair = made(acceptor=certificates.acceptor(";needClientAuth=true"), connector=certificates.connector()).start()
    url = f"{pair.url}&{certificates.client(certificates.alice)}"
    with connect(url) as connection, connection.session() as session:
        producer = session.producer("q")
        for number in range(50):
            producer.send(f"before {number}")
        large = bytes(range(256)) * 8192
        producer.send(large)
        pair.primary.kill()
        producer.send("after")
        pair.backup.wait_ready("active")
        consumer = session.consumer("q")
        bodies = [consumer.receive(timeout_s=20) for _ in range(52)]
        assert all(each is not None for each in bodies)
        assert bodies[0].text == "before 0"  # type: ignore[union-attr]
        assert bodies[51].text == "after"  # type: ignore[union-attr]
        _, facts = pair.backup.get("/api/v1/node")
        (acceptor,) = facts["acceptors"]  # type: ignore[misc]
        assert acceptor["certificate"]["subject"] == "CN=localhost, O=Understudy"  # type: ignore[index]
        assert acceptor["certificate"]["days_until_expiration"] in (89, 90)  # type: ignore[index]
    host = f"127.0.0.1:{pair.backup.port}"
    good = certificates.client(certificates.alice)
    for refused in (
        f"tcp://{host}?{certificates.client()}",  # without a certificate
        f"tcp://{host}?{certificates.client(certificates.stranger)}",  # of another authority
        f"tcp://{host}?sslEnabled=true&keyStorePath={certificates.alice}",  # the broker is not trusted
        f"tcp://{host.replace('127.0.0.1', '127.0.0.2')}?{good}",  # another name
        f"tcp://{host}?callTimeout=2000",  # plain text
    ):
        with pytest.raises(BrokerError):
            connect(refused)
    refusal = pytest.raises(AuthenticationFailed, match="no user for the client certificate 'CN=unknown, O=Example'")
    with connect(f"tcp://{host}?{certificates.client(certificates.unknown)}") as connection, refusal:
        connection.session()
    with pytest.raises(AuthenticationFailed), connect(f"tcp://{host}?{good}", "bob", "wrong") as connection:
        connection.session()
    log = pair.backup.log.read_text()
    for line in ("speaks plain text", "PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"):
        assert line in log, line
    assert "PRIVATE KEY" not in log


@pytest.mark.long
def test_the_asyncio_client_and_a_password_over_tls(certificates: Certificates, made: Callable[..., Pair]) -> None:
    pair = made(acceptor=certificates.acceptor())
    pair.primary.start().wait_ready("active")

    async def talk() -> None:
        url = f"tcp://127.0.0.1:{pair.primary.port}?{certificates.client()}"
        connection = await connect_aio(url, "bob", "secret of bob")
        session = await connection.session()
        producer = await session.producer("q")
        await producer.send("hello")
        consumer = await session.consumer("q")
        received = await consumer.receive(timeout_s=10)
        assert received is not None
        assert received.text == "hello"
        await connection.close()

    asyncio.run(talk())


def test_certificates_are_replaced_while_the_node_runs(certificates: Certificates, made: Callable[..., Pair]) -> None:
    pair = made(acceptor=certificates.acceptor(";sslAutoReload=true"), extra=OFTEN)
    node = pair.primary.start()
    node.wait_ready("active")
    url = f"tcp://127.0.0.1:{node.port}?{certificates.client()}"
    with connect(url, "bob", "secret of bob") as connection, connection.session() as session:
        second = make(issuer=certificates.authority)
        new = second.write(certificates.server.with_suffix(".new"))
        new.replace(certificates.server)
        until(node, lambda: served_certificate(node.port) == second.der)
        broken = certificates.server.with_suffix(".new")
        broken.write_text("nonsense")
        broken.replace(certificates.server)
        until(node, lambda: "changed TLS files not applied" in node.log.read_text())
        assert served_certificate(node.port) == second.der
        assert str(certificates.server) in node.log.read_text()
        session.producer("q").send("the connection of the first certificate")
    third = make(issuer=certificates.authority)
    shutil.copy(third.write(certificates.server.with_suffix(".new")), certificates.server)
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    until(node, lambda: served_certificate(node.port) == third.der)
    assert "configuration reloaded" in node.log.read_text()


def test_a_reload_on_request_says_which_certificate_cannot_be_used(
    certificates: Certificates, made: Callable[..., Pair]
) -> None:
    """The certificate of before stays in use, and the other parts are reloaded."""
    pair = made(acceptor=certificates.acceptor())
    node = pair.primary.start()
    node.wait_ready("active")
    before = served_certificate(node.port)
    broken = certificates.server.with_suffix(".new")
    broken.write_text("nonsense")
    broken.replace(certificates.server)
    url = f"http://127.0.0.1:{node.http_port}/api/v1/invoke"
    body = json.dumps({"resource": "broker", "operation": "reloadConfigurationFile"}).encode()
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"Bearer {TOKEN}"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    with caught.value as answer:
        assert answer.code == 422
        said = json.loads(answer.read())["error"]["message"]
    for part in ("acceptor 'core'", certificates.server.name, "the certificate of before stays in use"):
        assert part in said
    assert str(certificates.server.parent) not in said
    assert "changed TLS files not applied" in node.log.read_text()
    assert "configuration reloaded" in node.log.read_text()
    assert served_certificate(node.port) == before


def test_check_reads_the_files_of_tls(certificates: Certificates, made: Callable[..., Pair]) -> None:
    pair = made(acceptor=certificates.acceptor())
    command = [str(COMMAND), "run", "--config", str(pair.primary.config), "--check"]
    make(issuer=certificates.authority, days=5.5).write(certificates.server).chmod(0o644)
    done = forked.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "expires in 5 days" in done.stderr
    assert f"{certificates.server} holds or may hold secrets and can be read by all users" in done.stderr
    if os.geteuid() == 0:
        # the directories of pytest are private, so that another user cannot read the files
        done = forked.run([*command, "--user", "daemon"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "user 'daemon' cannot read it: Permission denied" in done.stderr
    certificates.server.unlink()
    done = forked.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"acceptor 'core': keyStorePath {certificates.server}: No such file" in done.stderr
