"""TLS both ways: the stock JMS client with our acceptors; our client with those of Artemis is in
``test_our_client_connecting``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.certificates import PASSWORD, make, write_trust
from support.processes import COMMAND, Pair

pytestmark = [pytest.mark.maven, pytest.mark.long]

Java = Callable[..., "subprocess.Popen[str]"]


class Stores:
    """PEM for the broker, PKCS12 for Java."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        authority = make("CN=authority,O=Example", authority=True)
        self.server = make(issuer=authority).write(directory / "server.pem")
        self.server_of_another_host = make(issuer=authority, names=("other.example",)).write(directory / "other.pem")
        self.ca = authority.write_certificate(directory / "ca.pem")
        self.trust = write_trust(directory / "trust.p12", authority)
        self.other_trust = write_trust(directory / "strangers.p12", make("CN=another", authority=True))
        alice = make("CN=alice,OU=clients,O=Example", authority)
        self.alice = alice.write_pkcs12(directory / "alice.p12", alias="alice")

    def trusting(self, store: Path | None = None) -> str:
        return (
            f"sslEnabled=true&trustStorePath={store or self.trust}&trustStoreType=PKCS12&trustStorePassword={PASSWORD}"
        )

    @property
    def presenting(self) -> str:
        return f"&keyStorePath={self.alice}&keyStoreType=PKCS12&keyStorePassword={PASSWORD}"


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path / "stores")


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Pair]]:
    def make_pair(**options: object) -> Pair:
        pair = Pair(tmp_path, **options)  # type: ignore[arg-type]
        request.addfinalizer(pair.end)
        return pair

    return make_pair


@pytest.mark.feature("TLS with certificates of both sides")
def test_the_stock_client_over_tls(java: Java, made: Callable[..., Pair], stores: Stores) -> None:
    """Trust, both protocol versions, a certificate as login, and the refusals of either side."""
    pair = made(
        security=True,
        acceptor=f"?sslEnabled=true;keyStorePath={stores.server};trustStorePath={stores.ca};needClientAuth=true",
    )
    etc = pair.primary.config.parent
    (etc / "cert-users.properties").write_text("alice = CN=alice, OU=clients, O=Example\n")
    (etc / "cert-roles.properties").write_text("everything = alice\n")
    text = pair.primary.config.read_text()
    extra = "".join(
        f'<permission type="{name}" roles="everything"/>'
        for name in ("createNonDurableQueue", "deleteNonDurableQueue", "deleteDurableQueue", "browse", "deleteAddress")
    )
    pair.primary.config.write_text(text.replace("</security-setting>", f"{extra}</security-setting>"))
    pair.primary.start().wait_ready("active")
    place = f"tcp://localhost:{pair.primary.port}"
    own = "&useTopologyForLoadBalancing=false"
    for version in ("TLSv1.3", "TLSv1.2"):
        process = java("JmsBasics", f"{place}?{stores.trusting()}{stores.presenting}&enabledProtocols={version}{own}")
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert output.count("ok ") == 10, output
    log = pair.primary.log
    for url, said in (
        (f"{place}?{stores.trusting()}{own}", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
        (f"{place}?{stores.trusting(stores.other_trust)}{stores.presenting}{own}", "ALERT_CERTIFICATE_UNKNOWN"),
        (f"{place}?callTimeout=5000", "speaks plain text"),
    ):
        process = java("JmsBasics", url)
        output, _ = process.communicate(timeout=120)
        assert process.returncode != 0, url
        assert said in log.read_text(), log.read_text()[-2000:]


@pytest.mark.feature("TLS with certificates of both sides")
def test_the_stock_client_checks_the_name_of_the_host(java: Java, made: Callable[..., Pair], stores: Stores) -> None:
    pair = made(acceptor=f"?sslEnabled=true;keyStorePath={stores.server_of_another_host}")
    pair.primary.start().wait_ready("active")
    url = f"tcp://localhost:{pair.primary.port}?{stores.trusting()}&useTopologyForLoadBalancing=false"
    process = java("JmsBasics", url)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    process = java("JmsBasics", f"{url}&verifyHost=false")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output


@pytest.mark.feature("TLS with certificates of both sides")
def test_failover_of_the_stock_client_over_tls(java: Java, made: Callable[..., Pair], stores: Stores) -> None:
    """The client connects to the backup with the announced parameters, which name its trust store."""
    pair = made(
        acceptor=f"?sslEnabled=true;keyStorePath={stores.server}",
        connector=f"?sslEnabled=true;trustStorePath={stores.trust};trustStoreType=PKCS12;trustStorePassword={PASSWORD}",
    ).start()
    count = 1_000
    url = f"{pair.url}&{stores.trusting()}"
    producer = subprocess.Popen(
        [str(COMMAND), "produce", "--url", url, "--queue", "interop.failover", "--count", str(count),
         "--size", "100", "--rate", "400", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    consumer = java("ReceiveAcrossFailover", url, "interop.failover", str(count))
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
