"""The worked incident of docs/use/pipeline.md: both nodes of a replicated pair died, and both had served alone.

Goal: the commands of the document, as they are printed there, say which journal is newest and what only the other one
has, and bring the messages of both together. Nothing is lost, and each message is delivered once.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, Node
from support.replicated import ReplicatedPair, wait_logged

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

GUIDE = Path(__file__).parents[3] / "docs" / "use" / "pipeline.md"
PRINTED_URL = "tcp://127.0.0.1:61616"


def printed_commands() -> list[list[str]]:
    """The commands of the section, each split as a shell does."""
    text = GUIDE.read_text().partition("### A worked incident: both nodes died\n")[2].partition("\n## ")[0]
    return [shlex.split(line) for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def run(directory: Path, *arguments: object, code: int = 0) -> str:
    """Output of ``understudy``, with the directory as the current one."""
    done = forked.run(
        [str(COMMAND), *map(str, arguments)], cwd=directory, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def produce(directory: Path, node: Node, producer: str, count: int) -> None:
    """Send messages and add them to the ledger of the document."""
    url = f"tcp://127.0.0.1:{node.port}"
    options = ["--count", count, "--producer", producer, "--ledger", "producers.jsonl"]
    run(directory, "produce", "--url", url, "--queue", "q", *options)


def consume(directory: Path, node: Node, count: int) -> None:
    """Acknowledge so many messages and add them to the ledger of the document."""
    url = f"tcp://127.0.0.1:{node.port}"
    run(directory, "consume", "--url", url, "--queue", "q", "--count", count, "--ledger", "consumers.jsonl")


def test_the_commands_of_the_document_bring_both_journals_together(
    tmp_path: Path, make_pair: Callable[..., ReplicatedPair]
) -> None:
    verdict, imported, audit = printed_commands()
    pair = make_pair().start()
    first, second = pair.primary, pair.backup
    produce(tmp_path, first, "both", 60)
    consume(tmp_path, first, 20)
    second.kill()
    produce(tmp_path, first, "alone", 30)
    first.kill()
    second.start()
    wait_logged(second, "another node has served with")
    run(tmp_path, "promote", "--instance", second.directory, "--accept-data-loss", "--yes")
    second.wait_ready("active")
    produce(tmp_path, second, "promoted", 40)
    second.kill()

    rescue = tmp_path / "rescue"
    for name, node in (("a", second), ("b", first)):
        shutil.copytree(node.directory / "data" / "journal", rescue / name)

    def here(command: list[str]) -> list[str]:
        url = f"tcp://127.0.0.1:{second.port}"
        assert command[0] == "understudy"
        return [each.replace("/rescue", str(rescue)).replace(PRINTED_URL, url) for each in command[1:]]

    said = run(tmp_path, *here(verdict), code=1)
    assert "diverged at sequence" in said
    assert re.search(r"30 messages", said), said
    second.start().wait_ready("active")
    run(tmp_path, *here(imported))
    run(tmp_path, *here(imported))
    consume(tmp_path, second, 60 - 20 + 30 + 40)
    assert second.queue("q") is not None
    assert second.queue("q")["message_count"] == 0  # type: ignore[index]
    assert second.terminate() == 0
    run(tmp_path, *here(audit))
    assert (tmp_path / "audit.html").stat().st_size > 1000
