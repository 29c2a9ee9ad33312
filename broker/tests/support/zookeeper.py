"""Real ZooKeeper servers of Debian's package on loopback ports, ended by process id."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from support.ports import free_port

#: Only against a test that hangs.
READY_S = 60


def installed() -> bool:
    """Whether the package and a Java runtime are there."""
    return shutil.which("java") is not None and Path("/usr/share/java/zookeeper.jar").exists()


class Ensemble:
    """A few servers; started by ``start``."""

    def __init__(
        self,
        directory: Path,
        servers: int = 3,
        *,
        tick_ms: int = 200,
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
        tls: tuple[Path, Path] | None = None,
    ) -> None:
        """``host``, ``prefix``: address of the host of all servers, and what runs a command there (``Network``).
        ``tls``: PEM files, own chain with key and the authorities of clients, which need a certificate; the servers
        then have a second port, ``secure_ports``.
        """
        self._host, self._prefix = host, prefix
        self._directory = directory
        self.ports = [free_port() for _ in range(servers)]
        self.secure_ports = [free_port() for _ in range(servers)] if tls else []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        peers = [(free_port(), free_port()) for _ in range(servers)]
        for index, port in enumerate(self.ports):
            place = directory / f"zookeeper-{index}"
            place.mkdir(parents=True)
            (place / "myid").write_text(f"{index + 1}\n")
            members = "".join(
                f"server.{number + 1}={host}:{peer}:{election}\n" for number, (peer, election) in enumerate(peers)
            )
            (place / "zoo.cfg").write_text(
                f"tickTime={tick_ms}\ninitLimit=50\nsyncLimit=25\ndataDir={place}\nclientPort={port}\n"
                f"clientPortAddress={host}\nadmin.enableServer=false\nforceSync=no\n4lw.commands.whitelist=*\n"
                + (members if servers > 1 else "")
                + (self._secure(self.secure_ports[index], *tls) if tls else "")
            )
            (place / "log4j.properties").write_text(
                "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
                "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
                "log4j.appender.out.layout.ConversionPattern=%d %p %c %m%n\n"
            )

    def _secure(self, port: int, chain: Path, authorities: Path) -> str:
        return (
            f"secureClientPort={port}\nsecureClientPortAddress={self._host}\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={chain}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={authorities}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
        )

    @property
    def connect_string(self) -> str:
        """Addresses of all servers, with TLS if they have it."""
        return ",".join(f"{self._host}:{port}" for port in self.secure_ports or self.ports)

    def start(self, *indexes: int) -> None:
        """Start these servers, or all, and wait until they answer."""
        chosen = indexes or range(len(self.ports))
        for index in chosen:
            place = self._directory / f"zookeeper-{index}"
            jars = [f"/usr/share/java/{name}.jar" for name in ("zookeeper", "zookeeper-jute", "slf4j-api", "log4j-1.2")]
            jars += [
                "/usr/share/java/slf4j-log4j12.jar",
                "/usr/share/java/netty-all.jar",
                "/usr/share/java/metrics-core.jar",
            ]
            jars += [*glob.glob("/usr/share/java/netty-*.jar"), "/usr/share/java/snappy-java.jar"]
            jars += ["/usr/share/java/commons-cli.jar", "/usr/share/java/audience-annotations.jar"]
            with (place / "log").open("ab") as output:
                self._processes[index] = subprocess.Popen(
                    [
                        *self._prefix,
                        "java",
                        "-Xmx64m",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "-cp",
                        ":".join([str(place), *jars]),
                        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                        str(place / "zoo.cfg"),
                    ],
                    stdout=output,
                    stderr=output,
                    cwd=place,
                )
        for index in chosen:
            self._await(index)

    def _await(self, index: int) -> None:
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            if self._processes[index].poll() is not None:
                break
            if b"Mode:" in self._ask(index):
                return
            time.sleep(0.05)
        log = (self._directory / f"zookeeper-{index}" / "log").read_text()
        raise AssertionError(f"ZooKeeper server {index} does not answer:\n{log[-3000:]}")

    def _ask(self, index: int) -> bytes:
        try:
            with socket.create_connection((self._host, self.ports[index]), 1) as link:
                link.sendall(b"srvr")
                return link.recv(4096)
        except OSError:
            return b""

    def kill(self, *indexes: int) -> None:
        """SIGKILL these servers, or all."""
        for index in indexes or list(self._processes):
            process = self._processes.pop(index, None)
            if process is not None:
                process.kill()
                process.wait()

    def pause(self, *indexes: int) -> None:
        """SIGSTOP."""
        for index in indexes or list(self._processes):
            os.kill(self._processes[index].pid, signal.SIGSTOP)

    def resume(self, *indexes: int) -> None:
        """SIGCONT."""
        for index in indexes or list(self._processes):
            os.kill(self._processes[index].pid, signal.SIGCONT)
