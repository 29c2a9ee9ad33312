"""Goal: a node that is started reports errors before it serves, and management answers in every state.

Method: real processes; a node serves its clients before management has been loaded, which must not be felt.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from support import forked
from support.ports import free_port
from support.processes import COMMAND, Node, Pair, assert_serves


@pytest.mark.parametrize(
    ("http", "complaint"),
    [
        ("0.0.0.0:8161", "not loopback"),
        ("127.0.0.1", "host:port or 'off'"),
        ("127.0.0.1:70000", "70000: a port is at most 65535"),
        ("taken", "Address already in use"),
    ],
)
def test_a_wrong_management_address_is_refused_before_activation(pair: Pair, http: str, complaint: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}" if http == "taken" else http
        done = forked.run(
            [str(COMMAND), "run", "--config", str(pair.primary.config), "--instance", str(pair.primary.directory),
             "--http", address],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    if "host:port" in complaint:
        assert "starts" not in done.stderr
    assert not pair.store.exists()


def test_a_node_whose_management_cannot_be_loaded_ends_and_says_why_and_its_backup_takes_over(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken" / "aiohttp"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('a broken installation')\n")
    with monkeypatch.context() as environment:
        environment.setenv("PYTHONPATH", os.pathsep.join([str(broken.parent), os.environ.get("PYTHONPATH", "")]))
        pair.primary.start()
    assert pair.primary.process is not None
    assert pair.primary.process.wait(60) == 1
    log = pair.primary.tail()
    assert "management did not start" in log
    assert "a broken installation" in log
    left = sorted(path.name for path in (pair.primary.directory / "run").iterdir())
    assert left == ["lock", "store-position.json"]
    pair.backup.start().wait_ready("active")
    assert_serves(pair.backup)


def test_a_primary_that_waits_for_another_can_be_looked_at_and_stopped(pair: Pair, tmp_path: Path) -> None:
    pair.primary.start().wait_ready("active")
    second = Node(tmp_path / "second", "primary", free_port())
    second.config.parent.mkdir(parents=True)
    second.config.write_text(pair.primary.config.read_text().replace(str(pair.primary.port), str(second.port)))
    try:
        second.start()
        second.wait_ready("passive")
        assert second.facts()["node_id"] == pair.primary.facts()["node_id"]
        assert second.terminate() == 0
    finally:
        second.end()
    assert_serves(pair.primary)


def test_a_node_stops_at_once(pair: Pair) -> None:
    """Also while management is still being loaded."""
    node = pair.primary.start()
    while '"active"' not in node.tail():
        assert node.process is not None
        assert node.process.poll() is None, node.tail()
    assert node.terminate() == 0
    assert '"clean": true' in node.tail()


def test_a_missing_directory_that_is_not_to_be_made_is_refused_with_its_element(tmp_path: Path) -> None:
    pair = Pair(tmp_path, extra="<create-journal-dir>false</create-journal-dir>")
    try:
        pair.primary.start()
        assert pair.primary.process is not None
        assert pair.primary.process.wait(60) == 1
        assert "core/create-journal-dir" in pair.primary.tail()
        assert not pair.store.exists()
    finally:
        pair.end()
