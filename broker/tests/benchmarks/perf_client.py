"""``artemis perf client`` of the distribution, unmodified, as a load from outside of this project."""

from __future__ import annotations

import json
import subprocess
import uuid
from pathlib import Path

from benchmarks.load import RunFailed
from benchmarks.targets import artemis_home

PERF_CLIENT = "artemis-perf-client"


def perf_client(port: int, directory: Path, *, quick: bool) -> float:
    """Durable 1 KiB messages through a queue of its own, 1,000 uncompleted; messages received a second.

    Raises:
        CannotRun: there is no distribution.
        RunFailed: it did not end well, or not everything that was sent was completed and received.
    """
    warmup_s, duration_s = (1, 3) if quick else (4, 9)
    queue = f"perf-{uuid.uuid4().hex[:8]}"
    report = directory / f"{queue}.json"
    result = subprocess.run(
        [str(artemis_home() / "bin" / "artemis"), "perf", "client", "--url", f"tcp://127.0.0.1:{port}", "--silent",
         "--user", "bench", "--password", "bench", "--persistent", "--max-pending", "1000", "--message-size", "1024",
         "--warmup", str(warmup_s), "--duration", str(duration_s), "--json", str(report), f"queue://{queue}"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    if result.returncode or not report.exists():
        raise RunFailed(f"it ended with {result.returncode}: {(result.stdout + result.stderr)[-400:]}")
    samples = json.loads(report.read_text())
    summary = samples[-1]
    sent, received = summary["totalSent"], summary["totalReceived"]
    if summary["result"] != "success" or sent != summary["totalCompleted"] or sent != received:
        raise RunFailed(f"it says {summary}")
    measured = [each for each in samples if each["sampleType"] == "interval" and not each["warmup"]]
    # the last interval may be the draining at the end
    seconds = (measured[-1]["time"] - measured[0]["time"]) / 1000
    if seconds <= 0:
        raise RunFailed("its report has no two intervals")
    return float(sum(each["received"] for each in measured[1:]) / seconds)
