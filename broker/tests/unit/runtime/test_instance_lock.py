"""One process at a time runs an instance directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from understudy.errors import ConfigError
from understudy.runtime.process.instance_lock import InstanceLock

_HOLDS = "import sys, pathlib; from understudy.runtime.process.instance_lock import InstanceLock;"
_HOLDS += "lock = InstanceLock(pathlib.Path(sys.argv[1])); lock.claim(); print('held', flush=True); sys.stdin.read()"


def test_a_second_claim_names_the_process_and_since_when(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=rf"the instance runs already: process {holder.pid}, since 2\d\d\d-"):
            InstanceLock(tmp_path).claim()
    finally:
        holder.kill()
        holder.communicate(timeout=60)
    lock = InstanceLock(tmp_path)
    lock.claim()
    assert f'"pid": {os.getpid()}' in (tmp_path / "run" / "lock").read_text(), "free again after a kill"
