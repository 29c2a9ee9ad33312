"""A Spark master and a worker as processes of their own: nothing in a job depends on local mode."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.support.archives import archived_rows, check_rows, expected_messages
from tests.support.copies import act, fork, go_on, write_out
from tests.support.journals import plain_records
from tests.support.store import StoreHarness
from tests.support.stream_job import StreamJob

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_SPARK = Path(pyspark.__file__).parent
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
#: The started processes are given so long to accept connections. Seconds.
_PATIENCE_S = 240


def environment(directory: Path) -> dict[str, str]:
    """Everything listens on loopback, and daemons are small."""
    return os.environ | {
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(directory / "worker"),
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
    }


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    """Until the log of a process has the text."""
    deadline = time.monotonic() + _PATIENCE_S
    while text not in log.read_text(errors="replace"):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with one worker of two cores."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as output:
            command = [str(_SPARK / "bin" / "spark-class"), *arguments]
            processes.append(
                subprocess.Popen(command, stdout=output, stderr=output, env=environment(tmp_path), cwd=tmp_path)
            )

    try:
        start("master", _MASTER, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for(tmp_path / "master.log", "I have been elected leader", processes[0])
        start("worker", _WORKER, "-c", "2", "-m", "1g", "--host", "127.0.0.1", "--webui-port", "0", url)
        wait_for(tmp_path / "worker.log", "Successfully registered with master", processes[1])
        yield url
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("understudy")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(directory), check=False)


def test_a_job_on_a_cluster_answers_as_without_spark(cluster: str, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(21))
    rig.activate("a")
    act(rig, 100)
    both = fork(rig, random.Random(22))
    both.right.settings = both.left.settings
    go_on(both.left, 40)
    go_on(both.right, 40)
    stores = [str(write_out(side, tmp_path / name)) for side, name in ((both.left, "left"), (both.right, "right"))]
    compared = run(["data", "compare", *stores, "--json"], tmp_path)
    judged = run(["pipeline", "verdict", *stores, "--json", "--master", cluster], tmp_path)
    assert (compared.returncode, judged.returncode) == (1, 1), judged.stderr
    found, expected = json.loads(judged.stdout), json.loads(compared.stdout)
    assert {name: found[name] for name in expected} == expected
    assert [each["records"] for each in found["checked"]] == [each["last_sequence"] for each in expected["copies"]]


def test_a_cluster_writes_the_archive_that_the_records_say(cluster: str, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(23), compact_segments_min=2, compact_percent=75)
    rig.activate("a")
    stores: list[str] = []
    for turn in range(2):
        act(rig, 200)
        stores.append(str(write_out(rig, tmp_path / f"store{turn}")))
        options = ["-o", str(tmp_path / "archive"), "--compact-files", "2", "--json", "--master", cluster]
        result = run(["pipeline", "archive", stores[-1], *options], tmp_path)
        assert result.returncode == 0, result.stderr
        check_rows(archived_rows(tmp_path / "archive"), expected_messages(stores))
    assert json.loads(result.stdout)["files_merged"] > 0


def executors_of(worker: int) -> list[int]:
    """Process ids of the executors that a worker runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == worker and b"CoarseGrainedExecutorBackend" in command:
            found.append(int(path.parent.name))
    return found


def test_a_stream_on_a_cluster_survives_a_killed_executor(cluster: str, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(24))
    rig.activate("a")
    assert rig.store is not None
    rig.store.readers.register("r", rig.store.readers.earliest, 1 << 40)
    act(rig, 400)
    rig.die(power_loss=False)
    rig.activate("b")
    store = write_out(rig, tmp_path / "store")
    options = {"table": "records", "columns": "epoch,sequence,kind", "maxBytesPerBatch": "20000"}
    job = StreamJob(tmp_path, [store], options, cluster)
    job.start(environment=environment(tmp_path))
    try:
        job.wait_batches(2)
        worker = next(
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if f"{_WORKER}\0-c".encode() in path.read_bytes() and cluster.encode() in path.read_bytes()
        )
        killed = executors_of(worker)
        assert killed
        for each in killed:
            os.kill(each, 9)
        job.wait_batches(2)
        job.kill()
        job.start(drain=True, environment=environment(tmp_path))
        assert job.process is not None
        assert job.process.wait(400) == 0, job.tail()
    finally:
        job.end()
    rows = sorted((row["sequence"], row["epoch"]) for row in job.rows())
    expected = [(each.frame.sequence, each.epoch) for each in plain_records(str(store))]
    # the EPOCH record is the last batch, which nothing proves yet
    assert rows == expected[: len(rows)]
    assert len(expected) - len(rows) <= 1
