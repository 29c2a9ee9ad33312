"""The format of transcripts: reading, carrying out, comparing and rewriting a file."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

#: Between the commands of a block and their output.
SEPARATOR: Final = "----"


class Driver(Protocol):
    """Carries out the commands of one folder of transcripts."""

    def command(self, words: list[str]) -> Iterator[str]:
        """Carry out one command and give its output, line by line.

        Raises:
            ValueError: there is no such command, or its arguments are wrong.
        """
        ...

    def close(self) -> None:
        """End everything that was begun."""
        ...


@dataclass
class Block:
    """Commands with their output, or a comment without any."""

    lines: list[str]
    """Lines of the block before the separator."""
    output: list[str] | None
    """None for a comment between blocks."""


class Transcript:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.blocks = list(_blocks(path))

    @property
    def purpose(self) -> str:
        """The comment at the top: what the transcript shows."""
        return "\n".join(self.blocks[0].lines) if self.blocks and self.blocks[0].output is None else ""

    def carried_out(self, make_driver: Callable[[], Driver]) -> str:
        """The text of the file with the output of today."""
        driver = make_driver()
        written = []
        try:
            for block in self.blocks:
                written.append("\n".join(block.lines))
                if block.output is not None:
                    written[-1] = "\n".join([*block.lines, SEPARATOR, *self._output(driver, block)])
        finally:
            driver.close()
        return "\n\n".join(written) + "\n"

    def _output(self, driver: Driver, block: Block) -> Iterator[str]:
        commands = [shlex.split(line) for line in block.lines if not line.startswith("#")]
        for words in filter(None, commands):
            try:
                for line in driver.command(words):
                    yield line or "."
            except (ValueError, KeyError, IndexError) as error:
                raise AssertionError(f"{self.path.name}: {shlex.join(words)}: {error!r}") from error

    def check(self, make_driver: Callable[[], Driver], *, rewrite: bool) -> None:
        """Compare the file with what the code does, or rewrite it.

        Raises:
            AssertionError: they differ; its text is the difference.
        """
        now = self.carried_out(make_driver)
        if rewrite:
            self.path.write_text(now)
            return
        difference = "\n".join(
            difflib.unified_diff(
                self.text.splitlines(), now.splitlines(), f"{self.path.name}, expected", "today", lineterm="", n=6
            )
        )
        assert not difference, f"\n{difference}\n\n`make transcripts` rewrites the file; review the change."


def _blocks(path: Path) -> Iterator[Block]:
    lines: list[str] = []
    for line in [*path.read_text().splitlines(), ""]:
        if line:
            lines.append(line)
            continue
        if not lines:
            continue
        if SEPARATOR in lines:
            at = lines.index(SEPARATOR)
            yield Block(lines[:at], lines[at + 1 :])
        else:
            comment = all(each.startswith("#") for each in lines)
            yield Block(lines, None if comment else [])
        lines = []


def options(words: list[str]) -> dict[str, str]:
    """``name=value`` words of a command."""
    return dict(word.split("=", 1) for word in words if "=" in word)


def arguments(words: list[str]) -> list[str]:
    """The other words."""
    return [word for word in words if "=" not in word]
