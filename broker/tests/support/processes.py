"""Real broker processes of one shared-store pair, on addresses and ports of their own.

Each node is ``understudy run`` with its own instance directory; both share one store directory.
Waiting is always for what a node itself reports over HTTP or for the end of a process.
"""

from __future__ import annotations

import http.client
import json
import resource
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from support import forked
from support.forked import COMMAND as COMMAND
from support.ports import free_port

#: Only against a test that hangs: how long a node may take to reach the expected state, on a slow machine.
READY_S = 60

TOKEN = "test-token-of-a-scratch-instance"

PAIR_XML = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>{security}</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <cluster-user>cluster</cluster-user>
    <cluster-password>a-secret-of-this-test</cluster-password>
    <connectors>
      <connector name="primary">tcp://127.0.0.1:{primary_port}{connector}</connector>
      <connector name="backup">tcp://127.0.0.1:{backup_port}{connector}</connector>
    </connectors>
    <acceptors>
      <acceptor name="core">tcp://127.0.0.1:{port}{acceptor}</acceptor>
    </acceptors>
    <cluster-connections>
      <cluster-connection name="pair">
        <connector-ref>{role}</connector-ref>
        <static-connectors>
          <connector-ref>{other}</connector-ref>
        </static-connectors>
      </cluster-connection>
    </cluster-connections>
    <ha-policy>
      <shared-store>
        <{role}>
          <failover-on-shutdown>{failover_on_shutdown}</failover-on-shutdown>
        </{role}>
      </shared-store>
    </ha-policy>
    {extra}
  </core>
</configuration>
"""


_SECURITY_SETTINGS = """
    <security-settings>
      <security-setting match="#">
        <permission type="send" roles="everything"/>
        <permission type="consume" roles="everything"/>
        <permission type="createAddress" roles="everything"/>
        <permission type="createDurableQueue" roles="everything"/>
      </security-setting>
    </security-settings>
"""


class Node:
    """One broker process and its instance directory."""

    def __init__(self, directory: Path, role: str, port: int, host: str = "127.0.0.1") -> None:
        self.directory = directory
        self.role = role
        self.port = port
        self.host = host
        """Address of its acceptor and of its management."""
        self.http_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.config = directory / "etc" / "broker.xml"
        self.log = directory / "log"
        self.command: tuple[str, ...] = (str(COMMAND),)
        """The command that runs ``understudy``."""
        self.arguments: tuple[str, ...] = ()
        """More for the command line."""
        self.open_files: tuple[int, int] | None = None
        """Soft and hard RLIMIT_NOFILE of the process; None: those of the tests."""

    def start(self) -> Node:
        assert self.process is None or self.process.poll() is not None, "it runs already"
        token = self.directory / "etc" / "management.token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        arguments = [*self.command, "run", "--config", str(self.config), "--instance", str(self.directory)]
        arguments += ["--http", f"{self.host}:{self.http_port}", "--http-token-file", str(token), *self.arguments]
        if self.host != "127.0.0.1":
            arguments.append("--http-allow-remote")
        with self.log.open("ab") as log:
            self.process = forked.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=self._limit if self.open_files is not None else None,
            )
        return self

    def _limit(self) -> None:
        assert self.open_files is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, self.open_files)

    def kill(self) -> None:
        """SIGKILL: the process is gone without a word."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(READY_S)

    def terminate(self, timeout_s: float = READY_S) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout_s)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def get(self, path: str) -> tuple[int, dict[str, object]]:
        """Status and JSON of a management request; (0, {}) when there is no answer."""
        request = urllib.request.Request(
            f"http://{self.host}:{self.http_port}{path}", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, http.client.HTTPException):
            # it does not listen yet, or ended in the middle of its answer
            return 0, {}

    def facts(self) -> dict[str, object]:
        """GET /api/v1/node."""
        return self.get("/api/v1/node")[1]

    def wait_ready(self, state: str, timeout_s: float = READY_S) -> float:
        """Wait until the node says it is ready in that state; the seconds it took."""
        began = time.monotonic()
        answer: dict[str, object] = {}
        while time.monotonic() - began < timeout_s:
            status, answer = self.get("/health/ready")
            if status == 200 and answer["state"] == state:
                return time.monotonic() - began
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"{self.role} ended with {self.process.returncode}: {self.tail()}")
            time.sleep(0.02)
        raise AssertionError(f"{self.role} is {answer} and not {state} after {timeout_s} s: {self.tail()}")

    def queue(self, name: str) -> dict[str, object] | None:
        """One queue as management shows it; None only when the node says that there is none."""
        facts = self.facts()
        assert facts, f"{self.role} does not answer: {self.tail()}"
        queues = facts.get("queues", [])
        assert isinstance(queues, list)
        return next((queue for queue in queues if queue["name"] == name), None)

    def tail(self) -> str:
        """The end of the node's log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def end(self) -> None:
        """Leave nothing running."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(READY_S)


