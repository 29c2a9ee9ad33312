"""Goal: the table of nftables admits the given sources, drops all others, and is replaced without a gap.

Method: two network namespaces with a cable; the module runs in one of them, with the rules of the kernel, and clients
connect from two addresses of the other one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = "ansible_collections.understudy.broker.plugins.modules"
SERVER, FRIEND, STRANGER = "10.99.0.1", "10.99.0.2", "10.99.0.3"
PORT = 61616
SERVE = f"""
import socket
listener = socket.create_server(("0.0.0.0", {PORT}))
print("listening", flush=True)
while True:
    listener.accept()[0].close()
"""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1, source_address=(sys.argv[3], 0)).close()
except TimeoutError:
    print("silent")
else:
    print("answering")
"""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None or shutil.which("ip") is None,
    reason="needs root, nft and ip for network namespaces",
)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    return done.stdout


class Namespaces:
    """A server and its clients."""

    def __init__(self, directory: Path) -> None:
        self.server, self.clients = (f"pf{os.getpid()}{each}" for each in "sc")
        self.path = directory / "a1.nft"
        self._arguments = directory / "arguments.json"

    def inside(self, namespace: str, *command: str) -> str:
        return run("ip", "netns", "exec", namespace, *command)

    def module(self, module: str, *, check: bool = False, **arguments: object) -> dict[str, object]:
        """Run a module in the namespace of the server."""
        given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}
        self._arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": given}))
        command = (sys.executable, "-m", f"{MODULE}.{module}", str(self._arguments))
        done = subprocess.run(
            ["ip", "netns", "exec", self.server, *command], capture_output=True, text=True, check=False, timeout=60
        )
        result: dict[str, object] = json.loads(done.stdout)
        return result

    def guard(self, *sources: str, check: bool = False, **more: object) -> dict[str, object]:
        ports = [{"port": PORT, "sources": list(sources)}]
        return self.module("packet_filter", check=check, **{"ports": ports, **self.place, **more})

    def remove(self, *, check: bool = False) -> dict[str, object]:
        return self.module("packet_filter", check=check, state="absent", **self.place)

    @property
    def place(self) -> dict[str, object]:
        return {"name": "packet_filter", "path": str(self.path)}

    def connect(self, source: str) -> str:
        namespace = self.server if source == SERVER else self.clients
        return self.inside(namespace, sys.executable, "-c", CONNECT, SERVER, str(PORT), source).strip()


