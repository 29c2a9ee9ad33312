"""Job ``archive`` through a named reader while the job and brokers are killed: every confirmed message once.

Goal: after SIGKILLs of the whole job at random moments and of the active broker in the middle of a run, the archive
has each message that was confirmed to its sender exactly once. All messages are consumed at once and the log is
consolidated all the time, so without the reader they would be gone before a run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.archives import archived_rows, encoded_of

from support.numbered_load import CONSOLIDATING, Load
from support.processes import Pair
from understudy.message import Message

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

#: A run takes longer than the shortest of these, and is killed in all its steps. Seconds.
KILLED_AFTER_S = (4.0, 15.0)
RUN_TIMEOUT_S = 240


class ArchiveJob:
    """``understudy pipeline archive`` with a reader, as a process."""

    def __init__(self, directory: Path, pair: Pair) -> None:
        self.archive = directory / "archive"
        self._command = [str(Path(sys.executable).with_name("understudy")), "pipeline", "archive"]
        self._command += [str(pair.store / "journal"), "-o", str(self.archive), "--reader", "archive", "--json"]
        for node in (pair.primary, pair.backup):
            self._command += ["--server", f"http://{node.host}:{node.http_port}"]
        self._command += ["--token-file", str(pair.primary.directory / "etc" / "management.token")]
        self._command += ["--work-dir", str(directory)]

    def start(self) -> subprocess.Popen[str]:
        """Begin a run, in a process group of its own: Spark has processes of its own."""
        return subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self) -> dict[str, Any]:
        """The report of a whole run."""
        process = self.start()
        output, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == 0, errors
        report = json.loads(output)
        assert isinstance(report, dict)
        return report

    def numbers(self) -> Counter[int]:
        """How often each number is in the archive."""
        return Counter(Message.decode(encoded_of(row)).properties["n"] for row in archived_rows(self.archive))


def kill(process: subprocess.Popen[str]) -> bool:
    """SIGKILL of the job with all its processes; whether it ran."""
    ran = process.poll() is None
    if ran:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return ran


def test_a_message_is_archived_once_whatever_is_killed(tmp_path: Path) -> None:
    stream = random.Random(20261127)
    pair = Pair(tmp_path / "brokers", extra=CONSOLIDATING)
    load: Load | None = None
    try:
        pair.start()
        job = ArchiveJob(tmp_path, pair)
        # the reader holds everything that is sent from now on
        job.run()
        load = Load(pair.url)
        killed = 0
        for _ in range(4):
            process = job.start()
            # nothing to wait for: the job dies at any moment of its work
            time.sleep(stream.uniform(*KILLED_AFTER_S))
            killed += kill(process)
        assert killed >= 2
        reported = job.run()
        assert reported["archived"] > 0
        process = job.start()
        time.sleep(stream.uniform(*KILLED_AFTER_S))
        pair.primary.kill()
        pair.backup.wait_ready("active")
        _, errors = process.communicate(timeout=RUN_TIMEOUT_S)
        # without an active node a run ends with an error before it publishes, or commits its position the next time
        assert process.returncode in (0, 2), errors
        load.stop()
        last = job.run()
        assert last["reader"]["committed"]
        assert job.run()["archived"] == 0
        found = job.numbers()
        assert max(found.values()) == 1
        assert set(found) >= load.confirmed
        assert len(load.confirmed) > 300
    finally:
        pair.end()
        if load is not None:
            load.give_up()
