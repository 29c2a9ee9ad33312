"""A driver of a streaming query as a process of its own, so that a test can kill it: python stream_job.py JSON.

The JSON has ``master``, ``work``, ``source`` (format), ``options`` (of the source), ``load`` (directories), ``out``,
``checkpoint`` and ``drain`` (read up to the present end, then stop).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


class StreamJob:
    """The process, and the rows that it has committed to a Parquet sink."""

    def __init__(
        self,
        directory: Path,
        load: list[Path],
        options: dict[str, str],
        master: str = "local[2]",
        source: str = "understudy.journal",
    ) -> None:
        self.out, self.checkpoint = directory / "out", directory / "checkpoint"
        self._work = directory / "work"
        self._log = directory / "stream.log"
        self._load, self._options, self._master, self._source = load, options, master, source
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, drain: bool = False, environment: dict[str, str] | None = None) -> None:
        """Start or start again; it goes on from the checkpoint."""
        self._work.mkdir(exist_ok=True)
        given = {
            "master": self._master,
            "source": self._source,
            "work": str(self._work),
            "options": self._options,
            "load": [str(each) for each in self._load],
            "out": str(self.out),
            "checkpoint": str(self.checkpoint),
            "drain": drain,
        }
        with self._log.open("ab") as log:
            # a session of its own, so that Python, Java and the workers are killed together
            self.process = subprocess.Popen(
                [sys.executable, __file__, json.dumps(given)], stdout=log, stderr=log, start_new_session=True,
                env=environment,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL to every process of the query."""
        if self.process is not None:
            assert self.process.poll() is None, self.tail()
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
            self.process = None

    def drained(self, timeout_s: float = 400) -> None:
        """Read everything up to the present end, in a run of its own."""
        self.start(drain=True)
        assert self.process is not None
        code = self.process.wait(timeout_s)
        self.process = None
        assert code == 0, self.tail()

    def wait_batches(self, more: int, timeout_s: float = 400) -> None:
        """Wait until so many more batches are committed."""
        wanted = self.batches + more
        deadline = time.monotonic() + timeout_s
        while self.batches < wanted:
            assert self.process is None or self.process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.05)

    @property
    def batches(self) -> int:
        """Committed batches."""
        commits = self.checkpoint / "commits"
        return sum(each.name.isdecimal() for each in commits.iterdir()) if commits.is_dir() else 0

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the files that the sink has committed, as Spark reads them."""
        metadata = self.out / "_spark_metadata"
        logs = {int(each.name.removesuffix(".compact")): each for each in metadata.iterdir() if each.name[0].isdigit()}
        compact = max((number for number, each in logs.items() if each.suffix == ".compact"), default=0)
        files: set[str] = set()
        for number, each in logs.items():
            if number >= compact:
                files |= {json.loads(line)["path"] for line in each.read_text().splitlines()[1:]}
        found: list[dict[str, Any]] = []
        for name in sorted(files):
            found += pq.read_table(name.removeprefix("file://")).to_pylist()
        return found

    def tail(self) -> str:
        """The end of the log."""
        return self._log.read_text(errors="replace")[-4000:]

    def end(self) -> None:
        """Leave nothing running."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)


def main(given: dict[str, Any]) -> None:
    """Run the query until it ends."""
    from understudy.spark.session import open_session

    spark = open_session(given["master"], work_directory=given["work"], more={"spark.driver.memory": "1g"})
    reader = spark.readStream.format(given["source"]).options(**given["options"])
    load = given["load"]
    if len(load) > 1:
        reader = reader.option("paths", json.dumps(load))
    stream = reader.load(load[0]) if len(load) == 1 else reader.load()
    writer = stream.writeStream.format("parquet").option("path", given["out"])
    writer = writer.option("checkpointLocation", given["checkpoint"])
    writer = writer.trigger(availableNow=True) if given["drain"] else writer.trigger(processingTime="0 seconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
