"""Real Artemis brokers from the distribution: one node, or a shared-store pair, on loopback ports of their own.

``ArtemisNode`` has the names of ``processes.Node``, so a test can take either. An instance is made by
``artemis create``, its broker.xml is then replaced. Waiting is for what the broker itself logs.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

from support.ports import free_port
from support.processes import PAIR_XML

#: Small enough for several at a time.
_JAVA_ARGS = "-Xms64m -Xmx512m -XX:+UseSerialGC -Dlog4j2.disableJmx=true"
_JAVA_ARGS += " --add-opens java.base/jdk.internal.misc=ALL-UNNAMED"
_STATES = {"active": ("AMQ221007", "AMQ221010"), "passive": ("AMQ221031",)}


def _without_disk_limit(config: str) -> str:
    """A broker.xml whose broker serves however full the disk of this machine is, unless it names a limit itself.

    Beyond ``max-disk-usage`` (90 % of the whole disk where nothing is said) Artemis grants no credits and pages every
    address, so that the same program has other results.
    """
    if "<max-disk-usage>" in config:
        return config
    return re.sub(r"(<core\b[^>]*>)", r"\1\n    <max-disk-usage>100</max-disk-usage>", config, count=1)


class ArtemisNode:
    """One Artemis process and its instance directory."""

    def __init__(self, command: Path, directory: Path, port: int, config: str, *, security: bool = False) -> None:
        self.directory = directory
        self.prefix: tuple[str, ...] = ()
        """Beginning of a command line that runs it on the host of the node, see ``networks.Network.command``."""
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self.log = directory / "run.log"
        directory.parent.mkdir(parents=True, exist_ok=True)
        login = ["--user", "bob", "--password", "secret of bob", "--role", "everything"]
        login.append("--require-login" if security else "--allow-anonymous")
        subprocess.run(
            [
                str(command),
                "create",
                "--silent",
                *login,
                "--no-autotune",
                "--no-web",
                "--host",
                "127.0.0.1",
                str(directory),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        (directory / "etc" / "broker.xml").write_text(_without_disk_limit(config))

    def start(self) -> ArtemisNode:
        assert self.process is None or self.process.poll() is not None, "it runs already"
        environment = {**os.environ, "JAVA_ARGS": _JAVA_ARGS}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*self.prefix, str(self.directory / "bin" / "artemis"), "run"], stdout=log, stderr=log, env=environment
            )
        return self

    def wait_ready(self, state: str, timeout_s: float = 120) -> float:
        """Wait until the node logs that it is in that state; the seconds it took."""
        began = time.monotonic()
        while time.monotonic() - began < timeout_s:
            said = self.log.read_text(errors="replace")
            if any(code in said for code in _STATES[state]):
                return time.monotonic() - began
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"Artemis ended with {self.process.returncode}: {self.tail()}")
            time.sleep(0.05)
        raise AssertionError(f"Artemis is not {state} after {timeout_s} s: {self.tail()}")

    def kill(self) -> None:
        """SIGKILL: the start script has become the Java process by exec."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def terminate(self, timeout_s: float = 60) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout_s)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


class ArtemisPair:
    """A primary and its backup over one store; the names of ``processes.Pair``."""

    def __init__(self, command: Path, directory: Path) -> None:
        ports = {"primary": free_port(), "backup": free_port()}
        nodes = {
            role: ArtemisNode(
                command,
                directory / role,
                ports[role],
                PAIR_XML.format(
                    name=f"{role}-node",
                    store=directory / "store",
                    primary_port=ports["primary"],
                    backup_port=ports["backup"],
                    port=ports[role],
                    acceptor="",
                    connector="",
                    role=role,
                    other=other,
                    failover_on_shutdown="false",
                    security="false",
                    extra="<journal-type>NIO</journal-type>",
                ),
            )
            for role, other in (("primary", "backup"), ("backup", "primary"))
        }
        self.primary, self.backup = nodes["primary"], nodes["backup"]

    @property
    def url(self) -> str:
        """URL with both nodes and the parameters that the URL of ``processes.Pair`` has."""
        return (
            f"(tcp://127.0.0.1:{self.primary.port},tcp://127.0.0.1:{self.backup.port})"
            "?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
        )

    def start(self) -> ArtemisPair:
        self.primary.start().wait_ready("active")
        self.backup.start().wait_ready("passive")
        return self

    def end(self) -> None:
        self.primary.end()
        self.backup.end()
