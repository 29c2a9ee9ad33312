"""Real processes of ``understudy witness`` on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from support import forked
from support.ports import free_port
from support.processes import COMMAND

#: Only against a test that hangs.
WAIT_S = 30


class WitnessProcess:
    """A witness of a scratch directory."""

    def __init__(
        self, directory: Path, host: str = "127.0.0.1", prefix: tuple[str, ...] = (), secret: Path | None = None
    ) -> None:
        """Args:
        directory: Scratch directory.
        host: Address.
        prefix: Beginning of a command line that runs on the host of that address, see ``Network.command``.
        secret: File with the secret; None: a new one.
        """
        self.directory = directory
        self.host = host
        self.prefix = prefix
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self.secret = secret or directory / "secret"
        self.state = directory / "state" / "witness.state"
        self.log = directory / "witness.log"
        self.process: subprocess.Popen[bytes] | None = None
        if secret is None:
            assert self.command("secret", str(self.secret)).returncode == 0

    @staticmethod
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``understudy witness`` to its end."""
        return forked.run([COMMAND, "witness", *arguments], capture_output=True, text=True, timeout=WAIT_S, check=False)

    def arguments(self, *more: str) -> list[str]:
        """Arguments of ``understudy witness`` that run the witness."""
        state = str(self.directory / "state")
        return ["run", "--directory", state, "--listen", self.address, "--secret-file", str(self.secret), *more]

    def start(self, *more: str, environment: dict[str, str] | None = None) -> None:
        """Start it and wait until it answers."""
        # not a pipe: the witness would stop at its log line when the pipe is full
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, str(COMMAND), "witness", *self.arguments(*more)],
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(self.log.read_text(errors="replace")[-3000:])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def status(self) -> dict[str, object]:
        """The status as JSON."""
        found = self.command("status", self.address, "--secret-file", str(self.secret), "--json")
        assert found.returncode == 0, found.stderr
        result: dict[str, object] = json.loads(found.stdout)
        return result
