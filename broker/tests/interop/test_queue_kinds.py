"""Queue kinds and diverts as the stock client asks for them and sees them, also across a SIGKILL."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from support.nodes import Nodes
from support.processes import Pair

pytestmark = [pytest.mark.maven, pytest.mark.long]

Java = Callable[..., "subprocess.Popen[str]"]

DIVERTS = """
    <addresses>
      <address name="orders"><anycast><queue name="orders"/></anycast></address>
      <address name="audit"><anycast><queue name="audit"/></anycast></address>
      <address name="archive"><anycast><queue name="archive"/></anycast></address>
      <address name="europe"><anycast><queue name="europe"/></anycast></address>
      <address name="kept"><anycast><queue name="kept"/></anycast></address>
    </addresses>
    <diverts>
      <divert name="copying">
        <address>orders</address>
        <forwarding-address>audit, archive</forwarding-address>
      </divert>
      <divert name="moving">
        <address>orders</address>
        <forwarding-address>europe</forwarding-address>
        <filter string="region = 'EU'"/>
        <exclusive>true</exclusive>
      </divert>
      <divert name="keeping">
        <address>news.#</address>
        <forwarding-address>kept</forwarding-address>
        <routing-type>ANYCAST</routing-type>
      </divert>
    </diverts>
"""


@pytest.fixture
def diverting(nodes: Nodes) -> Pair:
    return nodes.pair(extra=DIVERTS).start()


def finished(process: subprocess.Popen[str], timeout_s: float = 120) -> str:
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, output[-3000:]
    return output


@pytest.mark.feature("queue kinds")
def test_queue_kinds(java: Java, pair: Pair) -> None:
    """Asked for by address parameters and queue configurations; answered in full by queue queries."""
    output = finished(java("QueueKinds", pair.url))
    assert output.count("ok ") == 11, output


@pytest.mark.feature("queue kinds across a failover")
def test_queue_kinds_across_a_kill(java: Java, pair: Pair) -> None:
    """Every flag and what the queues hold are the same at the node that takes over."""
    process = java("QueueKinds", pair.url, "failover", stdin=subprocess.PIPE)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line == "ready\n":
            break
    assert process.poll() is None, "".join(seen)
    pair.primary.kill()
    pair.backup.wait_ready("active")
    output, _ = process.communicate("go\n", timeout=120)
    assert process.returncode == 0, "".join(seen) + output[-3000:]
    assert output.endswith("ok failover\ndone\n"), output


@pytest.mark.feature("diverts")
def test_diverts(java: Java, diverting: Pair) -> None:
    """Copies, moves, filters, transactions, duplicates and large messages; again at the node that takes over."""
    for _ in range(2):
        output = finished(java("Diverts", diverting.url))
        assert output.count("ok ") == 6, output
        if diverting.primary.process is not None and diverting.primary.process.poll() is None:
            deadline = time.monotonic() + 60
            folder = diverting.store / "large-messages"
            while any(folder.iterdir()):
                assert time.monotonic() < deadline, "bodies outlive their last copy"
                time.sleep(0.2)
            diverting.primary.kill()
            diverting.backup.wait_ready("active")
