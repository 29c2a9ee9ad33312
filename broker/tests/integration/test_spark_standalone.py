"""A Spark master and a worker as processes of their own: nothing in a job depends on local mode."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from tests.support.archives import archived_rows, check_rows, expected_messages
from tests.support.copies import act, fork, go_on, restart, write_out
from tests.support.journals import plain_records
from tests.support.processes import Pair
from tests.support.snapshots import canonical
from tests.support.store import StoreHarness
from tests.support.store_model import contents_of, order_of
from tests.support.stream_job import StreamJob

import understudy.cli
from understudy.client.sync import connect
from understudy.ledger import Kind, Row, encode
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.follower import Follower

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


@dataclass(frozen=True)
class Cluster:
    """A master with one worker of two cores."""

    url: str
    worker: int
    """Process id of the worker, whose children are the executors."""

    def executors(self) -> list[int]:
        """Process ids."""
        children = Path(f"/proc/{self.worker}/task/{self.worker}/children").read_text().split()
        # other threads of the worker start them
        for task in Path(f"/proc/{self.worker}/task").iterdir():
            children += (task / "children").read_text().split()
        lines = {int(child): Path(f"/proc/{child}/cmdline") for child in children}
        return [pid for pid, line in lines.items() if line.exists() and b"ExecutorBackend" in line.read_bytes()]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Processes of their own, on loopback."""
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
        yield Cluster(url, processes[1].pid)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("understudy")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(directory), check=False)


def test_a_job_on_a_cluster_answers_as_without_spark(cluster: Cluster, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(21))
    rig.activate("a")
    act(rig, 100)
    both = fork(rig, random.Random(22))
    both.right.settings = both.left.settings
    go_on(both.left, 40)
    go_on(both.right, 40)
    stores = [str(write_out(side, tmp_path / name)) for side, name in ((both.left, "left"), (both.right, "right"))]
    compared = run(["data", "compare", *stores, "--json"], tmp_path)
    judged = run(["pipeline", "verdict", *stores, "--json", "--master", cluster.url], tmp_path)
    assert (compared.returncode, judged.returncode) == (1, 1), judged.stderr
    found, expected = json.loads(judged.stdout), json.loads(compared.stdout)
    assert {name: found[name] for name in expected} == expected
    assert [each["records"] for each in found["checked"]] == [each["last_sequence"] for each in expected["copies"]]


def test_a_cluster_writes_the_archive_that_the_records_say(cluster: Cluster, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(23), compact_segments_min=2, compact_percent=75)
    rig.activate("a")
    stores: list[str] = []
    for turn in range(2):
        act(rig, 200)
        stores.append(str(write_out(rig, tmp_path / f"store{turn}")))
        options = ["-o", str(tmp_path / "archive"), "--compact-files", "2", "--json", "--master", cluster.url]
        result = run(["pipeline", "archive", stores[-1], *options], tmp_path)
        assert result.returncode == 0, result.stderr
        check_rows(archived_rows(tmp_path / "archive"), expected_messages(stores))
    assert json.loads(result.stdout)["files_merged"] > 0


def test_a_stream_on_a_cluster_survives_a_killed_executor(cluster: Cluster, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(24))
    rig.activate("a")
    assert rig.store is not None
    rig.store.readers.register("r", rig.store.readers.earliest, 1 << 40)
    act(rig, 400)
    rig.die(power_loss=False)
    rig.activate("b")
    store = write_out(rig, tmp_path / "store")
    options = {"table": "records", "columns": "epoch,sequence,kind", "maxBytesPerBatch": "20000"}
    job = StreamJob(tmp_path, [store], options, cluster.url)
    job.start(environment=environment(tmp_path))
    try:
        job.wait_batches(2)
        killed = cluster.executors()
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


