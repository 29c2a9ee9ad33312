"""Goal: a release is complete: what it contains installs and works without an index and without this checkout.

Method: ``.ci/release.py`` builds a release; wheels and collection are installed from its directory alone into empty
environments, a broker of the installed wheels keeps a message, and the bill of materials is checked by its schema.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900


def execute(*command: str | Path, cwd: Path) -> str:
    """Output of a command that must succeed, without a package index and without the programs of this checkout."""
    kept = {name: os.environ[name] for name in ("LANG", "HOME") if name in os.environ}
    environment = {**kept, "PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "XDG_STATE_HOME": str(cwd / "state")}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command[:3]}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a release."""
    output = tmp_path_factory.mktemp("release") / "dist"
    done = subprocess.run(
        [sys.executable, ROOT / ".ci/release.py", output], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.fixture(scope="module")
def environment(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment into which the wheels of the release alone were installed."""
    home = tmp_path_factory.mktemp("installed")
    shutil.copytree(release / "wheels", home / "wheels")
    execute(sys.executable, "-m", "venv", home / "venv", cwd=home)
    pip = (home / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check")
    execute(*pip, "--no-index", "--find-links", home / "wheels", "understudy[fast]", cwd=home)
    return home


def test_it_has_all_of_its_files(release: Path) -> None:
    found = {path.name for path in release.iterdir()}
    assert {"wheels", "RELEASE-NOTES.md", "SHA256SUMS", "sbom.cdx.json"} < found
    assert sum(name.endswith(".tar.gz") for name in found) == 3
    kernels = [path.name for path in (release / "wheels").glob("understudy_kernel-*.whl")]
    assert len(kernels) == 1
    assert "-abi3-manylinux" in kernels[0]


def test_the_checksums_fit(release: Path) -> None:
    lines = (release / "SHA256SUMS").read_text().splitlines()
    stated = dict(reversed(line.split("  ")) for line in lines)  # type: ignore[arg-type,misc]  # two parts each
    files = {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    assert set(stated) == files
    assert all(hashlib.sha256((release / name).read_bytes()).hexdigest() == digest for name, digest in stated.items())


def test_the_bill_of_materials_names_every_wheel_and_crate(release: Path) -> None:
    text = (release / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    for wheel in (release / "wheels").glob("*.whl"):
        assert f'"{wheel.name}"' in text
    assert "pkg:cargo/pyo3@" in text


def test_the_notes_have_the_changes_of_the_version(release: Path) -> None:
    notes = (release / "RELEASE-NOTES.md").read_text()
    assert "0.2.0" in notes.splitlines()[0]
    assert "Minor Changes" in notes
    assert len(notes.splitlines()) > 50


def free_ports() -> tuple[int, int]:
    """Two ports of the loopback address that no process uses."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


def test_the_installed_broker_keeps_a_message(environment: Path) -> None:
    """The whole life on one node, with commands of the installed wheels: create, run, send, receive, stop."""
    understudy = environment / "venv/bin/understudy"
    port, management = free_ports()
    execute(understudy, "create", "node", "--allow-anonymous", "--port", str(port), cwd=environment)
    running = subprocess.Popen(
        [understudy, "run", "--instance", "node", "--http", f"127.0.0.1:{management}"],
        cwd=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert running.stdout is not None
        lines = []
        while "management listens" not in "".join(lines):
            lines.append(running.stdout.readline())
            assert lines[-1], "".join(lines)
        assert '"kernel": "native"' in "".join(lines)
        url = f"tcp://127.0.0.1:{port}"
        execute(understudy, "send", "orders", "two chairs", "--url", url, cwd=environment)
        assert "two chairs" in execute(understudy, "receive", "orders", "--url", url, cwd=environment)
        execute(understudy, "stop", "--instance", "node", cwd=environment)
        assert running.wait(30) == 0
    finally:
        running.kill()
        running.wait()


def test_the_collection_installs_without_a_server(release: Path, tmp_path: Path) -> None:
    (archive,) = release.glob("understudy-broker-*.tar.gz")
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    execute(galaxy, "collection", "install", "--offline", "-p", tmp_path / "collections", archive, cwd=tmp_path)
    assert (tmp_path / "collections/ansible_collections/understudy/broker/playbooks/site.yml").exists()
