"""A run over targets within a budget of time: two engines, the checks, and the record kept of a failure.

Every failing input is written to ``.scratch/fuzz`` under the name of its target, and replayed by
``python -m fuzz --replay FILE``. The corpus that coverage found stays there for the next run.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.mutation import mutate
from fuzz.target import Target, check, check_memory, count_steps

SCRATCH = Path(__file__).parents[3] / ".scratch" / "fuzz"
#: One input in so many is measured for memory and steps, which is slow.
MEASURED_EVERY = 1000
#: Seeds of a target that are measured.
SEEDS_MEASURED = 12
#: An input that keeps its decoder busy for so long is a hang. Seconds.
HANG_S = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """An input that its target does not take as it should."""

    target: str
    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run over one target."""

    target: str
    inputs: int
    seconds: float
    failure: Failure | None = None


def measure(target: Target, data: bytes) -> None:
    """Everything there is to check about one input. Raises what is wrong with it."""
    check(target, data)
    check_memory(target, data)
    count_steps(target, data)


def keep(target: Target, data: bytes, text: str, directory: Path = SCRATCH) -> Failure:
    """Write a failing input down."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{target.name}@{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return Failure(target.name, path, text)


def target_name(path: Path) -> str:
    """The name of the target of a kept input."""
    return path.name.partition("@")[0]


def try_input(
    target: Target, data: bytes, call: Callable[[Target, bytes], object], directory: Path = SCRATCH
) -> Failure | None:
    """One input; a failure is kept."""
    try:
        call(target, data)
    except Exception:
        return keep(target, data, traceback.format_exc(limit=-6), directory)
    return None


def run_seeds(target: Target, directory: Path = SCRATCH) -> Failure | None:
    """The seeds themselves must be taken, in proportion."""
    seeds = target.seeds()
    step = max(1, len(seeds) // SEEDS_MEASURED)
    for number, data in enumerate(seeds):
        failure = try_input(target, data, check if number % step else measure, directory)
        if failure is not None:
            return failure
    return None


def mutate_for(target: Target, seconds: float, seed: int, directory: Path = SCRATCH) -> Outcome:
    """Mutations of the seeds: the same seed gives the same inputs, however far the time takes it."""
    began = time.monotonic()
    stream = random.Random(f"{seed}/{target.name}")
    corpus = target.seeds()
    inputs = 0
    failure = run_seeds(target, directory)
    # the seeds of a slow target alone may take longer than its share
    until = time.monotonic() + seconds
    while failure is None and (not inputs or time.monotonic() < until):
        data = mutate(corpus, stream, target.input_bytes_max)
        inputs += 1
        failure = try_input(target, data, measure if inputs % MEASURED_EVERY == 0 else check, directory)
    return Outcome(target.name, inputs, time.monotonic() - began, failure)


def guide_for(target: Target, seconds: float, seed: int, directory: Path = SCRATCH) -> Outcome:
    """The same guided by the coverage of our code, in a process of its own."""
    began = time.monotonic()
    failure = run_seeds(target, directory)
    if failure is not None:
        return Outcome(target.name, 0, time.monotonic() - began, failure)
    corpus = directory / "corpus" / target.name
    found = directory / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    command = [
        sys.executable, "-m", "fuzz.coverage_guided", target.name, f"-max_total_time={max(1, round(seconds * 4 / 5))}",
        f"-seed={seed & 0x7FFFFFFF or 1}", f"-max_len={target.input_bytes_max}", f"-timeout={HANG_S}",
        "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={found}/{target.name}@",
        str(corpus),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=Path(__file__).parents[1])
    output = done.stdout + done.stderr
    inputs = next((int(line.split()[-1]) for line in output.splitlines() if "number_of_executed_units" in line), 0)
    if done.returncode:
        failure = _found(target, found, output, directory)
    else:
        failure = _measured(target, sorted(corpus.iterdir()), directory, random.Random(seed), seconds / 5)
    return Outcome(target.name, inputs, time.monotonic() - began, failure)


def _found(target: Target, found: Path, output: str, directory: Path) -> Failure:
    """The input that libFuzzer wrote, under our name; its output if it wrote none."""
    written = sorted(found.glob(f"{target.name}@*"), key=lambda path: path.stat().st_mtime)
    lines = [line for line in output.splitlines() if not line.startswith("INFO: Instrumenting")]
    text = "\n".join(lines)[-3000:]
    if not written:
        return Failure(target.name, found, text)
    data = written[-1].read_bytes()
    for path in written:
        path.unlink()
    return keep(target, data, text, directory)


def _measured(
    target: Target, paths: Sequence[Path], directory: Path, stream: random.Random, seconds: float
) -> Failure | None:
    """Memory and steps of what reaches the most of our code."""
    until = time.monotonic() + seconds
    for path in stream.sample(list(paths), len(paths)):
        if time.monotonic() > until:
            break
        failure = try_input(target, path.read_bytes(), measure, directory)
        if failure is not None:
            return failure
    return None
