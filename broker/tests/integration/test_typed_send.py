"""A type checker finds a misspelt option of ``send``, ``send_nowait`` and ``request``, in both clients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from understudy.client import aio, sync


def blocking(session: sync.Session) -> None:
    producer = session.producer("orders")
    producer.send("a", priority=3, ttl_s=5, correlation_id="7")
    producer.send("a", {misspelt}=3)
    producer.send_nowait("a", {misspelt}=3)


async def with_asyncio(session: aio.Session) -> None:
    producer = await session.producer("orders")
    await producer.send("a", priority=3, delay_s=2, reply_to="answers")
    await producer.send("a", {misspelt}=3)
    producer.send_nowait("a", {misspelt}=3)
"""


@pytest.mark.parametrize(("name", "errors"), [("prioriti", 4), ("priority", 0)])
def test_a_misspelt_option_of_send_is_found(tmp_path: Path, name: str, errors: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(misspelt=name))
    root = Path(__file__).parents[2]
    cache = str(root / ".mypy_cache" / "typed_send")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "", "--strict", "--follow-imports", "silent",
         "--cache-dir", cache, str(program)],
        capture_output=True, text=True, cwd=root / "src", check=False, timeout=280,
    )  # fmt: skip
    lines = [line for line in found.stdout.splitlines() if "error:" in line]
    assert len(lines) == errors, found.stdout + found.stderr
    assert all(f'Unexpected keyword argument "{name}"' in line for line in lines)
