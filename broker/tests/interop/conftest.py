"""Clients nobody here wrote: the Artemis JMS client and command line, brought by Maven.

What Maven brings stays in its own repository; what is unpacked or compiled goes to ``.scratch``.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import Pair

ARTEMIS_VERSION = "2.44.0"
HERE = Path(__file__).parent
SCRATCH = HERE.parents[2] / ".scratch" / "interop"


def maven(*arguments: str, cwd: Path = HERE) -> None:
    """Run Maven; skips, saying why, where there is none or its repository does not answer."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed")
    result = subprocess.run(["mvn", "-q", "-B", *arguments], cwd=cwd, capture_output=True, text=True, timeout=600)
    if result.returncode:
        text = result.stdout + result.stderr
        if "Could not transfer" in text or "Unknown host" in text or "Could not resolve" in text:
            pytest.skip(f"Maven cannot reach its repository: {text[-300:]}")
        pytest.fail(f"mvn {' '.join(arguments)}: {text[-2000:]}")


@pytest.fixture(scope="session")
def java_classpath() -> str:
    """The scenarios compiled, with everything they need."""
    target = SCRATCH / "java"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE / "java", target, ignore=shutil.ignore_patterns("target"))
    maven("package", cwd=target)
    return f"{target / 'target' / 'classes'}:{target / 'target' / 'lib'}/*"


@pytest.fixture(scope="session")
def artemis() -> Path:
    """The ``artemis`` command of the distribution."""
    coordinates = f"org.apache.activemq:apache-artemis:{ARTEMIS_VERSION}:tar.gz:bin"
    home = SCRATCH / f"apache-artemis-{ARTEMIS_VERSION}"
    command = home / "bin" / "artemis"
    if not command.exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        maven("dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={SCRATCH}")
        archive = SCRATCH / f"apache-artemis-{ARTEMIS_VERSION}-bin.tar.gz"
        with tarfile.open(archive) as tar:
            tar.extractall(SCRATCH, filter="data")
        archive.unlink()
    return command


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A running pair."""
    running = Pair(tmp_path)
    try:
        yield running.start()
    finally:
        running.end()


@pytest.fixture
def java(java_classpath: str) -> Callable[..., subprocess.Popen[str]]:
    """Start one of the scenario classes."""

    def start(name: str, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        command = ["java", "-cp", java_classpath, f"understudy.interop.{name}", *arguments]
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start
