"""The network of a lab: a namespace with a bridge, one virtual cable for each host, and cuts between hosts."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.errors import LabError, run

CLONE_NEWNET = 0x40000000
PREFIX = "10.77.0"
"""Network of every lab; labs do not meet, because each has a namespace of its own."""
CONTROLLER = f"{PREFIX}.1"
"""Address of the bridge: that of programs that run in the namespace without being on a host."""
CUTS = "bridge lab cuts"
"""Table and chain of the dropped directions between hosts."""
FROM_HOSTS, TO_HOSTS = "bridge lab from_hosts", "bridge lab to_hosts"
"""The same between hosts and the controller."""
COUNTERS = "bridge lab sent"
"""Table and chain that count what hosts send to each other."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What one host has sent to another one."""

    packets: int
    bytes: int
    """Bytes with headers of IP, without those of Ethernet."""


def address(number: int) -> str:
    """Address of the host with a number from 1 to 99."""
    return f"{PREFIX}.{10 + number}"


def join(namespace: str) -> None:
    """Moves the calling thread into a network namespace.

    Raises:
        LabError: there is no such namespace, or the process may not enter it.
    """
    try:
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    except OSError as error:
        raise LabError(f"network namespace {namespace}: {error.strerror}; is the lab running?") from error
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
            raise LabError(f"network namespace {namespace}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


def connect(namespace: str, host: str, port: int, timeout_s: float) -> socket.socket:
    """A TCP connection that is made inside the namespace and can be used outside.

    Raises:
        LabError: there is no such namespace.
        OSError: the connection was not made.
    """
    made: list[socket.socket] = []
    failed: list[Exception] = []

    def work() -> None:  # a thread of its own, because a thread that has entered a namespace stays there
        try:
            join(namespace)
            made.append(socket.create_connection((host, port), timeout_s))
        except (OSError, LabError) as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


class Network:
    """The namespace of one lab.

    Args:
        namespace: its name, which ``ip netns`` shows.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    @property
    def exists(self) -> bool:
        return Path("/run/netns", self.namespace).exists()

    def inside(self, *command: str) -> str:
        """Output of a program that runs in the namespace."""
        return run(["ip", "netns", "exec", self.namespace, *command])

    def create(self) -> None:
        """The namespace, its bridge and the empty list of cuts; does nothing if they are there."""
        if self.exists:
            return
        run(["ip", "netns", "add", self.namespace])
        for line in (
            "link set lo up",
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
            "link set br0 up",
            f"address add {CONTROLLER}/24 dev br0",
            "route add 224.0.0.0/4 dev br0",
        ):
            self.inside("ip", *line.split())
        self.inside("nft", "add", "table", "bridge", "lab")
        for chain, hook in ((CUTS, "forward"), (FROM_HOSTS, "input"), (TO_HOSTS, "output")):
            self.inside("nft", "add", "chain", *chain.split(), f"{{ type filter hook {hook} priority 0; }}")

    def plug(self, number: int) -> str:
        """The network card of a host; its name, for the kernel's command line."""
        card, port = f"card{number}", f"port{number}"
        if card not in self.inside("ip", "-o", "link"):
            self.inside("ip", "link", "add", port, "type", "veth", "peer", "name", card)
        self.inside("ip", "link", "set", port, "master", "br0", "up")
        self.inside("ip", "link", "set", card, "up")
        return card

    def cut(self, one: int, other: int) -> None:
        """Drops all packets between two hosts, both ways; connections stay and go on when the cut is healed."""
        for source, target in ((one, other), (other, one)):
            self.cut_one_way(source, target)

    def cut_one_way(self, source: int, target: int) -> None:
        """Drops all packets of one direction."""
        rule = ["iifname", f"port{source}", "oifname", f"port{target}", "drop"]
        self.inside("nft", "add", "rule", *CUTS.split(), *rule)

    def cut_controller(self, number: int) -> None:
        """Drops all packets between a host and the controller."""
        self.inside("nft", "add", "rule", *FROM_HOSTS.split(), "iifname", f"port{number}", "drop")
        self.inside("nft", "add", "rule", *TO_HOSTS.split(), "oifname", f"port{number}", "drop")

    def heal(self) -> None:
        """Ends all cuts."""
        for chain in (CUTS, FROM_HOSTS, TO_HOSTS):
            self.inside("nft", "flush", "chain", *chain.split())

    def count(self, numbers: Iterable[int]) -> None:
        """Begins to count, from zero, what hosts send to each other; the controller's packets are left out."""
        self.inside("nft", "add", "chain", *COUNTERS.split(), "{ type filter hook forward priority -10; }")
        self.inside("nft", "flush", "chain", *COUNTERS.split())
        for source, target in itertools.permutations(numbers, 2):
            ports = ["iifname", f"port{source}", "oifname", f"port{target}"]
            self.inside("nft", "add", "rule", *COUNTERS.split(), *ports, "counter", "comment", f'"{source} {target}"')

    def counted(self) -> dict[tuple[int, int], Sent]:
        """What was counted, by the numbers of sender and receiver."""
        found = {}
        for each in json.loads(self.inside("nft", "--json", "list", "chain", *COUNTERS.split()))["nftables"]:
            if "rule" in each:
                source, target = map(int, each["rule"]["comment"].split())
                (counter,) = (part["counter"] for part in each["rule"]["expr"] if "counter" in part)
                found[source, target] = Sent(counter["packets"], counter["bytes"])
        return found

    def destroy(self) -> None:
        """Removes the namespace with everything in it."""
        if self.exists:
            run(["ip", "netns", "delete", self.namespace])
