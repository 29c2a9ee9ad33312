"""Hosts in network namespaces of this machine, joined by a router that can drop the packets between any two of them.

Needs root, iproute2 and nft. Each host has one interface, ``eth0``, with an address of its own; the test is on the
host ``OUTSIDE``. Packets of management (``MANAGEMENT_PORT``) are never dropped: a node that is cut off still answers
the test.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

#: Name of the host that the test and its clients are on.
OUTSIDE: Final = "outside"
#: Port of HTTP management of every node on a host of its own.
MANAGEMENT_PORT: Final = 8161

_TABLE: Final = f"""
table ip cuts {{
  set pairs {{ type ipv4_addr . ipv4_addr; }}
  set isolated {{ type ipv4_addr; }}
  chain forward {{
    type filter hook forward priority 0;
    tcp dport {MANAGEMENT_PORT} accept
    tcp sport {MANAGEMENT_PORT} accept
    ip saddr . ip daddr @pairs drop
    ip saddr @isolated drop
    ip daddr @isolated drop
  }}
  chain input {{
    type filter hook input priority 0;
    ip saddr @isolated drop
  }}
}}
"""
_numbers = itertools.count()


def why_not() -> str:
    """Why there are no network namespaces here; empty if there are."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for command in ("ip", "nft"):
        if shutil.which(command) is None:
            return f"the command {command} is not installed"
    name = f"us-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=30, check=False)
    if tried.returncode:
        return f"no network namespaces: {tried.stderr.strip()}"
    try:
        ruled = subprocess.run(
            ["ip", "netns", "exec", name, "nft", "-f", "-"],
            input=_TABLE, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        return f"no nftables in network namespaces: {ruled.stderr.strip()}" if ruled.returncode else ""
    finally:
        _run("ip", "netns", "del", name)


def _run(*command: str, text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """A router and the hosts around it; ``close`` removes all of it."""

    def __init__(self, *hosts: str) -> None:
        number = next(_numbers)
        self._prefix = f"us{os.getpid()}n{number}"
        # one of 2**14 ranges of 64 addresses, so that tests of several processes seldom meet
        block = (os.getpid() * 7 + number) % 2**14
        self._base = (10 << 24) | (64 << 16) | block << 6
        self._places: dict[str, int] = {}
        self._made: list[str] = []
        self._hub = f"{self._prefix}-hub"
        try:
            self._namespace(self._hub)
            _run("ip", "netns", "exec", self._hub, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            _run("ip", "netns", "exec", self._hub, "nft", "-f", "-", text=_TABLE)
            for host in (OUTSIDE, *hosts):
                self._connect(host)
        except BaseException:
            self.close()
            raise

    def _namespace(self, name: str) -> None:
        _run("ip", "netns", "add", name)
        self._made.append(name)
        _run("ip", "-n", name, "link", "set", "lo", "up")

    def _connect(self, host: str) -> None:
        """Two addresses of a range of four: the router has the first one."""
        place = self._places[host] = len(self._places)
        assert place < 16, "a network has at most 15 hosts"
        inside, router = f"{self.address(host)}/30", _text(self._base + 4 * place + 1)
        port = f"p{place}"
        if host == OUTSIDE:
            # the namespace of this process, named by its number
            cable = self._prefix
            _run("ip", "-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", cable, "netns",
                 str(os.getpid()))  # fmt: skip
            at: tuple[str, ...] = ("ip",)
            route = f"{_text(self._base)}/26"
        else:
            cable, namespace = "eth0", self._name(host)
            self._namespace(namespace)
            _run("ip", "-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", cable, "netns", namespace)
            at = ("ip", "-n", namespace)
            route = "default"
        _run("ip", "-n", self._hub, "address", "add", f"{router}/30", "dev", port)
        _run("ip", "-n", self._hub, "link", "set", port, "up")
        _run(*at, "address", "add", inside, "dev", cable)
        _run(*at, "link", "set", cable, "up")
        _run(*at, "route", "add", route, "via", router)

    def _name(self, host: str) -> str:
        return f"{self._prefix}-{host}"

    def address(self, host: str) -> str:
        """IPv4 address of a host."""
        return _text(self._base + 4 * self._places[host] + 2)

    def router(self, host: str) -> str:
        """Address of the router on the cable of a host; it does not answer a host that is isolated."""
        return _text(self._base + 4 * self._places[host] + 1)

    def command(self, host: str) -> tuple[str, ...]:
        """Beginning of a command line that runs the rest of it on the host."""
        return () if host == OUTSIDE else ("ip", "netns", "exec", self._name(host))

    def cut(self, source: str, target: str) -> None:
        """Drop every packet from one host to another; those in the other direction still arrive."""
        self._rules(f"add element ip cuts pairs {{ {self.address(source)} . {self.address(target)} }}")

    def part(self, one: str, other: str) -> None:
        """Drop every packet between two hosts."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, host: str) -> None:
        """Drop every packet from and to a host."""
        self._rules(f"add element ip cuts isolated {{ {self.address(host)} }}")

    def heal(self) -> None:
        """Drop nothing any more."""
        self._rules("flush set ip cuts pairs\nflush set ip cuts isolated")

    def _rules(self, text: str) -> None:
        _run("ip", "netns", "exec", self._hub, "nft", "-f", "-", text=text)

    def close(self) -> None:
        """Remove the namespaces; the processes on the hosts have to be ended before."""
        if Path(f"/sys/class/net/{self._prefix}").exists():
            _run("ip", "link", "del", self._prefix)
        while self._made:
            _run("ip", "netns", "del", self._made.pop())


def _text(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))
