"""Members with the default cluster password, which is public (ADR 0139): they link over loopback addresses only."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from support.members import Members, wait_knows, wait_until
from support.processes import Node
from understudy.client.sync import connect

_OWN = re.compile(r"<cluster-user>.*</cluster-password>", re.DOTALL)


def _members(directory: Path, *, host: str = "127.0.0.1", login: tuple[str, str] = ("", "")) -> Members:
    """Two members with these elements in the place of a cluster password of their own."""
    members = Members(directory, 2)
    for node, element in zip(members.nodes, login, strict=True):
        text, count = _OWN.subn(element, node.config.read_text())
        assert count == 1
        node.config.write_text(text.replace("tcp://127.0.0.1:", f"tcp://{host}:"))
    return members


def _address_of_this_host() -> str:
    """An address that is no loopback address; pytest.skip if this host has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # chooses a route, sends nothing
            probe.connect(("192.0.2.1", 9))
        except OSError as error:
            pytest.skip(f"this host has loopback addresses only: {error}")
        return str(probe.getsockname()[0])


def test_members_on_loopback_with_the_default_password_are_a_cluster(tmp_path: Path) -> None:
    """One file says the default, the other one leaves it out, as in Artemis."""
    members = _members(tmp_path, login=("<cluster-password>CHANGE ME!!</cluster-password>", ""))
    first, second = members.nodes
    try:
        members.start()
        for node in (first, second):
            wait_knows(node, "q")
            assert "the default cluster-password is public" in node.log.read_text()
        with connect(f"tcp://127.0.0.1:{second.port}") as connection:
            session = connection.session()
            consumer = session.consumer("q")
            with connect(f"tcp://127.0.0.1:{first.port}") as other:
                other.session().producer("q").send(b"moved")
            message = consumer.receive(timeout_s=30)
            assert message is not None
            assert message.body == b"moved"
    finally:
        members.end()


def test_members_elsewhere_with_the_default_password_are_refused_with_the_element(tmp_path: Path) -> None:
    host = _address_of_this_host()
    members = _members(tmp_path, host=host)
    try:
        members.start()
        for node in members.nodes:
            wait_until(lambda node=node: _refused(node, host), "no refusal is logged", node)  # type: ignore[misc]
            assert node.get("/api/v1/cluster")[1]["remote_queues"] == []
    finally:
        members.end()


def _refused(node: Node, host: str) -> bool:
    text = f"links over loopback addresses only, and {host} is not one"
    return any("core/cluster-password" in line and text in line for line in node.log.read_text().splitlines())
