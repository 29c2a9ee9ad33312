"""Prefixes of an acceptor, as the stock JMS client uses them: the same against ours and against Artemis."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.ports import free_port
from support.targets import start_target

pytestmark = [pytest.mark.maven, pytest.mark.long]


@pytest.mark.feature("acceptor prefixes")
def test_names_with_prefixes(tmp_path: Path, artemis: Path, java: Callable[..., subprocess.Popen[str]]) -> None:
    """Artemis first: the scenario must ask for nothing that Artemis does otherwise."""
    for name in ("artemis", "understudy"):
        port = free_port()
        url = f"tcp://127.0.0.1:{port}"
        acceptor = f"<acceptor name='prefixed'>{url}?anycastPrefix=queue/;multicastPrefix=topic/</acceptor>"
        broker = start_target(name, tmp_path / name, artemis, acceptors=acceptor)
        try:
            process = java("Prefixes", url)
            output, _ = process.communicate(timeout=120)
        finally:
            broker.end()
        assert process.returncode == 0, f"{name}: {output[-3000:]}"
        parts = [line for line in output.splitlines() if line.startswith("ok ")]
        assert parts == ["ok queues", "ok topics", "ok against the type", "ok both ways"], name