class Pair:
    """A primary and its backup over one store."""

    def __init__(
        self,
        directory: Path,
        *,
        failover_on_shutdown: bool = False,
        security: bool = False,
        acceptor: str = "",
        connector: str = "",
        extra: str = "",
    ) -> None:
        """``acceptor``, ``connector``: more of their URLs."""
        self.store = directory / "store"
        ports = {"primary": free_port(), "backup": free_port()}
        self.primary = Node(directory / "primary", "primary", ports["primary"])
        self.backup = Node(directory / "backup", "backup", ports["backup"])
        for node, other in ((self.primary, "backup"), (self.backup, "primary")):
            node.config.parent.mkdir(parents=True)
            node.config.write_text(
                PAIR_XML.format(
                    name=f"{node.role}-node",
                    store=self.store,
                    primary_port=ports["primary"],
                    backup_port=ports["backup"],
                    port=node.port,
                    acceptor=acceptor,
                    connector=connector,
                    role=node.role,
                    other=other,
                    failover_on_shutdown=str(failover_on_shutdown).lower(),
                    security=str(security).lower(),
                    extra=extra + (_SECURITY_SETTINGS if security else ""),
                )
            )

            if security:
                hashed = forked.run(
                    [str(COMMAND), "user", "hash", "bob"],
                    input="secret of bob\n",
                    capture_output=True,
                    text=True,
                    check=True,
                )
                (node.config.parent / "artemis-users.properties").write_text(hashed.stdout)
                (node.config.parent / "artemis-roles.properties").write_text("everything = bob\n")

    @property
    def url(self) -> str:
        """URL of the pair for our client and for the Java client alike."""
        return (
            f"(tcp://127.0.0.1:{self.primary.port},tcp://127.0.0.1:{self.backup.port})"
            "?ha=true&reconnectAttempts=-1&initialConnectAttempts=-1&retryInterval=100"
        )

    def start(self) -> Pair:
        """Both up: the primary active, the backup passive, caught up and announced."""
        self.primary.start().wait_ready("active")
        self.backup.start().wait_ready("passive")
        self.wait_announced()
        return self

    def wait_announced(self) -> None:
        """Wait until the active primary has announced the backup to its clients."""
        began = time.monotonic()
        while self.primary.facts().get("peer") is None:
            assert time.monotonic() - began < READY_S, f"the backup was never announced: {self.backup.tail()}"
            time.sleep(0.02)

    def end(self) -> None:
        self.primary.end()
        self.backup.end()


def assert_serves(node: Node) -> None:
    """A client that means well gets its messages through."""
    url = f"tcp://127.0.0.1:{node.port}"
    for command in (("produce", "--count", "5", "--size", "10"), ("consume", "--count", "5")):
        done = forked.run(
            [str(COMMAND), command[0], "--url", url, "--queue", "honest", *command[1:]],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def invoke(node: Node, resource: str, operation: str, *parameters: object) -> tuple[int, object]:
    """Status, and the result or the error's text."""
    body = {"resource": resource, "operation": operation, "parameters": parameters}
    request = urllib.request.Request(
        f"http://{node.host}:{node.http_port}/api/v1/invoke",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)["result"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]
