"""Goal: the collection works as it is shipped: built, installed with ansible-core alone, and run by names of playbooks.

Method: ``ansible-galaxy collection build`` of this checkout, its files compared with those under version control, an
installation into a virtual environment that has ansible-core and nothing else, and the life of the pair of
inventories/localhost from an empty directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("CHANGELOG.rst", "CONTRIBUTING.md", "README.md", "meta", "playbooks", "plugins", "roles", "inventories")
"""What an operator needs on the controller, beside the sources and the documents."""
SOURCES = ("broker/pyproject.toml", "broker/README.md", "broker/src/", "broker/kernel/")
"""What the wheels of a release are built from on the controller."""
OTHERS = ("docs", "changelogs")
MADE_BY_THE_BUILD = {"MANIFEST.json", "FILES.json"}
LARGEST_FILE = 300_000
LARGEST_ARCHIVE = 4_000_000
ADDRESSES = """
broker:
  hosts:
    primary: {broker_advertise_address: 127.0.0.95}
    backup: {broker_advertise_address: 127.0.0.96}
"""
TIMEOUT_S = 1200


def execute(*command: str, cwd: Path, **environment: str) -> str:
    """Output of a command that must succeed, in an environment that knows nothing of this checkout."""
    inherited = (
        "HOME",
        "LANG",
        "PIP_CERT",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "NO_PROXY",
    )
    kept = {name: os.environ[name] for name in inherited if name in os.environ}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}", **kept, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[:3]}: {done.stdout[-5000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("archive")
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    execute(str(galaxy), "collection", "build", "--output-path", str(made), str(ROOT), cwd=ROOT)
    (found,) = made.glob("understudy-broker-*.tar.gz")
    return found


def members(archive: Path) -> dict[str, int]:
    """Files of the archive with their sizes."""
    with tarfile.open(archive) as tar:
        return {member.name: member.size for member in tar if member.isfile()}


def test_the_archive_has_what_a_controller_needs_and_nothing_else(archive: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    tracked = [name for name in listed if (ROOT / name).exists()]
    wanted = {name for name in tracked if name.split("/")[0] in SHIPPED or name.startswith(SOURCES)}
    found = members(archive)
    assert wanted <= set(found), "the archive lacks files"
    rest = set(found) - wanted - MADE_BY_THE_BUILD
    assert {name for name in rest if name.split("/")[0] not in OTHERS} == set(), (
        "the archive has files that are of no use there"
    )
    assert rest <= set(tracked) | {"changelogs/.plugin-cache.yaml"}, (
        "the archive has files that are not under version control"
    )


def test_the_archive_is_small(archive: Path) -> None:
    assert {name: size for name, size in members(archive).items() if size > LARGEST_FILE} == {}
    assert archive.stat().st_size < LARGEST_ARCHIVE


@pytest.fixture(scope="module")
def controller(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a virtual environment of ansible-core alone, and the collection installed from the archive."""
    home = tmp_path_factory.mktemp("controller")
    execute(sys.executable, "-m", "venv", str(home / "venv"), cwd=home)
    constraints = ROOT / "requirements" / "constraints.txt"
    execute(
        str(home / "venv/bin/pip"),
        *("install", "--quiet", "--disable-pip-version-check", "-c", str(constraints), "ansible-core"),
        cwd=home,
    )
    galaxy = str(home / "venv/bin/ansible-galaxy")
    execute(galaxy, "collection", "install", "--offline", "-p", str(home / "collections"), str(archive), cwd=home)
    (home / "addresses.yml").write_text(ADDRESSES)
    return home


def run_playbook(controller: Path, name: str, *options: str) -> str:
    """A playbook of the collection by its name, against the pair of inventories/localhost."""
    installed = controller / "collections/ansible_collections/understudy/broker"
    return execute(
        str(controller / "venv/bin/ansible-playbook"),
        *("-i", str(installed / "inventories/localhost"), "-i", str(controller / "addresses.yml")),
        f"understudy.broker.{name}",
        *options,
        cwd=controller,
        ANSIBLE_COLLECTIONS_PATH=str(controller / "collections"),
        ANSIBLE_INJECT_FACT_VARS="false",
        ANSIBLE_NOCOLOR="1",
        ANSIBLE_PIPELINING="true",
        UNDERSTUDY_SCRATCH=str(controller / "pair"),
    )


@pytest.fixture(scope="module")
def pair(controller: Path) -> Iterator[Path]:
    """The pair, deployed from the installed collection."""
    try:
        run_playbook(controller, "site")
        yield controller
    finally:
        run_playbook(controller, "uninstall", "--extra-vars", '{"broker_uninstall_purge_data": true}')
        assert not (controller / "pair/primary/instance").exists()


def test_the_installed_sources_are_those_of_the_checkout(controller: Path) -> None:
    """The name of a release has the digest of its sources, so the installed sources make the same release."""
    installed = controller / "collections/ansible_collections/understudy/broker"
    sources = [path for path in (ROOT / "broker/src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert len(sources) > 500
    for path in [*sources, ROOT / "broker/pyproject.toml", ROOT / "broker/README.md"]:
        assert (installed / path.relative_to(ROOT)).read_bytes() == path.read_bytes(), path


def test_playbooks_run_by_their_names(pair: Path) -> None:
    run_playbook(pair, "health")
    drilled = run_playbook(pair, "drill", "--extra-vars", '{"drill_rounds": 1, "drill_messages": 2000}')
    assert "0 lost" in drilled, drilled[-2000:]


def test_a_second_site_changes_nothing(pair: Path) -> None:
    assert run_playbook(pair, "site").count("changed=0") == 2
