"""A member that advertises an address that no other one reaches is named by all peers (``cluster check``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support import forked
from support.members import Members, wait_knows, wait_until
from support.ports import free_port
from support.processes import COMMAND, Node


def check(*nodes: Node) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of the command."""
    options = [option for node in nodes for option in ("--instance", str(node.directory))]
    done = forked.run(
        [str(COMMAND), "cluster", "check", "--json", *options], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, json.loads(done.stdout)


def test_each_peer_names_the_member_and_the_address(tmp_path: Path) -> None:
    members = Members(tmp_path, 3)
    first, second, wrong = members.nodes
    # it announces another address than the one on which it listens
    nowhere = free_port()
    text = wrong.config.read_text()
    own = f'<connector name="n2">tcp://127.0.0.1:{wrong.port}</connector>'
    assert own in text
    wrong.config.write_text(text.replace(own, f'<connector name="n2">tcp://127.0.0.1:{nowhere}</connector>'))
    for node in (first, second):
        # no other member has it as static connector: they know it by its announcement only
        text = node.config.read_text()
        node.config.write_text(text.replace("<connector-ref>n2</connector-ref>", "", 1))
    try:
        first.start().wait_ready("active")
        second.start().wait_ready("active")
        wait_knows(first, "q")
        assert check(first, second) == (0, {"ok": True, "peers": [url(first), url(second)], "problems": []})
        wrong.start().wait_ready("active")
        node_id = wrong.facts()["node_id"]
        for node in (first, second):

            def named(node: Node = node) -> bool:
                unreached: Any = node.get("/api/v1/cluster")[1]["unreached"]
                return [(each["node_id"], each["address"]) for each in unreached] == [
                    (node_id, f"tcp://127.0.0.1:{nowhere}")
                ]

            wait_until(named, "the member is not named", node)
        code, found = check(first, second)
        assert code == 1
        problems = [each for each in found["problems"] if each["code"] == "member-not-reached"]
        assert {each["peer"] for each in problems} == {url(first), url(second)}
        assert all(f"advertises tcp://127.0.0.1:{nowhere}" in each["text"] for each in problems)
        # with its right address it is reached, and the problem is over
        wrong.terminate()
        wrong.config.write_text(wrong.config.read_text().replace(str(nowhere), str(wrong.port)))
        wrong.start().wait_ready("active")
        for node in (first, second):
            wait_until(lambda node=node: node.get("/api/v1/cluster")[1]["unreached"] == [], "not reached", node)  # type: ignore[misc]
    finally:
        members.end()


def url(node: Node) -> str:
    """Management URL, as the command prints it."""
    return f"http://127.0.0.1:{node.http_port}"
