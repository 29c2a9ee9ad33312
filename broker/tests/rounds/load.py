"""The clients of one round: producers and a consumer with ledgers, on a queue of the round."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from support.processes import COMMAND

#: Bodies and messages per second of each producer; the last one sends bodies in files of their own.
PRODUCERS: Final = ((200, 250), (4_000, 60), (150_000, 4))
#: Seconds without a message after which the queue of a round is empty.
_IDLE_S: Final = 1.5
#: Only against a client that hangs.
_CLIENT_S: Final = 180


class Load:
    """Three producers with duplicate ids and a consumer with transactions, each a process with a ledger."""

    def __init__(self, url: str, directory: Path, queue: str) -> None:
        """Starts them.

        Args:
            url: Of the pair.
            directory: Scratch directory of the round.
            queue: Of the round.
        """
        directory.mkdir()
        self._enough, self._drained = directory / "enough", directory / "drained"
        self.consumed = directory / "consumed.jsonl"
        self.produced = [directory / f"produced{number}.jsonl" for number in range(len(PRODUCERS))]
        self._errors = directory / "errors"
        self._url, self._queue = url, queue
        self.consumers = 0
        """Consumers that were started: one ends when it gets a damaged large message, and the next one goes on."""
        self._consumer = self._consume()
        self._producers = [
            self._start(
                "produce", "--url", url, "--queue", queue, "--count", 1, "--until", self._enough, "--size", size,
                "--rate", rate, "--producer", f"{queue}.{number}", "--ledger", ledger,
            )
            for number, ((size, rate), ledger) in enumerate(zip(PRODUCERS, self.produced, strict=True))
        ]  # fmt: skip

    def _start(self, *arguments: object) -> subprocess.Popen[bytes]:
        with self._errors.open("ab") as errors:
            return subprocess.Popen([str(COMMAND), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=errors)

    def _consume(self) -> subprocess.Popen[bytes]:
        self.consumers += 1
        return self._start(
            "consume", "--url", self._url, "--queue", self._queue, "--ack", "transacted", "--batch", 20,
            "--consumer", f"{self._queue}.{self.consumers}", "--idle-timeout", _IDLE_S, "--until", self._drained,
            "--ledger", self.consumed,
        )  # fmt: skip

    def supervise(self) -> None:
        """Start another consumer in the place of one that ended with an error."""
        if self._consumer.poll():
            self._consumer = self._consume()

    def confirmed_ms(self) -> list[int]:
        """When each confirmation of any producer came, in order; milliseconds since 1970."""
        times: list[int] = []
        for ledger in self.produced:
            if ledger.exists():
                lines = ledger.read_bytes().splitlines()
                confirmed = (line for line in lines if b'"CONFIRMED"' in line and line.endswith(b"}"))
                times += [int(json.loads(line)["at_ms"]) for line in confirmed]
        return sorted(times)

    def gap_ms(self, since_ms: int) -> int:
        """The longest time without a confirmation that ends after a moment."""
        times = self.confirmed_ms()
        return max((later - before for before, later in pairwise(times) if later >= since_ms), default=0)

    def finish(self, wait: Callable[[Callable[[], bool], float], bool]) -> str | None:
        """Let the producers end, then the consumer when the queue is empty; None, or the client that does not end."""
        self._enough.touch()
        if not wait(lambda: all(each.poll() is not None for each in self._producers), _CLIENT_S):
            return "a producer does not end"
        self._drained.touch()

        def drained() -> bool:
            self.supervise()
            return self._consumer.poll() == 0

        if not wait(drained, _CLIENT_S):
            return "the consumer does not end"
        if any(each.returncode for each in self._producers):
            return "a producer failed: " + self._errors.read_text(errors="replace")[-500:]
        return None

    def end(self) -> None:
        """Leave nothing running."""
        for each in (*self._producers, self._consumer):
            if each.poll() is None:
                each.kill()
                each.wait()

    def check(self) -> dict[str, Any]:
        """The report of ``understudy ledger check``."""
        command = [str(COMMAND), "ledger", "check", "--json", *map(str, [*self.produced, self.consumed])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_CLIENT_S)
        if not done.stdout:
            return {"ok": False, "verdict": done.stderr[-500:]}
        report: dict[str, Any] = json.loads(done.stdout)
        return report
