"""Our client against a real Artemis broker and against ours, the same tests: finding a broker, logging in,
noticing that it is gone, and being sent elsewhere.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ports import free_port
from support.proxy import proxy_to
from support.targets import PASSWORD, USER, Target, pause, resume
from understudy.client.core.connection.listeners import FailureCode
from understudy.client.sync import Connection, ConnectionFactory, connect
from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    CallTimedOut,
    ConfigError,
    ConnectionFailed,
    ObjectClosed,
    Unreachable,
)

pytestmark = [pytest.mark.maven, pytest.mark.long]

MakeBroker = Callable[..., Target]


def say_hello(connection: Connection, queue: str) -> None:
    """A message in and out again."""
    with connection.session() as session:
        session.producer(queue).send("hello")
        received = session.consumer(queue).receive(60)
        assert received is not None
        assert received.text == "hello"


def wait_for(condition: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


@pytest.mark.feature("login")
def test_login(make_broker: MakeBroker) -> None:
    broker = make_broker(security=True)
    with connect(broker.url, USER, PASSWORD) as connection:
        say_hello(connection, "secured")
    with connect(f"{broker.url}?user={USER}&password={PASSWORD.replace(' ', '%20')}") as connection:
        say_hello(connection, "secured")
    with pytest.raises(AuthenticationFailed), connect(broker.url, USER, "wrong") as connection:
        connection.session()


@pytest.mark.feature("static list, initialConnectAttempts")
def test_static_list(broker: Target) -> None:
    dead = free_port()
    url = f"(tcp://127.0.0.1:{dead},tcp://127.0.0.1:{broker.node.port})"
    for _ in range(3):
        with connect(url) as connection:
            say_hello(connection, "connecting.list")
            assert connection.node_id
    with pytest.raises(Unreachable):
        connect(f"tcp://127.0.0.1:{dead}?initialConnectAttempts=2&retryInterval=50")


@pytest.mark.feature("static list, initialConnectAttempts")
def test_connecting_before_the_broker_is_there(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.node.kill()
    outcome: list[Connection | BaseException] = []

    def dial() -> None:
        try:
            outcome.append(connect(f"{broker.url}?initialConnectAttempts=-1&retryInterval=100"))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=dial)
    thread.start()
    time.sleep(0.5)
    assert outcome == []
    broker.node.start().wait_ready("active")
    thread.join(60)
    assert isinstance(outcome[0], Connection), outcome
    with outcome[0] as connection:
        say_hello(connection, "late")


@pytest.mark.feature("load-balancing policies")
@pytest.mark.parametrize("policy", ["RoundRobin", "Random", "RandomSticky", "FirstElement"])
def test_policies(broker: Target, policy: str) -> None:
    """Two proxies before one broker, which count their connections."""
    with proxy_to(broker.node.port) as first, proxy_to(broker.node.port) as second:
        factory = ConnectionFactory(
            f"(tcp://127.0.0.1:{first.port},tcp://127.0.0.1:{second.port})?useTopologyForLoadBalancing=false"
            f"&connectionLoadBalancingPolicyClassName={policy}"
        )
        for _ in range(6):
            factory.connect().close()
        counts = (first.accepted, second.accepted)
    assert sum(counts) == 6
    if policy == "RoundRobin":
        assert counts == (3, 3)
    elif policy == "FirstElement":
        assert counts == (6, 0)
    elif policy == "RandomSticky":
        assert set(counts) == {0, 6}


@pytest.mark.feature("useTopologyForLoadBalancing")
def test_topology_for_load_balancing(make_broker: MakeBroker) -> None:
    """A further connection goes to the node that the topology named, past the way the URL gave."""
    broker = make_broker(
        connectors=f"<connector name='other'>tcp://127.0.0.1:{free_port()}</connector>",
        elements="<cluster-user>c</cluster-user><cluster-password>a-secret-of-this-test</cluster-password>"
        "<cluster-connections><cluster-connection name='c'><connector-ref>core</connector-ref>"
        "<static-connectors><connector-ref>other</connector-ref></static-connectors></cluster-connection>"
        "</cluster-connections>",
    )
    for use, expected in (("true", 1), ("false", 2)):
        with proxy_to(broker.node.port) as proxy:
            factory = ConnectionFactory(f"tcp://127.0.0.1:{proxy.port}?useTopologyForLoadBalancing={use}")
            for _ in range(2):
                factory.connect().close()
            assert proxy.accepted == expected


@pytest.mark.feature("callTimeout, connectionTTL, failure listeners")
def test_a_silent_broker_is_noticed(make_broker: MakeBroker) -> None:
    broker = make_broker()
    heard: list[tuple[bool, FailureCode]] = []

    def listen(error: BrokerError, failed_over: bool, code: FailureCode) -> None:
        heard.append((failed_over, code))

    called = connect(f"{broker.url}?callTimeout=3000")
    quiet = connect(f"{broker.url}?connectionTTL=1200&clientFailureCheckPeriod=300")
    for connection in (called, quiet):
        connection.add_failure_listener(listen)
    session = called.session()
    pause(broker.node)
    try:
        with pytest.raises(CallTimedOut):
            session.query_queue("anything")
        wait_for(lambda: len(heard) == 2)
        assert heard == [(False, FailureCode.DISCONNECT)] * 2
        with pytest.raises((ObjectClosed, ConnectionFailed)):
            session.query_queue("anything")
    finally:
        resume(broker.node)
        called.close()
        quiet.close()


@pytest.mark.feature("callFailoverTimeout")
def test_calls_wait_so_long_for_a_failover(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with connect(f"{broker.url}?reconnectAttempts=-1&retryInterval=50&callFailoverTimeout=600") as connection:
        session = connection.session()
        broker.node.kill()
        wait_for(lambda: connection.failing_over)
        began = time.monotonic()
        with pytest.raises(CallTimedOut):
            session.query_queue("anything")
        assert time.monotonic() - began > 0.5
        broker.node.start().wait_ready("active")
        wait_for(lambda: not connection.failing_over)
        say_hello(connection, "again")


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and it with its key in one file."""
    certificate, key, both = (directory / f"{name}-{part}.pem" for part in ("cert", "key", "both"))
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        [*command.split(), "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=60
    )
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, both


