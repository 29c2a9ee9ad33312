"""The explicit colocated layout of document 001 (30.6), made by its lines alone on two instances of the preset.

The two hosts are two addresses of the loopback interface, so both have the ports of the document. Only the directories
of the shared store are other ones, below the scratch directory of the test.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from support import forked
from support.document_lines import LINES, Line
from support.members import Traffic, wait_until
from support.ports import free_port
from support.processes import COMMAND, Node
from understudy.cluster.discovery.carriers import Multicast
from understudy.cluster.discovery.sockets import multicast_listener, multicast_sender

PASSWORD: Final = "a password of both hosts, long"
TRANSPORTS: Final = (495, 497, 501, 503, 508, 510, 515, 517, 521, 526, 528, 533)
#: The numbers of the lines of each host, by the kind of the store.
LAYOUTS: Final = {
    "shared store": (
        (391, 393, 400, 411, 417, *range(434, 450, 2), *TRANSPORTS),
        (391, 393, 400, 411, 417, *range(452, 468, 2), *TRANSPORTS),
    ),
    "replication": (
        (391, 393, 404, 411, 421, *range(472, 480, 2), *TRANSPORTS),
        (391, 393, 406, 411, 423, *range(482, 490, 2), *TRANSPORTS),
    ),
}


def multicast_works() -> bool:
    """Whether a datagram to a group comes back on the loopback interface."""
    carrier = Multicast("230.0.0.4", free_port(), "127.0.0.1")
    try:
        with multicast_listener(carrier) as listening, multicast_sender(carrier) as sending:
            sending.sendto(b"x", (carrier.address, carrier.port))
            listening.settimeout(2)
            return listening.recv(1) == b"x"
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not multicast_works(), reason="no multicast on the loopback interface")


class Host:
    """An instance of the preset on an address of its own."""

    def __init__(self, directory: Path, address: str, multicast_port: int) -> None:
        self.directory = directory
        self.node = Node(directory, "primary", 61616, address)
        secret = directory.parent / "cluster-password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o600)
        options = ["--preset", "full-ha", "--host", address, "--cluster-password-file", secret, "--allow-anonymous"]
        subprocess.run([COMMAND, "create", directory, *options], check=True, stdout=subprocess.DEVNULL)
        # other tests on this machine have other groups
        config = self.node.config
        config.write_text(config.read_text().replace("45688", str(multicast_port)))

    def carry_out(self, *lines: str) -> str:
        """The output of lines, one after the other, on the running instance."""
        script = self.directory.parent / f"{self.directory.name}.cli"
        script.write_text("\n".join(lines) + "\n")
        command = [COMMAND, "cli", "--instance", self.directory, "--file", script]
        done = forked.run([str(each) for each in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr + self.node.tail()
        return str(done.stdout)

    def states(self) -> list[str]:
        """States of the servers of the process; the main one first."""
        found: Any = self.node.get("/api/v1/servers")[1].get("servers", [])
        return [each["state"] for each in found]

    def is_protected(self) -> bool:
        """Whether the backup of the main server could take over."""
        return self.node.get("/health/ready?protected=true")[0] == 200


def lines_for(numbers: tuple[int, ...], store: Path) -> list[str]:
    """Lines of the document, with the directory of the shared store in the place of that of the document."""
    numbered = {line.number: line for line in LINES}
    return [str(_moved(numbered[number], store).parsed()) for number in numbers]


def _moved(line: Line, store: Path) -> Line:
    return line._replace(parameters=line.parameters.replace("/path/to/shared", str(store)))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    network = f"127.{os.getpid() % 250 + 2}.{os.getpid() // 250 % 250 + 1}"
    port = free_port()
    made = [Host(tmp_path / name, f"{network}.{number}", port) for number, name in enumerate(("one", "two"), 2)]
    yield made
    for each in made:
        each.node.end()


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_lines_of_the_document_make_two_hosts_that_serve_for_each_other(
    hosts: list[Host], tmp_path: Path, kind: str
) -> None:
    for host in hosts:
        host.node.start()
    for host, numbers in zip(hosts, LAYOUTS[kind], strict=True):
        host.node.wait_ready("active")
        output = host.carry_out(*lines_for(numbers, tmp_path / "shared"))
        assert output.count('"outcome" => "success"') == len(numbers)
        # the other host is not there yet, so no node would serve meanwhile
        host.carry_out(":reload(force=true)")
    wait_pairs(hosts)
    for number, host in enumerate(hosts):
        other = hosts[1 - number]
        url = f"(tcp://{host.node.host}:5445)?ha=true&reconnectAttempts=-1&retryInterval=100&initialConnectAttempts=-1"
        (tmp_path / str(number)).mkdir()
        traffic = Traffic(tmp_path / str(number), url, url, 3000)
        wait_until(lambda traffic=traffic: traffic.confirmed() > 500, "no traffic", host.node)  # type: ignore[misc]
        host.node.kill()
        wait_until(lambda other=other: other.states() == ["active", "active"], "no take-over", other.node)  # type: ignore[misc]
        traffic.finish()
        host.node.start()
        wait_pairs(hosts)


def wait_pairs(hosts: list[Host]) -> None:
    """Wait until each main server is active, and has a backup on the other host that could take over."""
    for host in hosts:
        wait_until(lambda host=host: host.states() == ["active", "passive"], "no pair", host.node)  # type: ignore[misc]
    for host in hosts:
        wait_until(host.is_protected, "no protection", host.node)
