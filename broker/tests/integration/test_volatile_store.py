"""persistence-enabled false: everything works, nothing outlives the process, the configured store is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, READY_S, Node
from understudy.client import sync

XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
<persistence-enabled>{persistent}</persistence-enabled>
<security-enabled>false</security-enabled>
<acceptors><acceptor name="core">tcp://127.0.0.1:{port}</acceptor></acceptors>
</core></configuration>"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "node", "primary", free_port())
    made.config.parent.mkdir(parents=True)
    yield made
    made.end()


def start(node: Node, persistent: bool) -> str:
    node.config.write_text(XML.format(port=node.port, persistent=str(persistent).lower()))
    node.start().wait_ready("active")
    return f"tcp://127.0.0.1:{node.port}"


def waiting(url: str) -> int:
    done = forked.run(
        [str(COMMAND), "consume", "--url", url, "--queue", "q", "--idle-timeout", "1", "--json"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return int(json.loads(done.stdout)["acknowledged"])


def send(url: str, count: int) -> None:
    forked.run([str(COMMAND), "produce", "--url", url, "--queue", "q", "--count", str(count)], check=True, timeout=60)


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_messages_end_with_the_process_and_a_kept_store_is_untouched(node: Node, killed: bool) -> None:
    send(start(node, persistent=True), 3)
    assert node.terminate() == 0
    url = start(node, persistent=False)
    assert list((node.directory / "run" / "volatile").iterdir())
    send(url, 500)
    if killed:
        node.kill()
    else:
        assert node.terminate() == 0
        assert not (node.directory / "run" / "volatile").exists()
    url = start(node, persistent=False)
    with sync.connect(url) as connection:
        assert connection.session().consumer("q").receive(0.2) is None
    assert node.terminate() == 0
    assert waiting(start(node, persistent=True)) == 3


def test_a_second_process_of_the_instance_does_not_empty_the_store_in_use(node: Node) -> None:
    url = start(node, persistent=False)
    send(url, 5)
    second = forked.run(
        [str(COMMAND), "run", "--config", str(node.config), "--instance", str(node.directory), "--http", "off"],
        capture_output=True, text=True, timeout=READY_S,
    )  # fmt: skip
    assert second.returncode == 2
    assert "the instance runs already: process" in second.stderr
    assert waiting(url) == 5
