"""Probes of the network check: a TCP connection, the ping command, and HTTP requests (artemis-ha s. 3.6).

An address is reachable if its port 7 accepts or refuses a TCP connection, which is how Java tests it without root, or
if the ping command succeeds. With a ping command of the configuration only the command counts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Coroutine
from typing import Final

from understudy.config.high_availability import NetworkCheckConfiguration
from understudy.dataclass import dataclass
from understudy.ha.life.network_check import (
    PING6_COMMAND,
    PING_COMMAND,
    NetworkCheck,
    NetworkCheckOptions,
    Prober,
    Reach,
    listed,
)
from understudy.ports import Timers
from understudy.texts import masked_url

log = logging.getLogger(__name__)

_ECHO_PORT: Final = 7
#: Time that a ping command may take beyond its own limit before it is killed.
_GRACE_MS: Final = 1_000
_ARGUMENT: Final = re.compile(r"%(?:(\d)\$)?([ds%])")


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Settings of the probes."""

    timeout_ms: int = 1_000
    """Element network-check-timeout, in ms."""
    interface: str = ""
    """Element network-check-NIC; empty: any interface."""
    ping_command: str = PING_COMMAND
    ping6_command: str = PING6_COMMAND

    @property
    def only_ping(self) -> bool:
        """Whether a ping command was configured."""
        return (self.ping_command, self.ping6_command) != (PING_COMMAND, PING6_COMMAND)


class NetworkProber:
    """Implements ``ha.life.network_check.Prober`` on a loop; every probe ends within its time limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: ProbeOptions) -> None:
        self._loop = loop
        self._options = options
        self._tasks: set[asyncio.Task[None]] = set()

    def address(self, host: str, done: Callable[[Reach], None]) -> None:
        """Probe a host name or address."""
        self._start(self._probe_host(host), host, done)

    def url(self, url: str, done: Callable[[Reach], None]) -> None:
        """Fetch a URL; a status from 400 on is no answer."""
        self._start(self._fetch(url), url, done)

    def _start(self, probe: Coroutine[object, object, Reach], target: str, done: Callable[[Reach], None]) -> None:
        task = self._loop.create_task(self._run(probe, target, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, probe: Coroutine[object, object, Reach], target: str, done: Callable[[Reach], None]) -> None:
        reach = Reach.SILENT
        try:
            reach = await probe
        except Exception as error:  # a target that cannot be probed does not answer
            log.debug("network check", extra={"target": target, "error": str(error)})
        done(reach)

    async def _probe_host(self, host: str) -> Reach:
        if host.startswith("-"):
            raise ValueError(f"{host!r} is no host")
        async with asyncio.timeout(self._options.timeout_ms / 1000):
            found = await self._loop.getaddrinfo(host, _ECHO_PORT, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        if ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
            return Reach.LOOPBACK
        if not self._options.only_ping and await self._connects(family, address):
            return Reach.ANSWERED
        command = self._options.ping6_command if family == socket.AF_INET6 else self._options.ping_command
        return Reach.ANSWERED if await self._ping(command, str(address[0])) else Reach.SILENT

    async def _connects(self, family: int, address: tuple[object, ...]) -> bool:
        with socket.socket(family, socket.SOCK_STREAM) as probing:
            probing.setblocking(False)
            try:
                if self._options.interface:
                    name = self._options.interface.encode() + b"\0"
                    probing.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name)
                async with asyncio.timeout(self._options.timeout_ms / 1000):
                    await self._loop.sock_connect(probing, address)
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            return True

    async def _ping(self, command: str, address: str) -> bool:
        seconds = max(1, self._options.timeout_ms // 1000)
        process = await asyncio.create_subprocess_exec(
            *ping_arguments(command, seconds, address),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(seconds + _GRACE_MS / 1000):
                return await process.wait() == 0
        except TimeoutError:
            process.kill()
            await process.wait()
            return False

    async def _fetch(self, url: str) -> Reach:
        import urllib.request  # a node without the check does not load it

        if not url.lower().startswith(("http://", "https://")):
            raise ValueError(f"{masked_url(url)!r} is no http or https URL")

        def fetch() -> Reach:
            # the scheme of the URL was checked when the configuration was read
            with urllib.request.urlopen(url, timeout=self._options.timeout_ms / 1000):
                return Reach.ANSWERED

        return await self._loop.run_in_executor(None, fetch)


def ping_arguments(command: str, seconds: int, address: str) -> list[str]:
    """The arguments of a ping command: split at blanks, then ``%d`` and ``%1$d`` are the seconds, ``%s`` and ``%2$s``
    the address, as in Java's format strings.
    """

    def value(match: re.Match[str]) -> str:
        if match[2] == "%":
            return "%"
        return str(seconds) if match[2] == "d" else address

    return [_ARGUMENT.sub(value, part) for part in command.split(" ") if part]


def make_network_check(
    configuration: NetworkCheckConfiguration, make_prober: Callable[[ProbeOptions], Prober] | None, timers: Timers
) -> NetworkCheck | None:
    """The network check of a node; None without targets.

    Args:
        make_prober: Makes the prober by its options; None: there is no network to check.
    """
    options = NetworkCheckOptions(
        tuple(listed(configuration.network_check_list)),
        tuple(listed(configuration.network_check_url_list)),
        configuration.network_check_period_ms,
    )
    if make_prober is None or not (options.addresses or options.urls):
        return None
    prober = make_prober(
        ProbeOptions(
            configuration.network_check_timeout_ms,
            configuration.network_check_nic,
            configuration.network_check_ping_command,
            configuration.network_check_ping6_command,
        )
    )
    return NetworkCheck(options, prober, timers)
