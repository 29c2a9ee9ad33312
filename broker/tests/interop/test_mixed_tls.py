"""A cluster of one of our nodes and a real Artemis over TLS in both directions: balancing and redistribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.artemis import ArtemisNode
from support.certificates import PASSWORD, make, write_trust
from support.members import members_xml, wait_knows, wait_until
from support.processes import READY_S, Node
from understudy.client.sync import Connection, Session, connect
from understudy.errors import ConnectionFailed

pytestmark = [pytest.mark.maven, pytest.mark.long]


class MixedTls:
    """Our node ``n0`` and the Artemis node ``n1``: acceptors and connectors of both have TLS only."""

    def __init__(self, artemis: Path, directory: Path) -> None:
        (port, text), (their_port, their_text) = members_xml(directory, 2)
        authority = make("CN=authority,O=Example", authority=True)
        server = make(issuer=authority)
        ours, theirs = server.write(directory / "server.pem"), server.write_pkcs12(directory / "server.p12")
        self.trust = write_trust(directory / "trust.p12", authority)
        self.trusting = (
            f"sslEnabled=true;trustStorePath={self.trust};trustStoreType=PKCS12;trustStorePassword={PASSWORD}"
        )
        named = "<artemis-members><connector-ref>n1</connector-ref></artemis-members></cluster-connection>"
        self.ours = Node(directory / "n0", "primary", port)
        self.ours.config.parent.mkdir(parents=True)
        text = self._with_tls(text, (port, their_port), port, f"keyStorePath={ours}")
        self.ours.config.write_text(text.replace("</cluster-connection>", named, 1))
        nio = "<journal-type>NIO</journal-type><connectors>"
        key_store = f"keyStorePath={theirs};keyStoreType=PKCS12;keyStorePassword={PASSWORD}"
        their_text = self._with_tls(their_text, (port, their_port), their_port, key_store)
        self.theirs = ArtemisNode(
            artemis, directory / "instance", their_port, their_text.replace("<connectors>", nio, 1)
        )

    def _with_tls(self, text: str, ports: tuple[int, ...], own: int, key_store: str) -> str:
        for each in ports:
            plain = f"tcp://127.0.0.1:{each}</connector>"
            assert plain in text
            text = text.replace(plain, f"tcp://127.0.0.1:{each}?{self.trusting}</connector>")
        plain = f"tcp://127.0.0.1:{own}</acceptor>"
        assert plain in text
        return text.replace(plain, f"tcp://127.0.0.1:{own}?sslEnabled=true;{key_store}</acceptor>")

    def start(self) -> MixedTls:
        self.theirs.start()
        self.ours.start().wait_ready("active")
        self.theirs.wait_ready("active")
        return self

    def connect(self, port: int) -> Connection:
        """A client of a node."""
        parameters = self.trusting.replace(";", "&")
        return connect(f"tcp://127.0.0.1:{port}?{parameters}&initialConnectAttempts=-1&retryInterval=100")

    def end(self) -> None:
        self.ours.end()
        self.theirs.end()


@pytest.fixture
def mixed(artemis: Path, tmp_path: Path) -> Iterator[MixedTls]:
    made = MixedTls(artemis, tmp_path)
    try:
        yield made.start()
    finally:
        made.end()


def move(source: Session, target: Session, bodies: list[str]) -> None:
    """Messages that are sent here, with a consumer there, arrive there, each once."""
    consumer, producer = target.consumer("q"), source.producer("q")
    for body in bodies:
        producer.send(body)
    taken = [consumer.receive(READY_S) for _ in bodies]
    assert sorted(each.text or "" for each in taken if each is not None) == sorted(bodies)
    assert consumer.receive(0.5) is None
    consumer.close()


@pytest.mark.feature("TLS with certificates of both sides")
def test_a_mixed_cluster_over_tls_balances_and_redistributes_in_both_directions(mixed: MixedTls) -> None:
    """Redistribution: the messages are sent before the other node has a consumer."""
    bodies = [f"message {number}" for number in range(60)]
    with (
        mixed.connect(mixed.ours.port) as here,
        mixed.connect(mixed.theirs.port) as there,
        here.session() as ours,
        there.session() as theirs,
    ):
        wait_knows(mixed.ours, "q")
        for source, target in ((ours, theirs), (theirs, ours)):
            move(source, target, bodies)
            producer = source.producer("q")
            for body in bodies:
                producer.send(body)
            consumer = target.consumer("q")
            taken = [consumer.receive(READY_S) for _ in bodies]
            assert sorted(each.text or "" for each in taken if each is not None) == sorted(bodies)
            assert consumer.receive(0.5) is None
            consumer.close()
    wait_until(lambda: counts(mixed.ours)["acknowledged"] >= 2 * len(bodies), "not confirmed", mixed.ours)


@pytest.mark.feature("TLS with certificates of both sides")
def test_neither_broker_takes_plain_text(mixed: MixedTls) -> None:
    for port in (mixed.ours.port, mixed.theirs.port):
        with pytest.raises(ConnectionFailed):
            connect(f"tcp://127.0.0.1:{port}?initialConnectAttempts=1&callTimeout=3000")


def counts(node: Node) -> dict[str, int]:
    found = node.get("/api/v1/cluster")[1]
    assert isinstance(found, dict)
    (connection,) = found["connections"]
    assert isinstance(connection, dict)
    return connection
