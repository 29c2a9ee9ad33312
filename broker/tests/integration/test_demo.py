"""``understudy demo`` shows a failover and a failback without loss, and leaves nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from support.processes import COMMAND


def test_the_demo_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    found = subprocess.run(
        [COMMAND, "demo"], capture_output=True, text=True, check=False, env={"TMPDIR": str(tmp_path), "PATH": "/bin"}
    )
    assert found.returncode == 0, found.stdout + found.stderr
    events = re.findall(r"-- ([a-z -]*[0-9]?[a-z ]*)", found.stdout)
    assert [each.split()[0] for each in events] == ["the", "kill", "node", "node"]
    assert re.search(r"^[0-9,]+ confirmed, 0 lost, [0-9]+ received twice$", found.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []
