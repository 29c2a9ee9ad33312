"""Prefixes of an acceptor, as the stock JMS client uses them: the same against ours and against Artemis."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.processes import free_port
from support.targets import Target

pytestmark = pytest.mark.maven


@pytest.mark.feature("acceptor prefixes")
def test_names_with_prefixes(
    make_broker: Callable[..., Target], kind: str, java: Callable[..., subprocess.Popen[str]]
) -> None:
    port = free_port()
    acceptor = (
        f"<acceptor name='prefixed'>tcp://127.0.0.1:{port}?anycastPrefix=queue/;multicastPrefix=topic/</acceptor>"
    )
    make_broker(acceptors=acceptor)
    process = java("Prefixes", f"tcp://127.0.0.1:{port}")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output[-3000:]
    parts = [line for line in output.splitlines() if line.startswith("ok ")]
    assert parts == ["ok queues", "ok topics", "ok against the type", "ok both ways"], kind
