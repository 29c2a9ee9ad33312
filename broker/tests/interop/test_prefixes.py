"""Prefixes of an acceptor, as the stock JMS client uses them: the same against ours and against Artemis."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.processes import free_port
from support.targets import Target

pytestmark = pytest.mark.maven


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.feature("acceptor prefixes")
@pytest.mark.parametrize("kind", ["understudy"], indirect=True)
def test_names_with_prefixes(make_broker: Callable[..., Target], java: Start) -> None:
    check_names(make_broker, java)


@pytest.mark.parametrize("kind", ["artemis"], indirect=True)
def test_the_scenario_is_what_artemis_does(make_broker: Callable[..., Target], java: Start) -> None:
    """No feature of ours: it shows that the scenario asks for nothing that Artemis does otherwise."""
    check_names(make_broker, java)


def check_names(make_broker: Callable[..., Target], java: Start) -> None:
    port = free_port()
    acceptor = (
        f"<acceptor name='prefixed'>tcp://127.0.0.1:{port}?anycastPrefix=queue/;multicastPrefix=topic/</acceptor>"
    )
    make_broker(acceptors=acceptor)
    process = java("Prefixes", f"tcp://127.0.0.1:{port}")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output[-3000:]
    parts = [line for line in output.splitlines() if line.startswith("ok ")]
    assert parts == ["ok queues", "ok topics", "ok against the type", "ok both ways"]