def test_a_live_queue_on_a_cluster_survives_killed_executors_and_drivers(cluster: Cluster, tmp_path: Path) -> None:
    stream = random.Random(25)
    pair = Pair(tmp_path / "brokers")
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    options = {"url": url, "queue": "numbers", "maxMessages": "100", "partitionBytes": "2000", "columns": "id,text"}
    job = StreamJob(tmp_path, [], options, cluster.url, "understudy.queue")
    try:
        pair.primary.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            session.create_queue("numbers")
            producer = session.producer("numbers")
            for number in range(1000):
                producer.send_nowait(f"number {number}")
                producer.wait_sendable()
        job.start(environment=environment(tmp_path))
        job.wait_batches(2)
        killed: set[int] = set()
        # a cluster gives an application up after ten lost executors
        for _ in range(3):
            for each in cluster.executors():
                os.kill(each, signal.SIGKILL)
                killed.add(each)
            job.wait_batches(2)
            # nothing to wait for: executors die at any moment of their work
            time.sleep(stream.uniform(0, 2))
        assert len(killed) >= 2
        job.kill()
        job.start(drain=True, environment=environment(tmp_path))
        assert job.process is not None
        assert job.process.wait(400) == 0, job.tail()
        facts = pair.primary.queue("numbers")
    finally:
        job.end()
        pair.end()
    rows = job.rows()
    found = {row["id"]: row["text"] for row in rows}
    assert sorted(found.values()) == sorted(f"number {number}" for number in range(1000))
    assert len(rows) - len(found) <= 100, "at most the batch that was held when the driver was killed comes again"
    assert facts is not None
    assert facts["message_count"] == 0


def test_a_sink_on_a_cluster_doubles_nothing_when_executors_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    pair = Pair(tmp_path / "brokers")
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    script = tmp_path / "send.py"
    script.write_text(SENDING)
    process = None
    try:
        pair.primary.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            session.create_queue("numbers")
        command = [sys.executable, str(script), cluster.url, url, str(tmp_path / "work")]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(tmp_path))
        killed: set[int] = set()
        deadline = time.monotonic() + _PATIENCE_S
        for wanted in (500, 3000):
            while ((facts := pair.primary.queue("numbers")) or {}).get("messages_added", 0) < wanted:  # type: ignore[operator]
                assert process.poll() is None, process.communicate()[1]
                assert time.monotonic() < deadline, facts
                time.sleep(0.01)
            for each in cluster.executors():
                os.kill(each, signal.SIGKILL)
                killed.add(each)
        assert process.wait(_PATIENCE_S) == 0, process.communicate()[1]
        assert len(killed) >= 2
        with connect(url) as connection, connection.session() as session:
            consumer = session.consumer("numbers")
            found = []
            while (message := consumer.receive_nowait()) is not None:
                found.append(message.text)
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait(60)
        pair.end()
    assert sorted(found) == sorted(f"number {number}" for number in range(8000))


#: Sends rows slowly enough for a test to kill executors meanwhile.
SENDING = """
import sys, time
from pyspark.sql import functions as F
from understudy.spark.session import open_session
from understudy.spark.queue.source import queue_writer

def text(number):
    time.sleep(0.002)
    return f"number {number}"

spark = open_session(sys.argv[1], work_directory=sys.argv[3], more={"spark.driver.memory": "1g"})
spark.conf.set("spark.sql.execution.python.udf.maxRecordsPerBatch", "50")
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
frame = spark.range(0, 8000, 1, 4).select(F.udf(text, "string", useArrow=False)("id").alias("text"))
queue_writer(frame, url=sys.argv[2], address="numbers").save()
spark.stop()
"""


def history(seed: int, directory: Path) -> tuple[str, dict[str, object]]:
    """A store of two epochs, and its contents by the model."""
    rig = StoreHarness(random.Random(seed), compact_segments_min=2, compact_percent=75)
    rig.activate("a")
    act(rig, 300)
    rig.prepared = {}
    restart(rig)
    act(rig, 100)
    contents = rig.model.contents()
    return str(write_out(rig, directory)), contents | {"order": order_of(contents)}


def recovered(journal: Path) -> dict[str, object]:
    follower = Follower(RealDisk(), str(journal), id_cache_size=5)
    follower.finish()
    contents = contents_of(follower.state)
    follower.close()
    return contents | {"order": order_of(contents)}