@pytest.mark.feature("TLS with certificates of both sides")
def test_tls(kind: str, make_broker: MakeBroker, tmp_path: Path) -> None:
    server, server_both = certificate(tmp_path, "server")
    client, client_both = certificate(tmp_path, "client")
    port = free_port()
    make_broker(
        acceptors=f"<acceptor name='tls'>tcp://127.0.0.1:{port}?sslEnabled=true;keyStoreType=PEM;keyStorePath={server_both};"
        f"trustStoreType=PEM;trustStorePath={client};needClientAuth=true</acceptor>"
    )
    url = f"tcp://localhost:{port}?sslEnabled=true&trustStorePath={server}"
    with connect(f"{url}&keyStorePath={client_both}&enabledProtocols=TLSv1.3") as connection:
        say_hello(connection, "encrypted")
    suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    with connect(
        f"{url}&keyStorePath={client_both}&enabledProtocols=TLSv1.2&enabledCipherSuites={suite}"
    ) as connection:
        say_hello(connection, "encrypted")
    for refused in (
        url,  # without our certificate
        f"tcp://127.0.0.1:{port}?sslEnabled=true&trustStorePath={server}&keyStorePath={client_both}",  # another name
        f"tcp://localhost:{port}?sslEnabled=true&keyStorePath={client_both}",  # not trusted
        f"tcp://localhost:{port}",  # plain text
    ):
        with pytest.raises(ConnectionFailed):
            connect(f"{refused}{'&' if '?' in refused else '?'}callTimeout=3000")


GROUP = "231.7.7.7"


@pytest.mark.feature("UDP discovery")
def test_discovery(make_broker: MakeBroker) -> None:
    """A broker that broadcasts is found; a password goes there only if the URL says so."""
    port = free_port()
    make_broker(
        elements="<broadcast-groups><broadcast-group name='b'><local-bind-address>127.0.0.1</local-bind-address>"
        f"<group-address>{GROUP}</group-address><group-port>{port}</group-port><broadcast-period>200</broadcast-period>"
        "<connector-ref>core</connector-ref></broadcast-group></broadcast-groups>"
    )
    url = f"udp://{GROUP}:{port}?localBindAddress=127.0.0.1"
    with connect(url) as connection:
        say_hello(connection, "discovered")
    with pytest.raises(ConfigError, match="datagram"):
        connect(url, USER, PASSWORD)
    with connect(f"{url}&trustDiscovery=true", USER, PASSWORD) as connection:
        say_hello(connection, "discovered")


@pytest.mark.feature("redirects (code 222)")
@pytest.mark.parametrize("kind", ["artemis"])  # this broker has no connection routers
def test_redirect(make_broker: MakeBroker) -> None:
    """A connection router sends the client to another broker, though nothing else is to be tried."""
    target = make_broker()
    port = free_port()
    router = make_broker(
        acceptors=f"<acceptor name='routed'>tcp://127.0.0.1:{port}?router=away</acceptor>",
        connectors=f"<connector name='target'>tcp://127.0.0.1:{target.node.port}</connector>",
        elements="<connection-routers><connection-router name='away'><key-type>USER_NAME</key-type>"
        "<local-target-filter>NONE</local-target-filter><policy name='FIRST_ELEMENT'/>"
        f"<pool><username>{USER}</username><password>{PASSWORD}</password><static-connectors>"
        "<connector-ref>target</connector-ref></static-connectors></pool></connection-router></connection-routers>",
    )
    with connect(f"tcp://127.0.0.1:{port}", USER, PASSWORD) as connection:
        say_hello(connection, "redirected")
        assert connection.connector is not None
        assert connection.connector.port == target.node.port
    with connect(router.url, USER, PASSWORD) as connection, connection.session() as session:
        assert not session.query_queue("redirected").exists
