"""Real pairs whose passive node cannot have its port when it takes over: the other node serves again (ADR 0125)."""

from __future__ import annotations

import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from support import zookeeper
from support.processes import Node, Pair
from support.replicated import ReplicatedPair, consume, produce, property_of, wait_until
from support.voting_pairs import VotingPairs
from support.witnesses import WitnessProcess


class Site(NamedTuple):
    """A pair in sync."""

    url: str
    active: Node
    passive: Node
    by_votes: bool = False


def shared_store(directory: Path, ends: ExitStack) -> Site:
    pair = Pair(directory)
    ends.callback(pair.end)
    pair.start()
    return Site(pair.url, pair.primary, pair.backup)


def replicated(directory: Path, ends: ExitStack, provider: str | None, *properties: tuple[str, object]) -> Site:
    values = "".join(property_of(key, value) for key, value in properties)
    manager = f"<class-name>{provider}</class-name><properties>{values}</properties>" if provider else None
    pair = ReplicatedPair(directory, manager=manager, connection_ttl_ms=3_000)
    ends.callback(pair.end)
    pair.start()
    return Site(pair.url, pair.primary, pair.backup)


def by_file(directory: Path, ends: ExitStack) -> Site:
    return replicated(directory, ends, None)


def by_witness(directory: Path, ends: ExitStack) -> Site:
    witness = WitnessProcess(directory)
    ends.callback(witness.end, signal.SIGKILL)
    witness.start("--lease-max-ms", "2000")
    properties = (("addresses", witness.address), ("secret-file", witness.secret), ("lease-ms", 2_000))
    return replicated(directory, ends, "witness", *properties)


def by_zookeeper(directory: Path, ends: ExitStack) -> Site:
    ensemble = zookeeper.Ensemble(directory, 1)
    ends.callback(ensemble.kill)
    ensemble.start()
    properties = (("connect-string", ensemble.connect_string), ("session-ms", 4_000), ("namespace", "n"))
    return replicated(directory, ends, "zookeeper", *properties)


def by_votes(directory: Path, ends: ExitStack) -> Site:
    pairs = VotingPairs(directory)
    ends.callback(pairs.end)
    pairs.start()
    return Site(pairs.url, pairs["primary1"], pairs["backup1"], by_votes=True)


@contextmanager
def other_program(port: int) -> Iterator[None]:
    """A server that closes every connection."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), socketserver.BaseRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "make",
    [
        shared_store,
        by_file,
        pytest.param(by_witness, marks=pytest.mark.long),
        pytest.param(by_votes, marks=pytest.mark.long),
        pytest.param(
            by_zookeeper,
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(not zookeeper.installed(), reason="no ZooKeeper on this machine"),
            ],
        ),
    ],
)
def test_the_other_node_serves_again_when_a_take_over_finds_its_port_in_use(
    make: Callable[[Path, ExitStack], Site], tmp_path: Path, ends: ExitStack
) -> None:
    site = make(tmp_path, ends)
    produce(site.url, 100)
    with other_program(site.passive.port):
        site.active.kill()
        process = site.passive.process
        assert process is not None
        wait_until(lambda: process.poll() is not None, site.passive)
        assert "Address already in use" in site.passive.tail()
        site.active.start()
        if site.by_votes:
            # it says that its copy was not used
            site.passive.start()
        site.active.wait_ready("active")
    consume(site.url, 100)
    if not site.by_votes:
        site.passive.start()
    site.passive.wait_ready("passive")
