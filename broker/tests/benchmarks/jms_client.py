"""The stock JMS client of Artemis as a load: one process (``java/``) for all brokers and runs of a benchmark."""

from __future__ import annotations

import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

from benchmarks.backlog import Figures
from benchmarks.load import CannotRun, RunFailed
from benchmarks.targets import Broker, artemis_home
from benchmarks.usage import process_cpu_seconds

SOURCES: Final = Path(__file__).parent / "java"
#: A run whose client says nothing for so long hangs.
_QUIET_S: Final = 120


class JmsClient:
    """The Java process. It runs one case at a time."""

    def __init__(self, directory: Path) -> None:
        """Compile the load. Raises CannotRun."""
        if shutil.which("javac") is None:
            raise CannotRun("no Java compiler (javac)")
        libraries = f"{artemis_home()}/lib/*"
        classes = directory / "classes"
        result = subprocess.run(
            ["javac", "-cp", libraries, "-d", str(classes), *map(str, sorted(SOURCES.glob("*.java")))],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if result.returncode:
            raise CannotRun(f"the JMS load does not compile: {result.stderr[-500:]}")
        self._command = ["java", "-Xms1g", "-Xmx1g", "-cp", f"{classes}:{libraries}", "JmsLoad"]
        self._log = directory / "jms.log"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def run(self, case: str, broker: Broker, address: str, *, warmup_s: float, window_s: float) -> Figures:
        """One run over queues of its own. Raises RunFailed."""
        process = self._running()
        assert process.stdin is not None
        words = (case, f"tcp://127.0.0.1:{broker.port}", address, int(warmup_s * 1000), int(window_s * 1000))
        process.stdin.write(f"{' '.join(map(str, words))}\n")
        process.stdin.flush()
        self._expect("begin")
        before, client_before = _cpu_s(broker), process_cpu_seconds(process.pid)
        count, nanoseconds = map(int, self._expect("end").split())
        cpu_s, client_cpu_s = _cpu_s(broker) - before, process_cpu_seconds(process.pid) - client_before
        self._expect("done")
        if not count:
            raise RunFailed("nothing was done in the window")
        return Figures(count * 1e9 / nanoseconds, cpu_s * 1e6 / count, client_cpu_s * 1e6 / count)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
            self._lines = queue.Queue()
            threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        return self._process

    def _expect(self, word: str) -> str:
        """The rest of the next line, which begins with that word."""
        try:
            line = self._lines.get(timeout=_QUIET_S)
        except queue.Empty:
            self.end()
            raise RunFailed(f"the client says nothing for {_QUIET_S} s") from None
        found, _, rest = line.partition(" ")
        if found == word:
            return rest
        if found == "failed":
            raise RunFailed(rest)
        self.end()
        raise RunFailed(f"the client says {line!r} in place of {word!r}: {self._log.read_text()[-500:]}")

    def end(self) -> None:
        """End the process; the next run starts another one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.strip())
    lines.put(f"ended with {process.wait()}")


def _cpu_s(broker: Broker) -> float:
    return sum(map(process_cpu_seconds, broker.pids()))
