"""The programs of docs/use/java.md, compiled as they are printed, against a pair whose active node is killed."""

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
#: Arguments of each program, by the folder of its project in the page.
PROGRAMS = {
    ".": ("Orders", "{url}", "{count}"),
    "spring": ("example.SpringOrders", "--spring.artemis.broker-url={url}", "--orders={count}"),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Projects of the page in a folder."""
    folder = tmp_path_factory.mktemp("java-page")
    for block in blocks(PAGE):
        path = folder / block.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    return folder


@pytest.mark.feature("failover: unknown outcomes and how to find out")
@pytest.mark.parametrize("project", PROGRAMS)
def test_a_program_of_the_page_loses_nothing_when_the_active_node_is_killed(
    page: Path, pair: Pair, project: str, tmp_path: Path
) -> None:
    maven("compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib", cwd=page / project)
    target = page / project / "target"
    arguments = [each.format(url=pair.url, count=COUNT) for each in PROGRAMS[project]]
    errors = tmp_path / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            ["java", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", *arguments],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as running,
    ):
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line.strip())
            if line.strip() == "sent 50":
                pair.primary.kill()
    assert running.returncode == 0, "\n".join([*lines, errors.read_text()])[-3000:]
    assert f"all {COUNT} orders received" in lines
    assert "sent 50" in lines
    pair.backup.wait_ready("active")