@pytest.fixture
def namespaces(tmp_path: Path) -> Iterator[Namespaces]:
    made = Namespaces(tmp_path)
    with contextlib.ExitStack() as stack:
        for name in (made.server, made.clients):
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "delete", name)
        run("ip", "link", "add", "cable", "netns", made.server, "type", "veth", "peer", "cable", "netns", made.clients)
        for name, addresses in ((made.server, [SERVER]), (made.clients, [FRIEND, STRANGER])):
            for address in addresses:
                made.inside(name, "ip", "address", "add", f"{address}/24", "dev", "cable")
            for link in ("lo", "cable"):
                made.inside(name, "ip", "link", "set", link, "up")
        server = subprocess.Popen(
            ["ip", "netns", "exec", made.server, sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True
        )
        stack.callback(server.wait, 10)
        stack.callback(server.terminate)
        assert server.stdout is not None
        stack.callback(server.stdout.close)
        assert server.stdout.readline() == "listening\n"
        yield made


def test_only_the_given_sources_are_admitted(namespaces: Namespaces) -> None:
    assert [namespaces.connect(each) for each in (FRIEND, STRANGER)] == ["answering", "answering"]
    tried = namespaces.guard(FRIEND, check=True)
    assert tried["changed"]
    assert not namespaces.path.exists()
    assert namespaces.connect(STRANGER) == "answering"
    assert namespaces.guard(FRIEND)["changed"]
    assert [namespaces.connect(each) for each in (FRIEND, STRANGER, SERVER)] == ["answering", "silent", "answering"]
    assert not namespaces.guard(FRIEND)["changed"], "a second run"
    assert not namespaces.guard(FRIEND, check=True)["changed"]


def test_the_rules_are_replaced_and_come_back_from_their_file(namespaces: Namespaces) -> None:
    namespaces.guard(FRIEND)
    moved = namespaces.guard(STRANGER, f"{SERVER}/32", "fd00::1", "fd00::2")
    assert moved["changed"]
    assert [namespaces.connect(each) for each in (FRIEND, STRANGER)] == ["silent", "answering"]
    difference = moved["diff"]
    assert isinstance(difference, dict)
    assert f"saddr {FRIEND} accept" in difference["before"]
    assert f"{{ {SERVER}, {STRANGER} }} accept" in difference["after"]
    assert not namespaces.guard(STRANGER, f"{SERVER}/32", "fd00::1", "fd00::2")["changed"]
    namespaces.inside(namespaces.server, "nft", "flush", "ruleset")
    assert namespaces.connect(FRIEND) == "answering"
    namespaces.inside(namespaces.server, "nft", "--file", str(namespaces.path))
    assert namespaces.connect(FRIEND) == "silent"


def test_a_change_by_hand_is_found_and_undone(namespaces: Namespaces) -> None:
    namespaces.guard(FRIEND)
    table = ("inet", "packet_filter", "input")
    namespaces.inside(namespaces.server, "nft", "insert", "rule", *table, "ip", "saddr", STRANGER, "accept")
    assert namespaces.connect(STRANGER) == "answering"
    assert namespaces.guard(FRIEND)["changed"]
    assert namespaces.connect(STRANGER) == "silent"


def test_ports_of_a_running_broker_keep_their_rules(namespaces: Namespaces) -> None:
    namespaces.guard(FRIEND)
    other = [{"port": 5000, "sources": [FRIEND]}]
    assert namespaces.guard(ports=other, replace=False)["changed"]
    assert namespaces.connect(STRANGER) == "silent"
    assert not namespaces.guard(ports=other, replace=False)["changed"]
    assert namespaces.guard(ports=other)["changed"]
    assert namespaces.connect(STRANGER) == "answering"


def test_the_table_is_removed_with_its_file(namespaces: Namespaces) -> None:
    namespaces.guard(FRIEND)
    assert namespaces.remove(check=True)["changed"]
    assert namespaces.connect(STRANGER) == "silent"
    assert namespaces.remove()["changed"]
    assert namespaces.connect(STRANGER) == "answering"
    assert not namespaces.path.exists()
    assert not namespaces.remove()["changed"]


def test_a_source_that_nftables_cannot_take_changes_nothing(namespaces: Namespaces) -> None:
    namespaces.guard(FRIEND)
    former = namespaces.path.read_text()
    refused = namespaces.guard("office")
    assert refused["failed"]
    assert "office" in str(refused["msg"])
    assert namespaces.path.read_text() == former
    assert namespaces.connect(STRANGER) == "silent"


def test_the_way_to_an_endpoint_is_tried(namespaces: Namespaces) -> None:
    """To a listener of the same host, to an address without a listener, and to one that no host has."""
    endpoints = [
        {"name": "own", "address": SERVER, "port": PORT},
        {"name": "closed", "address": FRIEND, "port": 1},
        {"name": "absent", "address": "10.99.0.77", "port": 1},
        {"name": "unnamed", "address": "no.such.host.invalid", "port": 1},
    ]
    found = namespaces.module("endpoints_info", endpoints=endpoints, timeout_s=1)
    assert found["answering"] == [f"own {SERVER}:{PORT}"]
    assert found["refused"] == [f"closed {FRIEND}:1"]
    silent = found["silent"]
    assert isinstance(silent, list)
    assert [each.split(" (")[0] for each in silent] == ["absent 10.99.0.77:1", "unnamed no.such.host.invalid:1"]
