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
from understudy_lab import ensembles
from understudy_lab.ensembles import SERVERS, Ensemble
from understudy_lab.errors import run
from understudy_lab.faults import Fault, cut_power, endure, power_on
from understudy_lab.hosts import Lab

HOSTS = ensembles.HOSTS
ZOOKEEPER = Ensemble("zookeeper", "quorum_zookeeper", "tests/lab/inventories/zookeeper.yml", "zookeeper")
#: The last one is for the module ``apt`` of Ansible.
PACKAGES = ("zookeeper", "zookeeperd", "python3-apt")


@pytest.fixture(scope="module")
def packages(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of Debian packages with ZooKeeper and all that a host lacks for it, downloaded once for an image."""
    kept = lab.image.directory / "packages" / f"{'+'.join(PACKAGES)}.tar"
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


@pytest.fixture(scope="module")
def pair(lab: Lab, packages: Path) -> Lab:
    """The hosts with the ensemble and the pair deployed."""
    installed = f"zookeeper_packages={packages}"
    ZOOKEEPER.played(lab, "tests/lab/playbooks/zookeeper_packages.yml", "--extra-vars", installed)
    return ZOOKEEPER.deployed(lab)


def test_a_second_deployment_changes_nothing(pair: Lab) -> None:
    ZOOKEEPER.deploy_again(pair)


def test_a_roll_restarts_one_server_after_the_other_and_loses_nothing(pair: Lab) -> None:
    ZOOKEEPER.restart_under_load(pair)


FAULTS = [
    Fault("power cut of the active host", cut_power, 30.0, power_on, taken_over=True),
    Fault("power cut of a server", lambda lab, _: lab.cut_power("h5"), 15.0, lambda lab, _: lab.start(["h5"])),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_nothing_is_lost_and_service_comes_back(pair: Lab, fault: Fault) -> None:
    endure(pair, fault, ZOOKEEPER.table)