def test_a_cluster_consolidates_and_measures_as_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    store, expected = history(31, tmp_path / "store")
    options = ["--id-cache-size", "5", "--segments", "all", "--json"]
    for name, master in (("here", "local[2]"), ("there", cluster.url)):
        result = run(
            ["pipeline", "consolidate", store, "-o", str(tmp_path / name), *options, "--master", master], tmp_path
        )
        assert result.returncode == 0, result.stderr
    snapshots = [next((tmp_path / name / "journal").glob("*.snap")) for name in ("here", "there")]
    assert canonical(snapshots[0]) == canonical(snapshots[1])
    assert recovered(tmp_path / "there" / "journal") == expected
    flows = []
    for master in ("local[2]", cluster.url):
        measured = ["pipeline", "flow", store, "--json", "--replay-rate", "1M", "--capacity", "1G", "--master", master]
        result = run(measured, tmp_path)
        assert result.returncode == 0, result.stderr
        flows.append(json.loads(result.stdout))
    assert flows[0] == flows[1]
    assert flows[0]["depth"] == sum(map(len, recovered(Path(store))["order"].values()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("job", ["consolidate", "archive"])
def test_executors_that_are_killed_change_nothing(cluster: Cluster, tmp_path: Path, job: str) -> None:
    store, expected = history(32, tmp_path / "store")
    stream = random.Random(33)
    output = tmp_path / "output"
    more = ["--id-cache-size", "5"] if job == "consolidate" else []
    command = [str(Path(sys.executable).with_name("understudy")), "pipeline", job, store, "-o", str(output)]
    process = subprocess.Popen(
        [*command, *more, "--json", "--master", cluster.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path),
    )  # fmt: skip
    killed: set[int] = set()
    # a cluster gives an application up after ten lost executors; a stage, after four
    while process.poll() is None and len(killed) < 3:
        fresh = [pid for pid in cluster.executors() if pid not in killed]
        if fresh:
            # nothing to wait for: the executor dies at any moment of its work
            time.sleep(stream.uniform(3, 15))
            for pid in fresh:
                if pid in cluster.executors():
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        time.sleep(0.1)
    output_text, errors = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, errors
    assert killed
    if job == "consolidate":
        assert recovered(output / "journal") == expected
    else:
        check_rows(archived_rows(output), expected_messages([store]))
        assert json.loads(output_text)["rows"] == len(archived_rows(output))


# --- nothing but --py-files -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submit:
    """``spark-submit`` to a cluster whose workers have pyspark and pyarrow, but not this package."""

    master: str
    package: Path
    """A zip file of the package."""
    python: Path
    """Python interpreter of the workers."""
    directory: Path

    def run(self, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program, with the package as ``--py-files``."""
        settings = {"spark.pyspark.python": self.python, "spark.pyspark.driver.python": sys.executable}
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", self.master, "--py-files", str(self.package)]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        given = {name: value for name, value in environment(self.directory).items() if name != "PYSPARK_PYTHON"}
        return subprocess.run(
            [*command, str(program), *arguments], capture_output=True, text=True, env=given, check=False
        )

    def job(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a job of the pipeline."""
        return self.run(Path(understudy.cli.__file__).with_name("submitted.py"), *arguments)


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Submit:
    root = Path(understudy.__file__).parent
    package = tmp_path / "understudy.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(root.parent))
    python = tmp_path / "worker-python"
    libraries = _SPARK.parent
    # without ``site`` an editable installation of the package is not found
    lines = [
        "#!/bin/sh",
        f'PYTHONPATH="$PYTHONPATH:{libraries}" exec "{sys.executable}" -S "$@"',
    ]
    python.write_text("\n".join(lines) + "\n")
    python.chmod(0o755)
    missing = subprocess.run([python, "-c", "import understudy"], capture_output=True, text=True, check=False)
    assert "No module named 'understudy'" in missing.stderr
    return Submit(cluster.url, package, python, tmp_path)


def test_every_job_is_submitted_with_py_files_alone(submit: Submit, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(41))
    rig.activate("a")
    act(rig, 150)
    both = fork(rig, random.Random(42))
    both.right.settings = both.left.settings
    go_on(both.left, 40)
    go_on(both.right, 40)
    left, right = (str(write_out(side, tmp_path / name)) for side, name in ((both.left, "left"), (both.right, "right")))
    ledger = tmp_path / "ledger.jsonl"
    rows = [Row(kind, "p", number, "a", number) for number in range(50) for kind in (Kind.SENT, Kind.CONFIRMED)]
    ledger.write_text("".join(map(encode, rows)))
    archive, new = str(tmp_path / "archive"), str(tmp_path / "new")
    rest = ["--replay-rate", "1M", "--capacity", "1G"]
    for arguments, code in (
        (["audit", str(ledger)], 3),
        (["verdict", left, right], 1),
        (["archive", left, "-o", archive], 0),
        (["replay", archive, "--dry-run"], 0),
        (["consolidate", left, "-o", new], 0),
        (["flow", left, *rest], 0),
    ):
        submitted = submit.job(*arguments, "--json")
        assert submitted.returncode == code, (arguments, submitted.stderr[-3000:])
        if arguments[0] in ("audit", "verdict", "flow"):
            here = run(["pipeline", *arguments, "--json", "--master", "local[2]"], tmp_path)
            assert json.loads(submitted.stdout) == json.loads(here.stdout)
    check_rows(archived_rows(tmp_path / "archive"), expected_messages([left]))
    assert recovered(tmp_path / "new" / "journal") == recovered(Path(left))
    # an error of a task is one line there, too
    segment = min(Path(right).glob("segment-*.log"))
    content = bytearray(segment.read_bytes())
    content[5_000] ^= 1
    segment.write_bytes(content)
    refused = submit.job("archive", right, "-o", str(tmp_path / "none"))
    assert refused.returncode == 2
    # spark-submit hands on both outputs of a program as its standard output
    told = [line for line in refused.stdout.splitlines() if line.startswith("understudy: ")]
    assert len(told) == 1
    assert segment.name in told[0]
    assert not (tmp_path / "none").exists()


def test_every_source_is_read_and_written_with_py_files_alone(submit: Submit, tmp_path: Path) -> None:
    rig = StoreHarness(random.Random(43))
    rig.activate("a")
    act(rig, 150)
    rig.die(power_loss=False)
    rig.activate("b")
    store = write_out(rig, tmp_path / "store")
    program = tmp_path / "sources.py"
    program.write_text(SOURCES)
    pair = Pair(tmp_path / "brokers")
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    try:
        pair.primary.start().wait_ready("active")
        with connect(url) as connection, connection.session() as session:
            for queue in ("in", "out"):
                session.create_queue(queue)
            producer = session.producer("in")
            for number in range(50):
                producer.send(f"number {number}")
        done = submit.run(program, str(store), url, str(tmp_path / "work"))
        assert done.returncode == 0, done.stderr[-3000:]
        out = pair.primary.queue("out")
        rest = pair.primary.queue("in")
    finally:
        pair.end()
    found = json.loads(done.stdout.splitlines()[-1])
    records = [each.frame.sequence for each in plain_records(str(store))]
    assert found["batch"] == len(records)
    assert records[-1] - 1 <= found["stream"] <= records[-1]
    assert found["shown"] == found["consumed"] == 50
    assert out is not None
    assert rest is not None
    assert (out["message_count"], rest["message_count"]) == (50, 0)


#: Every source and sink once; prints how many rows there were.
SOURCES = """
import json, sys
from understudy.spark.journal.source import read_journal
from understudy.spark.queue.source import browse_queue, queue_writer, stream_queue
from understudy.spark.session import open_session

store, url, work = sys.argv[1:]
spark = open_session(work_directory=work)
spark.range(10).rdd.map(str).collect()

def drained(stream, name):
    writer = stream.writeStream.format("parquet").option("path", f"{work}/{name}")
    query = writer.option("checkpointLocation", f"{work}/{name}.checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.read.parquet(f"{work}/{name}")

journal = spark.readStream.format("understudy.journal").option("table", "records")
found = {
    "batch": read_journal(spark, store, "records", ["sequence"]).count(),
    "stream": drained(journal.option("columns", "sequence").load(store), "records").count(),
    "shown": browse_queue(spark, url=url, queue="in", columns="id").count(),
}
messages = drained(stream_queue(spark, url=url, queue="in", columns="id,text"), "messages")
queue_writer(messages.select("id", "text"), url=url, address="out", idColumn="id").save()
found["consumed"] = messages.count()
print(json.dumps(found))
spark.stop()
"""
