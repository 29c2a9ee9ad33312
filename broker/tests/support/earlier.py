"""Earlier versions of Understudy from the history of this repository, run as nodes beside those of this version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import COMMAND, Node

_REPOSITORY = Path(__file__).resolve().parents[3]
#: A version of before: its nodes do not state which format version of a log they read, and prove the cluster password
#: without its target.
PREVIOUS = "45369a1e"
#: The last version that speaks replication protocol 3; its nodes link with those of this version.
REPLICATION_PROTOCOL_3 = "c62a9be9"


class Earlier:
    """The sources of one earlier version, unpacked."""

    def __init__(self, commit: str, directory: Path) -> None:
        """Skips the test, with the reason, in a copy of the repository without that commit."""
        packed = subprocess.run(
            ["git", "-C", str(_REPOSITORY), "archive", commit, "broker/src"], capture_output=True, check=False
        )
        if packed.returncode:
            pytest.skip(f"this copy has no commit {commit}: {packed.stderr.decode(errors='replace').strip()}")
        subprocess.run(["tar", "-x", "-C", str(directory)], input=packed.stdout, check=True)
        self._sources = directory / "broker" / "src"
        asked = [*self._environment, sys.executable, "-c", "import understudy; print(understudy.__file__)"]
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert Path(found.strip()).is_relative_to(self._sources), found

    @property
    def _environment(self) -> tuple[str, ...]:
        return ("/usr/bin/env", f"PYTHONPATH={self._sources}")

    def run(self, node: Node) -> Node:
        """The node is of this version from its next start on."""
        node.command = (*self._environment, str(COMMAND))
        return node


def run_present(node: Node) -> Node:
    """The node is of the present version from its next start on: it was updated."""
    node.command = (str(COMMAND),)
    return node
