"""The clients of one round: producers and a consumer with ledgers, on a queue of the round."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from support import forked
from support.processes import COMMAND

#: Bodies and messages per second of each producer; the last one sends bodies in files of their own.
PRODUCERS: Final = ((200, 250), (4_000, 60), (150_000, 4))
#: Seconds without a message after which the queue of a round is empty.
_IDLE_S: Final = 1.5
#: Seconds without a new row in any ledger after which a client hangs.
_CLIENT_S: Final = 180


class Load:
    """Three producers with duplicate ids and a consumer with transactions, each a process with a ledger."""

    def __init__(self, url: str, directory: Path, queue: str) -> None:
        """Starts the producers.

        Args:
            url: URL with which the clients connect to the pair.
            directory: Scratch directory of the round.
            queue: Queue that the producers and the consumer of the round use.
        """
        directory.mkdir()
        self._enough, self._drained = directory / "enough", directory / "drained"
        self.consumed = directory / "consumed.jsonl"
        self._errors = directory / "errors"
        self._url, self._queue = url, queue
        self.consumers = 0
        """Consumers that were started."""
        self._consumer: subprocess.Popen[bytes] | None = None
        self._directory = directory
        self.produced: list[Path] = []
        self._read_bytes: dict[Path, int] = {}
        self._confirmed_ms: list[int] = []
        self._producers = [self._produce(place) for place in range(len(PRODUCERS))]

    def _produce(self, place: int) -> subprocess.Popen[bytes]:
        """Start a producer; each one has a name and a ledger of its own."""
        size_bytes, rate = PRODUCERS[place]
        name = f"{self._queue}.{len(self.produced)}"
        self.produced.append(self._directory / f"{name}.jsonl")
        return self._start(
            "produce", "--url", self._url, "--queue", self._queue, "--count", 1, "--until", self._enough,
            "--size", size_bytes, "--rate", rate, "--producer", name, "--ledger", self.produced[-1],
        )  # fmt: skip

    def _start(self, *arguments: object) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as errors:
            return forked.Popen([str(COMMAND), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=errors)

    def consume(self) -> None:
        """Start a consumer."""
        self.consumers += 1
        self._consumer = self._start(
            "consume", "--url", self._url, "--queue", self._queue, "--ack", "transacted", "--batch", 20,
            "--consumer", f"{self._queue}.{self.consumers}", "--idle-timeout", _IDLE_S, "--until", self._drained,
            "--ledger", self.consumed,
        )  # fmt: skip

    def supervise(self) -> None:
        """Start another client in the place of one that ended with an error: the broker refuses large messages while a
        disk is full, and closes the consumer of a damaged one.
        """
        if self._consumer is not None and self._consumer.poll():
            self.consume()
        for place, process in enumerate(self._producers):
            if process.poll():
                self._producers[place] = self._produce(place)

    @property
    def replaced(self) -> int:
        """Clients that ended with an error."""
        return max(0, self.consumers - 1) + len(self.produced) - len(PRODUCERS)

    def confirmed_ms(self) -> list[int]:
        """When each confirmation of any producer came, in order; milliseconds since 1970. Lines of a ledger that were
        read by an earlier call are not read again.
        """
        for ledger in self.produced:
            if not ledger.exists():
                continue
            with ledger.open("rb") as file:
                file.seek(self._read_bytes.get(ledger, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read_bytes[ledger] = self._read_bytes.get(ledger, 0) + len(whole)
            confirmed = (line for line in whole.splitlines() if b'"CONFIRMED"' in line)
            self._confirmed_ms += [int(json.loads(line)["at_ms"]) for line in confirmed]
        self._confirmed_ms.sort()
        return self._confirmed_ms

    def gap_ms(self, since_ms: int) -> int:
        """The longest time without a confirmation that ends after a moment."""
        times = self.confirmed_ms()
        return max((later - before for before, later in pairwise(times) if later >= since_ms), default=0)

    def finish(self, wait: Callable[[Callable[[], bool], float], bool]) -> str | None:
        """Let the producers end, then the consumer when the queue is empty; None, or the client that does not end."""
        self._enough.touch()

        def sent() -> bool:
            self.supervise()
            return all(each.poll() == 0 for each in self._producers)

        def drained() -> bool:
            self.supervise()
            assert self._consumer is not None
            return self._consumer.poll() == 0

        if not self._in_progress(wait, sent):
            return "a producer does not end: " + self._errors.read_text(errors="replace")[-500:]
        self._drained.touch()
        if not self._in_progress(wait, drained):
            return "the consumer does not end: " + self._errors.read_text(errors="replace")[-500:]
        return None

    def _in_progress(self, wait: Callable[[Callable[[], bool], float], bool], ended: Callable[[], bool]) -> bool:
        """Wait for the end of clients for as long as ledgers grow; whether they have ended."""
        size_bytes = -1
        while not wait(ended, _CLIENT_S):
            before, size_bytes = size_bytes, sum(each.stat().st_size for each in self._directory.glob("*.jsonl"))
            if size_bytes == before:
                return False
        return True

    def end(self) -> None:
        """Leave nothing running."""
        for each in (*self._producers, self._consumer):
            if each is not None and each.poll() is None:
                each.kill()
                each.wait()

    def check(self) -> dict[str, Any]:
        """The report of ``understudy ledger check``."""
        command = [str(COMMAND), "ledger", "check", "--json", *map(str, [*self.produced, self.consumed])]
        done = forked.run(command, capture_output=True, text=True, check=False)
        if not done.stdout:
            return {"ok": False, "verdict": done.stderr[-500:]}
        report: dict[str, Any] = json.loads(done.stdout)
        return report
