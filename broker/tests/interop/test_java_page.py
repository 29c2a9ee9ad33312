"""The program of docs/use/java.md, compiled as it is printed, against a pair whose active node is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.maven import maven
from support.pages import ROOT, blocks
from support.processes import Pair

pytestmark = [pytest.mark.maven, pytest.mark.long]

PAGE = (ROOT / "docs" / "use" / "java.md").read_text()
COUNT = 300


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The programs of the page and their libraries, built with the pom of the page."""
    project = tmp_path_factory.mktemp("java-page")
    for block in blocks(PAGE):
        path = project / block.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    maven("compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib", cwd=project)
    return f"{project / 'target' / 'classes'}:{project / 'target' / 'lib'}/*"


@pytest.mark.feature("failover: unknown outcomes and how to find out")
@pytest.mark.parametrize("program", ["Orders"])
def test_a_program_of_the_page_loses_nothing_when_the_active_node_is_killed(
    classpath: str, pair: Pair, program: str, tmp_path: Path
) -> None:
    url = (
        f"(tcp://127.0.0.1:{pair.primary.port},tcp://127.0.0.1:{pair.backup.port})"
        "?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
    )
    errors = tmp_path / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            ["java", "-cp", classpath, program, url, str(COUNT)], stdout=subprocess.PIPE, stderr=file, text=True
        ) as running,
    ):
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line.strip())
            if line.strip() == "sent 50":
                pair.primary.kill()
    assert running.returncode == 0, errors.read_text()[-3000:]
    assert lines[-1] == f"all {COUNT} orders received"
    assert "sent 50" in lines
    pair.backup.wait_ready("active")
