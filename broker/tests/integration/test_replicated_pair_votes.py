"""Replicated pairs without a lock manager as real processes: votes, failback, data that may be old (ADR 0059)."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support import forked
from support.certificates import served_certificate
from support.nodes import Nodes
from support.processes import COMMAND
from support.replicated import (
    PairCertificates,
    Traffic,
    consume,
    logged,
    produce,
    wait_in_sync,
    wait_logged,
    wait_until,
)
from support.voting_pairs import VotingPairs

Make = Callable[..., VotingPairs]


@pytest.fixture
def make(nodes: Nodes) -> Make:
    """Makes pairs that are configured and not started."""

    def make_pairs(**settings: object) -> VotingPairs:
        return nodes.keep(VotingPairs(nodes.directory, **settings))  # type: ignore[arg-type]  # names of its own

    return make_pairs


@pytest.mark.long
def test_after_a_kill_the_other_pairs_let_the_backup_take_over_and_the_primary_comes_back(
    make: Make, tmp_path: Path
) -> None:
    pairs = make().start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    load = Traffic(pairs.url, tmp_path, 2_000)
    try:
        load.wait_confirmed(200)
        primary.kill()
        backup.wait_ready("active")
        assert logged(backup, "votes requested") >= 1
        load.wait_more(100)
        primary.start().wait_ready("active")
        wait_in_sync(primary, backup, 3)
        load.check(primary)
    finally:
        load.end()
    assert pairs["backup2"].get("/health/ready")[1].get("state") != "active"


@pytest.mark.parametrize("first", ["primary1", "backup1"])
def test_a_pair_that_lost_its_power_in_sync_serves_again_without_an_operator(make: Make, first: str) -> None:
    pairs = make(pairs=1, allow_failback=False).start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    produce(pairs.url, 100)
    # both are stopped first, so that neither notices the end of the other
    for node in (primary, backup):
        node.pause()
    for node in (primary, backup):
        node.kill()
    second = "backup1" if first == "primary1" else "primary1"
    pairs[first].start()
    wait_logged(pairs[first], "understudy promote --accept-data-loss")
    pairs[second].start()
    primary.wait_ready("active")
    wait_in_sync(primary, backup, 2)
    assert logged(primary, "the last replica of this node waits, too") >= 1
    consume(pairs.url, 100)


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=pytest.mark.long)])
def test_applications_go_on_after_both_nodes_were_killed(make: Make, tmp_path: Path, *, tls: bool) -> None:
    """Their connections to the acceptors of the node that waits are closed, so that they try until one is active."""
    settings, parameters = {}, ""
    if tls:
        certificates = PairCertificates(tmp_path / "certificates")
        settings = {"acceptor": certificates.acceptor(), "connector": certificates.connector()}
        parameters = "&" + settings["connector"].removeprefix("?").replace(";", "&")
    pairs = make(pairs=1, **settings).start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    load = Traffic(pairs.url + parameters, tmp_path, 1_500)
    try:
        load.wait_confirmed(200)
        for node in (primary, backup):
            node.pause()
        for node in (primary, backup):
            node.kill()
        primary.start()
        wait_logged(primary, "understudy promote --accept-data-loss")
        assert primary.get("/health/ready")[0] == 503
        backup.start()
        primary.wait_ready("active")
        load.wait_more(100)
        load.check(primary)
    finally:
        load.end()


@pytest.mark.parametrize("signalled", [True, False])
def test_a_node_that_waits_serves_a_renewed_certificate(make: Make, tmp_path: Path, *, signalled: bool) -> None:
    certificates = PairCertificates(tmp_path / "certificates")
    reload = "" if signalled else ";sslAutoReload=true"
    pairs = make(pairs=1, acceptor=certificates.acceptor() + reload, connector=certificates.connector()).start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    for node in (primary, backup):
        node.pause()
    for node in (primary, backup):
        node.kill()
    primary.start()
    wait_logged(primary, "understudy promote --accept-data-loss")
    wait_until(lambda: served_certificate(primary.port) != b"", primary)
    new = certificates.renew()
    if signalled:
        assert primary.process is not None
        primary.process.send_signal(signal.SIGHUP)
    wait_until(lambda: served_certificate(primary.port) == new, primary)
    assert primary.get("/health/ready")[0] == 503
    backup.start()
    primary.wait_ready("active")
    wait_in_sync(primary, backup, 2)
    assert served_certificate(primary.port) == new


def test_a_backup_that_is_made_a_primary_waits_and_names_the_command(make: Make) -> None:
    """The documented way to activate it, ``master`` in the place of ``slave``, would serve data that may be older."""
    pairs = make(pairs=1, allow_failback=False).start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    for node in (primary, backup):
        node.pause()
    for node in (primary, backup):
        node.kill()
    text = backup.config.read_text()
    changed = re.sub(r"<(/?)backup>", r"<\1master>", text).replace("<allow-failback>false</allow-failback>", "")
    assert changed.count("master>") == 2
    backup.config.write_text(changed)
    backup.start()
    wait_logged(backup, "understudy promote --accept-data-loss")
    assert "master in the place of slave, changes nothing" in backup.log.read_text()
    assert backup.get("/health/ready")[0] == 503
    done = command("promote", "--instance", backup.directory, "--accept-data-loss", "--yes")
    assert done.returncode == 0, done.stderr
    backup.wait_ready("active")


def test_an_administrator_promotes_a_node_that_waits_and_the_other_one_becomes_its_replica(make: Make) -> None:
    pairs = make(pairs=1, allow_failback=False).start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    produce(pairs.url, 100)
    # both are stopped first, so that neither notices the end of the other
    for node in (primary, backup):
        node.pause()
    for node in (primary, backup):
        node.kill()
    backup.start()
    wait_logged(backup, "understudy promote --accept-data-loss")
    assert command("promote", "--instance", backup.directory, "--yes").returncode == 2, "the consent is missing"
    done = command("promote", "--instance", backup.directory, "--accept-data-loss", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["before"] == 1
    backup.wait_ready("active")
    again = command("promote", "--instance", backup.directory, "--accept-data-loss", "--yes")
    assert again.returncode == 1
    assert "the node is active, not passive" in again.stderr
    assert backup.facts()["promotion"]["newest_known"] is None  # type: ignore[index]
    primary.start()
    wait_in_sync(backup, primary, 2)
    consume(pairs.url, 100)


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``understudy``."""
    return forked.run([str(COMMAND), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.long
def test_a_clean_stop_hands_over_without_a_vote(make: Make) -> None:
    pairs = make(allow_failback=False).start()
    produce(pairs.url, 100)
    assert pairs["primary1"].terminate() == 0
    pairs["backup1"].wait_ready("active")
    assert logged(pairs["backup1"], "votes requested") == 0
    pairs["primary1"].start()
    wait_in_sync(pairs["backup1"], pairs["primary1"], 2)
    consume(pairs.url, 100)


@pytest.mark.long
def test_a_backup_that_reaches_no_other_pair_does_not_take_over(make: Make) -> None:
    pairs = make().start()
    for name in ("backup2", "backup3", "primary2", "primary3"):
        pairs[name].kill()
    pairs["primary1"].kill()
    wait_logged(pairs["backup1"], "the vote of the cluster was lost")
    assert pairs["backup1"].get("/health/ready")[1].get("state") != "active"
    # no newer data exists, but it cannot know that
    wait_logged(pairs["backup1"], "understudy promote --accept-data-loss")
    pairs["primary1"].start()
    wait_logged(pairs["primary1"], "had a replica in sync when this node ended")


@pytest.mark.long
def test_a_primary_that_loses_its_replica_and_the_vote_stops(make: Make) -> None:
    vote = "<vote-on-replication-failure>true</vote-on-replication-failure>"
    pairs = make(primary=vote).start()
    pairs["backup2"].kill()
    pairs["backup1"].kill()
    wait_logged(pairs["primary1"], "the node goes on without a replica")
    pairs["backup1"].start()
    wait_in_sync(pairs["primary1"], pairs["backup1"], 2)
    for name in ("primary2", "backup3", "primary3", "backup1"):
        pairs[name].kill()
    wait_until(lambda: pairs["primary1"].process.poll() is not None, pairs["primary1"])  # type: ignore[union-attr]
    assert "the vote whether this node may stay active" in pairs["primary1"].tail()


def test_data_that_may_be_old_is_not_used_next_to_an_active_backup_or_alone(make: Make) -> None:
    pairs = make(pairs=1, allow_failback=False).start()
    primary, backup = pairs["primary1"], pairs["backup1"]
    assert logged(primary, "no other pair can vote") == 1
    produce(pairs.url, 100)
    primary.kill()
    backup.wait_ready("active")
    produce(pairs.url, 100)
    backup.kill()
    # the backup has newer data: the primary waits although check-for-active-server is false
    primary.start()
    wait_logged(primary, "had a replica in sync when this node ended")
    backup.start().wait_ready("active")
    wait_in_sync(backup, primary, 2)
    consume(pairs.url, 200)
