"""A replicated pair, its lock manager and its clients on hosts of their own; packets between the hosts are dropped.

The nodes are real processes in network namespaces (root). After each partition the ledgers of the clients are judged:
nothing lost, nothing twice without the mark of a redelivery, and never two nodes that confirm (ADR 0058).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import zookeeper
from support.networks import OUTSIDE, Network, why_not
from support.processes import Node
from support.replicated import ReplicatedPair, Traffic, property_of, wait_in_sync, wait_logged, wait_until
from support.voting_pairs import VotingPairs
from support.witnesses import WitnessProcess

pytestmark = pytest.mark.long

#: Lease of the active node; the time to live of the connections between the nodes is as long.
LEASE_MS = 2_000
#: Silence after which a client gives a node up.
CLIENT = "&connectionTTL=3000&clientFailureCheckPeriod=1000&callTimeout=5000"
MANAGERS = ("witness", "zookeeper")
#: Of the pairs without one: a lost vote stops a node, whose majority is that of three pairs.
VOTING = "<vote-on-replication-failure>true</vote-on-replication-failure><quorum-size>3</quorum-size>"
#: Host of the lock manager, or of the pairs that vote.
THIRD = "third"


class Site:
    """A pair in sync, its lock manager on a third host, and traffic."""

    def __init__(self, directory: Path, manager: str, *, defaults: bool = False) -> None:
        """``defaults``: nodes and clients notice silence as they do without settings."""
        self.directory = directory
        self.network = Network("primary", "backup", THIRD)
        self._ends: list[Callable[[], object]] = [self.network.close]
        try:
            self.pair: ReplicatedPair | VotingPair
            if manager == "votes":
                self.pair = VotingPair(directory, self.network)
            else:
                self.pair = ReplicatedPair(
                    directory, manager=getattr(self, f"_{manager}")(), network=self.network,
                    connection_ttl_ms=60_000 if defaults else LEASE_MS, call_timeout_ms=30_000 if defaults else 2_000,
                )  # fmt: skip
            self._ends.append(self.pair.end)
            self.pair.start()
            self.load = Traffic(self.pair.url + ("" if defaults else CLIENT), directory, None, rate=200)
            self._ends.append(self.load.end)
            self.load.wait_confirmed(200)
        except BaseException:
            self.end()
            raise

    def _witness(self) -> str:
        witness = WitnessProcess(self.directory, self.network.address(THIRD), self.network.command(THIRD))
        self._ends.append(lambda: witness.end(signal.SIGKILL))
        witness.start("--lease-max-ms", str(LEASE_MS))
        return _manager("witness", addresses=witness.address, secret_file=witness.secret, lease_ms=LEASE_MS)

    def _zookeeper(self) -> str:
        if not zookeeper.installed():
            pytest.skip("Debian's package zookeeper is not installed")
        servers = zookeeper.Ensemble(
            self.directory, 3, host=self.network.address(THIRD), prefix=self.network.command(THIRD)
        )
        self._ends.append(servers.kill)
        servers.start()
        return _manager(
            "zookeeper", connect_string=servers.connect_string, session_ms=LEASE_MS, connection_ms=LEASE_MS // 2
        )

    def judge(self) -> dict[str, Any]:
        """End the clients and judge their ledgers.

        Returns:
            The confirmations by node and epoch.
        """
        self.load.stop()
        active = self.wait_active(self.pair.primary, self.pair.backup)
        report = self.load.check(active)
        confirmed_by: dict[str, Any] = report["confirmed_by"]
        assert confirmed_by["ok"], confirmed_by
        return confirmed_by

    def wait_active(self, *nodes: Node) -> Node:
        """Wait until one of the nodes is active."""
        found: list[Node] = []

        def one() -> bool:
            found[:] = [node for node in nodes if state(node) == "active"]
            return bool(found)

        wait_until(one, *nodes)
        return found[0]

    def confirmers(self, report: dict[str, Any]) -> list[str]:
        """Names of the nodes that confirmed, in the order of their epochs."""
        names = {f"{node.host}:{node.port}": node.role for node in (self.pair.primary, self.pair.backup)}
        return [names[place] for epoch in report["epochs"] for place in epoch["nodes"]]

    def end(self) -> None:
        """End all processes and remove the network."""
        while self._ends:
            self._ends.pop()()


class VotingPair:
    """The first of three pairs without a lock manager; the others vote on the third host."""

    def __init__(self, directory: Path, network: Network) -> None:
        self.pairs = VotingPairs(
            directory, allow_failback=False, both=VOTING, connection_ttl_ms=LEASE_MS, call_timeout_ms=2_000,
            network=network,
        )  # fmt: skip
        self.primary, self.backup, self.url = self.pairs["primary1"], self.pairs["backup1"], self.pairs.url

    def start(self) -> None:
        self.pairs.start()

    def end(self) -> None:
        self.pairs.end()


def _manager(kind: str, **properties: object) -> str:
    values = "".join(property_of(key.replace("_", "-"), value) for key, value in properties.items())
    return f"<class-name>{kind}</class-name><properties>{values}</properties>"


def state(node: Node) -> object:
    """The state of a node by its management; None: it does not answer."""
    return node.get("/health/ready")[1].get("state")


def wait_not_active(node: Node) -> None:
    """Wait until a node has ended or is not active any more."""
    process = node.process
    assert process is not None
    wait_until(lambda: process.poll() is not None or state(node) not in (None, "active"), node)


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    """Makes a site whose pair is in sync; skips where there are no network namespaces."""
    if reason := why_not():
        pytest.skip(reason)
    made: list[Site] = []

    def make(manager: str) -> Site:
        made.append(Site(tmp_path, manager))
        return made[-1]

    yield make
    for site in made:
        site.end()


MakeSite = Callable[[str], Site]


@pytest.mark.parametrize("manager", [*MANAGERS, "votes"])
def test_the_active_node_goes_on_alone_when_the_pair_is_cut(make_site: MakeSite, manager: str) -> None:
    """Both nodes reach the lock manager: the active one keeps its lock, raises the sequence and goes on."""
    site = make_site(manager)
    site.network.part("primary", "backup")
    wait_logged(site.pair.primary, "the node goes on without a replica")
    site.load.wait_more(200)
    # longer than the lease: the replica asked for the lock all the time
    time.sleep(2 * LEASE_MS / 1000)
    assert state(site.pair.backup) != "active"
    site.network.heal()
    wait_in_sync(site.pair.primary, site.pair.backup, 2)
    site.load.wait_more(100)
    assert site.confirmers(site.judge()) == ["primary"]


@pytest.mark.parametrize("manager", [*MANAGERS, "votes"])
def test_an_active_node_without_lock_manager_and_replica_stops_and_the_replica_serves(
    make_site: MakeSite, manager: str
) -> None:
    """The clients still reach the active node, so it must not confirm anything after the end of its lease."""
    site = make_site(manager)
    site.network.part("primary", "backup")
    site.network.part("primary", THIRD)
    site.wait_active(site.pair.backup)
    wait_not_active(site.pair.primary)
    site.load.wait_more(200)
    site.network.heal()
    site.load.wait_more(100)
    assert site.confirmers(site.judge()) == ["primary", "backup"]


@pytest.mark.parametrize("manager", [*MANAGERS, "votes"])
def test_the_replica_serves_when_the_active_node_is_cut_from_everything(make_site: MakeSite, manager: str) -> None:
    site = make_site(manager)
    site.network.isolate("primary")
    site.wait_active(site.pair.backup)
    site.load.wait_more(200)
    wait_not_active(site.pair.primary)
    site.network.heal()
    if site.pair.primary.process is not None and site.pair.primary.process.poll() is not None:
        site.pair.primary.start()
    wait_in_sync(site.pair.backup, site.pair.primary)
    site.load.wait_more(100)
    assert site.confirmers(site.judge())[:2] == ["primary", "backup"]


def test_a_replica_without_the_newest_data_loses_every_round_of_its_vote(make_site: MakeSite) -> None:
    """The active node goes on alone and ends while its former replica still votes (ADR 0067)."""
    site = make_site("votes")
    site.network.part("primary", "backup")
    wait_logged(site.pair.primary, "the node goes on without a replica")
    site.load.wait_more(100)
    site.pair.primary.kill()
    wait_logged(site.pair.backup, '"event": "vote decided", "node": "backup1", "positive": false')
    assert state(site.pair.backup) != "active"
    site.network.heal()
    site.pair.primary.start()
    wait_in_sync(site.pair.primary, site.pair.backup, 2)
    site.load.wait_more(100)
    assert set(site.confirmers(site.judge())) == {"primary"}


def test_the_defaults_notice_a_silent_cut_of_the_active_node(tmp_path: Path) -> None:
    """Nodes notice the cut by ``replica-silence`` and ``silenceTimeout``; limits of Artemis are 30 s and more."""
    if reason := why_not():
        pytest.skip(reason)
    site = Site(tmp_path, "witness", defaults=True)
    try:
        site.network.isolate("primary")
        wait_logged(site.pair.backup, "nothing received for 4")
        site.wait_active(site.pair.backup)
        site.load.wait_more(200)
        wait_not_active(site.pair.primary)
        site.network.heal()
        site.load.wait_more(100)
        assert site.confirmers(site.judge()) == ["primary", "backup"]
    finally:
        site.end()


def test_the_defaults_let_an_active_node_go_on_without_a_silent_replica(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    site = Site(tmp_path, "witness", defaults=True)
    try:
        site.network.isolate("backup")
        wait_logged(site.pair.primary, "silent replica dropped")
        site.load.wait_more(200)
        site.network.heal()
        wait_in_sync(site.pair.primary, site.pair.backup, 2)
        assert site.confirmers(site.judge()) == ["primary"]
    finally:
        site.end()


@pytest.mark.parametrize(("source", "target"), [("primary", "backup"), ("backup", "primary")])
def test_a_pair_cut_in_one_direction_has_one_active_node(make_site: MakeSite, source: str, target: str) -> None:
    site = make_site("witness")
    site.network.cut(source, target)
    site.wait_active(site.pair.primary)
    wait_logged(site.pair.primary, "the node goes on without a replica")
    site.load.wait_more(200)
    assert state(site.pair.backup) != "active"
    site.network.heal()
    wait_in_sync(site.pair.primary, site.pair.backup, 2)
    assert site.confirmers(site.judge()) == ["primary"]


@pytest.mark.parametrize(("source", "target"), [("primary", THIRD), (THIRD, "primary")])
def test_an_active_node_cut_from_its_lock_manager_in_one_direction(
    make_site: MakeSite, source: str, target: str
) -> None:
    """Neither its requests alone nor the answers alone renew a lease: the node stops, the replica serves."""
    site = make_site("witness")
    site.network.cut(source, target)
    wait_not_active(site.pair.primary)
    site.wait_active(site.pair.backup)
    site.load.wait_more(200)
    site.network.heal()
    site.load.wait_more(100)
    assert site.confirmers(site.judge()) == ["primary", "backup"]


@pytest.mark.parametrize("manager", [*MANAGERS, "votes"])
def test_a_node_that_was_stopped_beyond_its_lease_confirms_nothing_afterwards(
    make_site: MakeSite, manager: str
) -> None:
    site = make_site(manager)
    site.pair.primary.pause()
    site.wait_active(site.pair.backup)
    site.load.wait_more(100)
    site.pair.primary.resume()
    wait_not_active(site.pair.primary)
    site.load.wait_more(100)
    assert site.confirmers(site.judge()) == ["primary", "backup"]


@pytest.mark.parametrize("manager", MANAGERS)
def test_a_lock_manager_that_is_cut_from_both_nodes_lets_neither_serve_until_it_is_back(
    make_site: MakeSite, manager: str
) -> None:
    site = make_site(manager)
    site.network.isolate(THIRD)
    wait_not_active(site.pair.primary)
    assert state(site.pair.backup) != "active"
    site.network.heal()
    if site.pair.primary.process is not None and site.pair.primary.process.poll() is not None:
        site.pair.primary.start()
    site.wait_active(site.pair.primary, site.pair.backup)
    site.load.wait_more(100)
    site.judge()


def test_clients_cut_from_the_active_node_alone_wait_for_it(make_site: MakeSite) -> None:
    """Nodes and lock manager see each other, so no node changes its role."""
    site = make_site("witness")
    site.network.part(OUTSIDE, "primary")
    wait_logged(site.pair.primary, "connection dropped")
    assert state(site.pair.backup) != "active"
    site.network.heal()
    site.load.wait_more(200)
    assert site.confirmers(site.judge()) == ["primary"]
