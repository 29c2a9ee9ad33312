"""Fixtures that cost too much to make twice, and what holds for every property: no example fails for taking long,
and the examples are the same each time unless EXAMPLES=random asks for new ones (``make test-all`` does).
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from understudy import kernel
from understudy.spark.session import open_session, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.nodes import Nodes

# how long an example, or making some, takes is a matter of what else the machine does
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# who changes one thing is not to be stopped by another that was wrong before
hypothesis.settings.register_profile("repeatable", hypothesis.settings.get_profile("any machine"), derandomize=True)
hypothesis.settings.load_profile("any machine" if os.environ.get("EXAMPLES") == "random" else "repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Imported modules are kept until the run ends, so a garbage collection during the import frees nothing.

    Commands of the tests, in this process and in others, have contexts and a default instance of their own and leave
    those of the user alone.
    """
    gc.disable()
    own = tempfile.TemporaryDirectory(prefix="understudy-tests-")
    config.add_cleanup(own.cleanup)
    pip = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip"
    if pip.is_dir():
        # wheels are installed by tests as the user would
        (Path(own.name) / "pip").symlink_to(pip)
    os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_STATE_HOME"] = own.name


def pytest_collection_finish() -> None:
    """Exclude the objects of modules and test items from later garbage collections, which makes them much cheaper."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which kernel the tests ran with (ADR 0034)."""
    terminalreporter.write_line(f"kernel: {kernel.ACTIVE} ({kernel.WHY})")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local session for all tests. Files are cut into many pieces, as big ones would be."""
    from understudy.spark.ledger import source as ledger_source

    work_directory = str(tmp_path_factory.mktemp("spark"))
    java = "spark.driver.extraJavaOptions"
    # the plain compiler starts faster; with it the code cache has 48 MiB, which classes generated for all tests fill
    faster = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    session = open_session(
        "local[2]",
        work_directory=work_directory,
        name="tests",
        more={
            java: f"{settings('local[2]', work_directory, 2)[java]} {faster}",
            "spark.driver.memory": "1g",
            "spark.sql.files.maxPartitionBytes": "16384",
            "spark.sql.files.openCostInBytes": "0",
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        # ledgers have a source of their own
        patch.setattr(ledger_source, "PARTITION_BYTES", 16384)
        patch.setattr(ledger_source, "PARTITION_BYTES_MIN", 1024)
        yield session
    session.stop()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Makes the brokers of one test in its directory, and ends them after it."""
    from support.nodes import nodes_in

    with nodes_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def nodes_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Makes brokers for all tests of a module, and ends them after the last one."""
    from support.nodes import nodes_in

    with nodes_in(tmp_path_factory.mktemp("nodes")) as made:
        yield made
