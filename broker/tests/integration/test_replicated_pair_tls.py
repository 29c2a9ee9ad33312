"""A replicated pair whose connections use TLS with certificates of both sides (ADR 0054, 0057)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.replicated import PairCertificates, ReplicatedPair, Traffic, logged, wait_in_sync, wait_logged


@pytest.fixture
def certificates(tmp_path: Path) -> PairCertificates:
    return PairCertificates(tmp_path / "certificates")


@pytest.fixture
def make_pair(tmp_path: Path, certificates: PairCertificates) -> Iterator[Callable[[], ReplicatedPair]]:
    """Makes a pair that is configured and not started."""
    made: list[ReplicatedPair] = []

    def make_it() -> ReplicatedPair:
        made.append(
            ReplicatedPair(
                tmp_path, allow_failback=True, acceptor=certificates.acceptor(), connector=certificates.connector()
            )
        )
        return made[-1]

    yield make_it
    for pair in made:
        pair.end()


def url(pair: ReplicatedPair, certificates: PairCertificates) -> str:
    """URL of a pair for a client that has the certificate of the nodes."""
    return f"{pair.url}&{certificates.connector().removeprefix('?').replace(';', '&')}"


def speaks_tls(port: int) -> bool:
    """Whether the server answers text with the alert of TLS, or closes the connection without an answer."""
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        link.sendall(b"ARTEMIS" + bytes(32))
        first = link.recv(1)
        return first in (b"", b"\x15")


@pytest.mark.long
def test_kill_and_failback_of_a_pair_over_tls(
    make_pair: Callable[[], ReplicatedPair], certificates: PairCertificates, tmp_path: Path
) -> None:
    pair = make_pair().start()
    assert speaks_tls(pair.primary.port)
    load = Traffic(url(pair, certificates), tmp_path, 2_000)
    try:
        load.wait_confirmed(300)
        pair.primary.kill()
        pair.backup.wait_ready("active")
        load.wait_more(100)
        pair.primary.start().wait_ready("active")
        wait_in_sync(pair.primary, pair.backup, 2)
        load.check(pair.primary)
    finally:
        load.end()


@pytest.mark.long
def test_a_replica_with_a_certificate_of_another_authority_is_refused(
    make_pair: Callable[[], ReplicatedPair], certificates: PairCertificates
) -> None:
    pair = make_pair()
    text = pair.backup.config.read_text()
    own, unknown = (certificates.connector(path) for path in (None, certificates.unknown))
    assert own in text
    pair.backup.config.write_text(text.replace(own, unknown))
    pair.primary.start().wait_ready("active")
    pair.backup.start()
    wait_logged(pair.primary, "TLS")
    assert logged(pair.primary, "replica registered") == 0
    pair.backup.kill()
    pair.backup.config.write_text(text)
    pair.backup.start()
    wait_in_sync(pair.primary, pair.backup)
