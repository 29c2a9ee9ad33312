"""Goal: a pair whose locks are in a ZooKeeper ensemble loses nothing, also while a roll restarts the ensemble.

Method: three hosts get the packages of ZooKeeper from an archive of their own, because they reach no other one. The
playbook ``witness`` makes the ensemble of them. A roll under load restarts its servers one after the other, then the
pair.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
from understudy_lab.errors import run
from understudy_lab.faults import Fault, cut_power, endure, power_on
from understudy_lab.hosts import Lab
from understudy_lab.pair import Load, assert_kept, longest_window_s, make_ready, play, record

HOSTS = 6
TABLE = "zookeeper"
INVENTORY = "quorum_zookeeper"
ADDRESSES = ("--inventory", "tests/lab/inventories/zookeeper.yml")
SERVERS = ("h1", "h5", "h6")
PACKAGES = ("zookeeper", "zookeeperd")


@pytest.fixture(scope="module")
def packages(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of Debian packages with ZooKeeper and all that a host lacks for it, downloaded once for an image."""
    kept = lab.image.directory / "packages" / "zookeeper.tar"
    if kept.exists():
        return kept
    scratch = tmp_path_factory.mktemp("zookeeper")
    (scratch / "status").write_text(lab.output(SERVERS[0], "cat /var/lib/dpkg/status"))
    (scratch / "archives" / "partial").mkdir(parents=True)
    options = {
        "APT::Sandbox::User": "root",
        "Dir::State::status": str(scratch / "status"),
        "Dir::Cache::archives": str(scratch / "archives"),
    }
    given = [part for name, value in options.items() for part in ("--option", f"{name}={value}")]
    run(["apt-get", "-q", *given, "--yes", "--no-install-recommends", "--download-only", "install", *PACKAGES])
    shutil.rmtree(scratch / "archives" / "partial")
    (scratch / "archives" / "lock").unlink(missing_ok=True)
    listed = [_entry(package) for package in sorted((scratch / "archives").glob("*.deb"))]
    (scratch / "archives" / "Packages").write_text("\n".join(listed))
    kept.parent.mkdir(exist_ok=True)
    run(["tar", "--create", f"--file={kept}.new", f"--directory={scratch / 'archives'}", "."])
    Path(f"{kept}.new").rename(kept)
    return kept


def _entry(package: Path) -> str:
    """The entry of a package in the list of an archive."""
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    fields = run(["dpkg-deb", "--field", str(package)])
    return f"{fields.rstrip()}\nFilename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest}\n"


def played(lab: Lab, playbook: str, *options: str) -> str:
    """Output of a playbook that must succeed."""
    done = play(lab, INVENTORY, playbook, options=(*ADDRESSES, *options))
    assert done.code == 0, done.output[-3000:]
    record(TABLE, {"play": playbook, "seconds": round(done.seconds, 1)})
    return done.output


@pytest.fixture(scope="module")
def pair(lab: Lab, packages: Path) -> Lab:
    """The hosts with the ensemble and the pair deployed."""
    played(lab, "tests/lab/playbooks/zookeeper_packages.yml", "--extra-vars", f"zookeeper_packages={packages}")
    for playbook in ("playbooks/witness.yml", "playbooks/clients.yml", "playbooks/site.yml"):
        played(lab, playbook)
    return lab


def started(lab: Lab) -> list[int]:
    """The second at which the service of each server was started last."""
    script = 'date -d "$(systemctl show --property=ActiveEnterTimestamp --value zookeeper)" +%s'
    return [int(lab.output(host, script)) for host in SERVERS]


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    make_ready(pair)
    for playbook in ("playbooks/witness.yml", "playbooks/site.yml"):
        said = played(pair, playbook)
        assert said.count("changed=0") == said.count("changed="), said[-600:]


def test_a_roll_restarts_one_server_after_the_other_and_loses_nothing(pair: Lab) -> None:
    make_ready(pair)
    before = started(pair)
    load = Load(pair)
    load.await_progress()
    said = played(pair, "playbooks/rolling_restart.yml")
    after = started(pair)
    assert all(new > old for new, old in zip(after, before, strict=True)), (before, after)
    assert after == sorted(set(after)), f"servers began at the same time, or in another order: {after}"
    assert said.index("Wait until the quorum is whole again") < said.index("Stop backups")
    make_ready(pair)
    load.await_progress()
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "unresolved")}
    record(TABLE, {"roll": "restart", "gap_s": round(longest_window_s(report), 1), **kept})
    assert_kept(report)


FAULTS = [
    Fault("power cut of the active host", cut_power, 30.0, power_on, taken_over=True),
    Fault("power cut of a server", lambda lab, _: lab.cut_power("h5"), 15.0, lambda lab, _: lab.start(["h5"])),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    endure(pair, fault, TABLE)
