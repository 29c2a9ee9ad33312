"""Goal: a monitor gets one line and an exit code, also from a check that cannot ask a node.

Method: the command line on an instance directory without a node, with wrong arguments, and with a full output.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from understudy.cli.main import cli

UNKNOWN = 3


@pytest.mark.parametrize("name", ["node", "pair", "queue orders", "disk", "memory", "certificate", "cluster"])
def test_an_instance_without_a_node_is_unknown(name: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["check", *name.split(), "--instance", str(tmp_path)])
    assert found.exit_code == UNKNOWN
    assert found.stdout == f"UNKNOWN - no node runs from {tmp_path}: {tmp_path}/run/node.json does not exist\n"


@pytest.mark.parametrize("arguments", ["disk --warning high", "queue", "nosuch", "--nosuch", "node --nosuch"])
def test_a_wrong_argument_is_unknown_and_not_critical(arguments: str) -> None:
    found = CliRunner().invoke(cli, ["check", *arguments.split()])
    assert found.exit_code == UNKNOWN
    assert "Usage: " in found.stderr


@pytest.mark.parametrize(
    "arguments", [["completion", "bash"], ["check", "--help"], ["context", "list"], ["config", "print"]]
)
def test_an_output_that_cannot_be_written_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "broker.xml").write_text("<configuration><core/></configuration>")
    place = ["--instance", str(tmp_path)] if arguments[0] == "config" else []
    program = f"import sys; from understudy.cli.main import main; sys.argv[1:] = {[*arguments, *place]}; main()"
    with Path("/dev/full").open("w", encoding="ascii") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == 1
    assert ended.stderr == "understudy: the output cannot be written: No space left on device\n"
