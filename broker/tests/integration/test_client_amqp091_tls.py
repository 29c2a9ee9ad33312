"""The Python client over AMQP 0-9-1 with TLS: certificates of the broker and of the client, with real processes."""

from __future__ import annotations

import asyncio

import pytest

from integration.test_tls import Certificates
from support.nodes import Nodes
from support.processes import Pair
from understudy.client.aio import connect as connect_aio
from understudy.client.sync import connect
from understudy.errors import AuthenticationFailed, BrokerError

PATIENCE_S = 30


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def pair(nodes: Nodes, certificates: Certificates) -> Pair:
    """A pair in which alice logs in by her certificate."""
    made: Pair = nodes.pair(
        security=True, acceptor=certificates.acceptor(";wantClientAuth=true"), connector=certificates.connector()
    )
    for node in (made.primary, made.backup):
        etc = node.config.parent
        (etc / "cert-users.properties").write_text("alice = CN=alice, OU=clients, O=Example\n")
        (etc / "cert-roles.properties").write_text("everything = alice\n")
    return made


def url_of(pair: Pair, parameters: str, login: str = "", host: str = "127.0.0.1") -> str:
    places = f"{host}:{pair.primary.port},{host}:{pair.backup.port}"
    return f"amqp091+tls://{login}{places}/?{parameters}"


def test_a_client_certificate_is_the_login_over_a_failover(pair: Pair, certificates: Certificates) -> None:
    pair.start()
    parameters = f"{certificates.client(certificates.alice)}&reconnectAttempts=-1&retryInterval=100"
    with connect(url_of(pair, parameters)) as connection, connection.session() as session:
        producer, consumer = session.producer("tls"), session.consumer("tls")
        producer.send("before")
        pair.primary.kill()
        producer.send("after")
        found = set()
        while found != {"before", "after"}:
            message = consumer.receive(PATIENCE_S)
            assert message is not None
            assert dict(message.properties).get("_AMQ_VALIDATED_USER") in (None, "alice")
            found.add(message.text)
            message.ack()
    listed = pair.backup.get("/api/v1/connections")[1]
    assert listed is not None


def test_a_password_over_tls(pair: Pair, certificates: Certificates) -> None:
    pair.start()
    with (
        connect(url_of(pair, certificates.client(), "bob:secret%20of%20bob@")) as connection,
        connection.session() as session,
    ):
        session.producer("tls").send("by password")
        message = session.consumer("tls").receive(PATIENCE_S)
        assert message is not None
        assert message.text == "by password"

    async def asynchronous() -> None:
        async with await connect_aio(url_of(pair, certificates.client(), "bob:secret%20of%20bob@")) as connection:
            session = await connection.session()
            producer = await session.producer("tls")
            await producer.send("asynchronous")

    asyncio.run(asynchronous())
    with pytest.raises(AuthenticationFailed):
        connect(url_of(pair, f"{certificates.client()}&initialConnectAttempts=1", "bob:wrong@"))


@pytest.mark.parametrize("which", ["another authority", "another name", "no TLS"])
def test_a_broker_that_is_not_the_right_one_is_refused(pair: Pair, certificates: Certificates, which: str) -> None:
    pair.start()
    once = "&initialConnectAttempts=1&reconnectAttempts=0"
    if which == "another authority":
        url = url_of(pair, f"trustStorePath={certificates.stranger}{once}", "bob:secret%20of%20bob@")
    elif which == "another name":
        # the certificate of the broker is for localhost and 127.0.0.1
        url = url_of(pair, f"{certificates.client()}{once}", "bob:secret%20of%20bob@", host="127.0.0.2")
    else:
        url = url_of(pair, once[1:], "bob:secret%20of%20bob@").replace("amqp091+tls", "amqp091")
    with pytest.raises(BrokerError) as caught:
        connect(url)
    assert not isinstance(caught.value, AuthenticationFailed)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("which", ["stranger", "unknown"])
def test_a_certificate_that_is_no_login_is_refused(pair: Pair, certificates: Certificates, which: str) -> None:
    pair.start()
    parameters = f"{certificates.client(getattr(certificates, which))}&initialConnectAttempts=1&reconnectAttempts=0"
    with pytest.raises(BrokerError):
        connect(url_of(pair, parameters))
