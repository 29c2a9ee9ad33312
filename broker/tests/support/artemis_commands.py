"""The artemis command line in one long-lived process: hundreds of commands for the price of one start."""

from __future__ import annotations

import base64
import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "interop" / "commands" / "Commands.java"
_NOT_SAID = re.compile(r"^(SLF4J|WARNING: sun\.|.*StatusLogger)")


class ArtemisCommands:
    """One process of the artemis command line, which carries out one command after the other until ``end``."""

    def __init__(self, artemis: Path) -> None:
        home = artemis.parents[1]
        self._process = subprocess.Popen(
            ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{home}/lib/*", str(SOURCE), str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """The exit code of a command, and all that it printed."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(" ".join(base64.b64encode(each.encode()).decode() for each in arguments) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"the command line ended in {arguments}"
        code, _, printed = answer.strip().partition(" ")
        lines = base64.b64decode(printed).decode(errors="replace").splitlines()
        return int(code), "\n".join(line for line in lines if not _NOT_SAID.match(line))

    def end(self) -> None:
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        process.kill()
        process.wait(10)
