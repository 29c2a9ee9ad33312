"""The clients of Artemis: its JMS client and its command line, brought by Maven.

Artifacts of Maven stay in its own repository; unpacked and compiled files go to ``.scratch``. Every
test names its feature with ``@pytest.mark.feature("name")``; ``feature_results`` keeps the outcomes, from
which ``documents.interop_matrix`` makes docs/use/interop.md.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.artemis import ArtemisPair
from support.feature_results import FeatureResults
from support.maven import maven
from support.nodes import Nodes
from support.processes import Pair
from support.targets import Target, start_target
from understudy.client.sync import Connection, Session, connect

ARTEMIS_VERSION = "2.44.0"
HERE = Path(__file__).parent
SCRATCH = HERE.parents[2] / ".scratch" / "interop"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FeatureResults(SCRATCH / "results.json"), "feature-results")


_names = itertools.count(1)


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
        maven("dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={SCRATCH}", cwd=HERE)
        archive = SCRATCH / f"apache-artemis-{ARTEMIS_VERSION}-bin.tar.gz"
        # Debian's Python 3.11.2 cannot restrict what tarfile writes; GNU tar keeps to the directory
        subprocess.run(["tar", "--extract", f"--file={archive}", f"--directory={SCRATCH}"], check=True)
        archive.unlink()
    return command


@pytest.fixture
def pair(nodes: Nodes) -> Pair:
    """A running pair."""
    return nodes.pair().start()


@pytest.fixture
def java(java_classpath: str) -> Callable[..., subprocess.Popen[str]]:
    """Start one of the scenario classes."""

    def start(name: str, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        command = ["java", "-cp", java_classpath, f"understudy.interop.{name}", *arguments]
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


TARGETS = ("understudy", "artemis")
MakeTarget = Callable[..., Target]


@pytest.fixture(scope="session")
def instances() -> Iterator[Path]:
    """A directory for what brokers keep, gone afterwards."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="instances-", dir=SCRATCH))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def _start(request: pytest.FixtureRequest, name: str, directory: Path, **how: object) -> Target:
    artemis = request.getfixturevalue("artemis") if name == "artemis" else None
    return start_target(name, directory, artemis, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="session", params=TARGETS)
def broker(request: pytest.FixtureRequest, instances: Path) -> Iterator[Target]:
    """One broker of each kind for all tests that only use queues of their own."""
    target = _start(request, request.param, instances / f"shared-{request.param}")
    yield target
    target.end()


@pytest.fixture(params=TARGETS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which kind of broker ``make_broker`` makes."""
    return str(request.param)


@pytest.fixture
def make_broker(request: pytest.FixtureRequest, kind: str, instances: Path) -> Iterator[MakeTarget]:
    """Makes brokers of that kind with a configuration of their own."""
    made: list[Target] = []

    def make(**how: object) -> Target:
        directory = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=instances))
        made.append(_start(request, kind, directory, **how))
        return made[-1]

    yield make
    for target in made:
        target.end()


@pytest.fixture
def either_pair(request: pytest.FixtureRequest, kind: str, instances: Path) -> Iterator[Pair | ArtemisPair]:
    """A running shared-store pair of that kind."""
    directory = Path(tempfile.mkdtemp(prefix=f"pair-{kind}-", dir=instances))
    artemis = request.getfixturevalue("artemis") if kind == "artemis" else None
    running = Pair(directory) if artemis is None else ArtemisPair(artemis, directory)
    try:
        yield running.start()
    finally:
        running.end()


@pytest.fixture
def queue() -> str:
    """A name that no other test uses."""
    return f"ours.q{next(_names)}"


@pytest.fixture
def connection(broker: Target) -> Iterator[Connection]:
    with connect(broker.url) as made:
        yield made


@pytest.fixture
def session(connection: Connection) -> Iterator[Session]:
    with connection.session() as made:
        yield made
