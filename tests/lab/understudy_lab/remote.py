"""Shell scripts on the hosts of a lab, over one ssh connection for each host that is kept until it breaks."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path

import paramiko

from understudy_lab.errors import LabError
from understudy_lab.network import address, connect

SSH_PORT = 22
CONNECT_TIMEOUT_S = 5.0
TIMEOUT_S = 60.0
READ_PAUSE_S = 0.02
CHUNK = 65536
# A connection that breaks is part of most tests; paramiko would write a traceback for each.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a script ended."""

    code: int
    output: str
    """Standard output and errors, as they came."""


class Remote:
    """Runs scripts as root.

    Args:
        namespace: network namespace of the lab.
        key: private key that the hosts accept.
        known_hosts: file with the keys of the hosts.
    """

    def __init__(self, namespace: str, key: Path, known_hosts: Path) -> None:
        self._namespace = namespace
        self._key = paramiko.Ed25519Key.from_private_key_file(str(key))
        self._known_hosts = known_hosts
        self._clients: dict[int, paramiko.SSHClient] = {}

    def execute(self, number: int, script: str, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Runs a script with bash on a host.

        Raises:
            LabError: the host cannot be reached, or the script did not end within the time.
        """
        try:
            channel = self._channel(number)
            channel.set_combine_stderr(True)
            channel.exec_command(f"exec bash -c {_quoted(script)}")
            return self._outcome(number, channel, script, timeout_s)
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.forget(number)
            raise LabError(f"h{number}: {error or type(error).__name__}: {script.splitlines()[0][:80]}") from error

    def forget(self, number: int) -> None:
        """Closes the connection to a host; the next script makes another."""
        client = self._clients.pop(number, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        """Closes all connections."""
        for number in list(self._clients):
            self.forget(number)

    def _channel(self, number: int) -> paramiko.Channel:
        client = self._clients.get(number)
        transport = client.get_transport() if client else None
        if transport is None or not transport.is_active():
            self.forget(number)
            client = paramiko.SSHClient()
            client.load_host_keys(str(self._known_hosts))
            place = address(number)
            client.connect(
                place,
                SSH_PORT,
                "root",
                pkey=self._key,
                sock=connect(self._namespace, place, SSH_PORT, CONNECT_TIMEOUT_S),
                timeout=CONNECT_TIMEOUT_S,
                look_for_keys=False,
                allow_agent=False,
            )
            self._clients[number] = client
            transport = client.get_transport()
        assert transport is not None
        return transport.open_session(timeout=CONNECT_TIMEOUT_S)

    def _outcome(self, number: int, channel: paramiko.Channel, script: str, timeout_s: float) -> Outcome:
        deadline = time.monotonic() + timeout_s
        said = bytearray()
        channel.settimeout(READ_PAUSE_S)
        while True:
            try:
                data = channel.recv(CHUNK)
                if not data:
                    break
                said += data
            except TimeoutError:
                if time.monotonic() > deadline:
                    self.forget(number)
                    raise LabError(
                        f"h{number}: not done after {timeout_s:g} s: {script.splitlines()[0][:80]}"
                    ) from None
        return Outcome(channel.recv_exit_status(), said.decode(errors="replace"))


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"
