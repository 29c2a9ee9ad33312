"""The brokers that are compared: each a process of ours in the foreground, on loopback, with directories of its own.

Settings are each project's own defaults, durability included (every confirmed durable message is on the disk), as far
as they can be run unprivileged on free ports; no broker is tuned. A broker that is not available raises
``CannotRun`` with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from benchmarks.amqp_link import AmqpLink
from benchmarks.core_link import CoreLink, prepared_answers
from benchmarks.load import CannotRun, Link, build_program
from benchmarks.nats_link import NatsLink
from benchmarks.openwire_link import OpenWireLink
from support.ports import free_port
from support.processes import COMMAND, Pair

ARTEMIS_VERSION = "2.44.0"
REPOSITORY = Path(__file__).parents[3]
#: Shared with the interop tests, which fetch the same distribution.
DOWNLOADS = REPOSITORY / ".scratch" / "interop"
#: Sources of earlier commits.
BASELINES = REPOSITORY / ".scratch" / "baselines"
NATS_VERSION = "2.12.15"
NATS_MODULE = "github.com/nats-io/nats-server/v2"
NATS = REPOSITORY / ".scratch" / "nats" / NATS_VERSION / "nats-server"
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
ACTIVEMQ = Path("/usr/share/activemq")
START_SECONDS_MAX = 90


class Broker:
    """One running broker process (with its children)."""

    name = ""
    body_bytes_max: int | None = None
    """Cases with larger bodies are left out; None: there is no such limit."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        """Seconds from the start of the process until it answered a client."""
        self.idle_mib = 0.0

    def prepare(self) -> None:
        """Make what a start needs; not part of the time it takes. Raises CannotRun."""
        self.directory.mkdir(parents=True)

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def link(self) -> Link:
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until a client has a queue. Raises CannotRun."""
        began = time.monotonic()
        with (self.directory / "out.log").open("ab") as out:
            self.process = subprocess.Popen(
                self.command(), stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=self.directory,
                env={**os.environ, **self.environment()}, start_new_session=True,
            )  # fmt: skip
        while True:
            try:
                self.link().declare(["started"])
                break
            except OSError as error:
                if self.process.poll() is not None:
                    raise CannotRun(f"ended with {self.process.returncode}: {self.tail()}") from error
                if time.monotonic() - began > START_SECONDS_MAX:
                    raise CannotRun(f"no answer after {START_SECONDS_MAX} s ({error}): {self.tail()}") from error
                time.sleep(0.005)
        self.started_s = time.monotonic() - began

    def pids(self) -> list[int]:
        """The process and everything below it."""
        assert self.process is not None
        return family(self.process.pid)

    def resident_mib(self) -> float:
        pages = 0
        for pid in self.pids():
            try:
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
        return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024

    def tail(self) -> str:
        log = self.directory / "out.log"
        return log.read_text(errors="replace")[-600:] if log.exists() else "(no output)"

    def stop(self) -> None:
        """End it and all its children."""
        if self.process is None:
            return
        pids = self.pids() if self.process.poll() is None else []
        # from the leaves up, so that parents see their children's end
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in reversed(pids):
                _signal(pid, number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                continue
            pids = [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


#: Compiles the package, and the libraries that a node with management loads; earlier commits run a node elsewhere.
_COMPILE: Final = (
    "import compileall, importlib, importlib.util, aiohttp.web, msgspec, prometheus_client, understudy.cli.main; "
    "new = importlib.util.find_spec('understudy.cli.node'); "
    "importlib.import_module('understudy.cli.node.run' if new else 'understudy.cli.run'); "
    "compileall.compile_dir(understudy.__path__[0], quiet=1)"
)


class Understudy(Broker):
    """This one: a primary whose backup is not running, as every other target runs alone."""

    name = "understudy"

    def __init__(self, directory: Path, kernel: str = "", revision: str = "") -> None:
        """
        Args:
            directory: Directory in which only this broker keeps its files.
            kernel: ``native`` or ``python``; empty: the one that this process has.
            revision: Run the sources of another commit, with the installed dependencies; empty: those of this tree.
        """
        super().__init__(directory)
        self._kernel = kernel
        self._revision = revision

    def prepare(self) -> None:
        super().prepare()
        self._node = Pair(self.directory).primary
        self.port = self._node.port
        # as an installed one is: with its modules compiled, those included that only a running node loads
        checked = subprocess.run(
            [sys.executable, "-c", _COMPILE], env={**os.environ, **self.environment()},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if checked.returncode:
            raise CannotRun(checked.stderr[-400:])

    @property
    def configuration(self) -> Path:
        """The broker.xml, once it is prepared."""
        return self._node.config

    def environment(self) -> dict[str, str]:
        chosen = {"PYTHONPYCACHEPREFIX": str(self.directory / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
        if self._kernel:
            chosen["UNDERSTUDY_KERNEL"] = self._kernel
        if self._revision:
            chosen["PYTHONPATH"] = check_out(self._revision)
        return chosen

    def command(self) -> Sequence[str]:
        node = self._node
        return [
            str(COMMAND), "run", "--config", str(node.config), "--instance", str(node.directory),
            "--http", f"127.0.0.1:{node.http_port}",
        ]  # fmt: skip

    def link(self) -> Link:
        return CoreLink(self.port)


def check_out(revision: str) -> str:
    """The sources of a commit and its native kernel, kept below ``BASELINES`` for the next time.

    Returns:
        ``PYTHONPATH`` of a process that runs them.

    Raises:
        CannotRun: There is no such commit, or its kernel cannot be built.
    """
    place = BASELINES / revision
    sources, kernel = place / "broker" / "src", place / "kernel"
    if not sources.exists():
        place.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(
            ["git", "archive", revision, "broker"], cwd=REPOSITORY, capture_output=True, check=False
        )
        if archive.returncode:
            raise CannotRun(f"git archive {revision}: {archive.stderr.decode(errors='replace').strip()[-300:]}")
        subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    builder = place / "broker" / "kernel" / "build.py"
    if builder.exists() and not kernel.exists():
        # another interface than that of this tree: without its own kernel it would run the Python twin
        wheels = place / "wheels"
        built = subprocess.run(
            [sys.executable, str(builder), "--wheel-dir", str(wheels), "--target-dir", str(place / "target")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if built.returncode:
            raise CannotRun(f"kernel of {revision}: {(built.stdout + built.stderr).strip()[-300:]}")
        for wheel in wheels.glob("*.whl"):
            with ZipFile(wheel) as contents:
                contents.extractall(kernel)
        shutil.rmtree(place / "target")
    return f"{sources}:{kernel}"


class Artemis(Broker):
    """ActiveMQ Artemis as ``artemis create`` makes it, with the journal timing it measures itself."""

    name = "artemis"

    def prepare(self) -> None:
        super().prepare()
        home = artemis_home()
        result = subprocess.run(
            [str(home / "bin" / "artemis"), "create", str(self.directory / "instance"), "--silent", "--user", "bench",
             "--password", "bench", "--allow-anonymous", "--host", "127.0.0.1", "--default-port", str(self.port),
             "--no-web", "--no-amqp-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor", "--no-hornetq-acceptor"],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        if result.returncode:
            raise CannotRun(f"artemis create: {(result.stdout + result.stderr)[-400:]}")
        # beyond this part of the whole disk Artemis grants no credits, however much of it is free for this run
        config = self.configuration
        text = config.read_text()
        config.write_text(re.sub(r"(?<=<max-disk-usage>)\d+", "100", text))

    @property
    def configuration(self) -> Path:
        """The broker.xml, once it is prepared."""
        return self.directory / "instance" / "etc" / "broker.xml"

    def command(self) -> Sequence[str]:
        return [str(self.directory / "instance" / "bin" / "artemis"), "run"]

    def link(self) -> Link:
        return CoreLink(self.port)


def artemis_home() -> Path:
    """The distribution, fetched with Maven if need be. Raises CannotRun."""
    if shutil.which("java") is None:
        raise CannotRun("java is not installed")
    name = f"apache-artemis-{ARTEMIS_VERSION}"
    home = DOWNLOADS / name
    if not (home / "bin" / "artemis").exists():
        if shutil.which("mvn") is None:
            raise CannotRun("Maven is not installed")
        DOWNLOADS.mkdir(parents=True, exist_ok=True)
        coordinates = f"org.apache.activemq:apache-artemis:{ARTEMIS_VERSION}:tar.gz:bin"
        result = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={DOWNLOADS}"],
            cwd=Path(__file__).parents[1] / "interop", capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        if result.returncode:
            raise CannotRun(f"Maven does not get {coordinates}: {(result.stdout + result.stderr)[-300:]}")
        archive = DOWNLOADS / f"{name}-bin.tar.gz"
        # Python 3.11.2 has no filters for extraction; tar leaves out absolute names and parents as well
        subprocess.run(["tar", "-xzf", archive, "-C", DOWNLOADS], check=True)
        archive.unlink()
    return home


class Floor(Broker):
    """No broker: the least that one has to do (``driver/floor.c``), which shows what this machine allows."""

    name = "floor"
    # it takes no large messages
    body_bytes_max = 90_000

    def prepare(self) -> None:
        super().prepare()
        self._program = build_program("floor", self.directory)
        (self.directory / "answers").write_bytes(prepared_answers())

    def command(self) -> Sequence[str]:
        return [str(self._program), str(self.port), str(self.directory / "log"), str(self.directory / "answers")]

    def link(self) -> Link:
        return CoreLink(self.port)


class RabbitMq(Broker):
    """RabbitMQ of Debian, with its own port mapper, so that nothing of it outlives the run."""

    name = "rabbitmq"

    def prepare(self) -> None:
        if not RABBITMQ.exists():
            raise CannotRun("the Debian package rabbitmq-server is not installed")
        super().prepare()
        self._mapper_port, self._node_port = free_port(), free_port()
        (self.directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\n")
        (self.directory / "plugins").write_text("[].\n")

    def environment(self) -> dict[str, str]:
        directory = self.directory
        return {
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def command(self) -> Sequence[str]:
        return [str(RABBITMQ)]

    def start(self) -> None:
        with (self.directory / "epmd.log").open("ab") as out:
            self._mapper = subprocess.Popen(
                ["epmd", "-port", str(self._mapper_port), "-address", "127.0.0.1"], stdout=out, stderr=out
            )
        super().start()

    def stop(self) -> None:
        super().stop()
        if hasattr(self, "_mapper"):
            self._mapper.kill()
            self._mapper.wait(10)

    def link(self) -> Link:
        return AmqpLink(self.port, "classic")


class ActiveMq(Broker):
    """ActiveMQ classic of Debian: one OpenWire connector, KahaDB, which syncs every durable message."""

    name = "activemq"

    def prepare(self) -> None:
        if not (ACTIVEMQ / "bin" / "activemq.jar").exists():
            raise CannotRun("the Debian package activemq is not installed")
        if shutil.which("java") is None:
            raise CannotRun("java is not installed")
        super().prepare()
        (self.directory / "activemq.xml").write_text(
            f"""<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="bench"
    dataDirectory="{self.directory}/data">
    <persistenceAdapter><kahaDB directory="{self.directory}/data/kahadb"/></persistenceAdapter>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://127.0.0.1:{self.port}"/>
    </transportConnectors>
  </broker>
</beans>
"""
        )

    def command(self) -> Sequence[str]:
        opened = (
            "java.base/java.security", "java.base/java.net", "java.base/java.lang", "java.base/java.util",
            "java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic",
        )  # fmt: skip
        return [
            "java", "-Xms512M", "-Xmx2G", *(f"--add-opens={package}=ALL-UNNAMED" for package in opened),
            "-Dorg.apache.activemq.UseDedicatedTaskRunner=true", f"-Dactivemq.home={ACTIVEMQ}",
            f"-Dactivemq.base={self.directory}", f"-Dactivemq.conf={self.directory}",
            f"-Dactivemq.data={self.directory}/data",
            "-jar", str(ACTIVEMQ / "bin" / "activemq.jar"), "start", f"xbean:file:{self.directory}/activemq.xml",
        ]  # fmt: skip

    def link(self) -> Link:
        return OpenWireLink(self.port)


class Nats(Broker):
    """NATS with JetStream, which confirms after a sync only with ``sync_interval: always``; else its defaults."""

    name = "nats"

    def prepare(self) -> None:
        server = nats_server()
        super().prepare()
        self._server = server
        (self.directory / "nats.conf").write_text(
            f"listen: 127.0.0.1:{self.port}\n"
            # the default is 1 MiB, and 64 MiB the most that is recommended
            "max_payload: 64MB\n"
            f'jetstream {{ store_dir: "{self.directory}/data", sync_interval: always }}\n'
        )

    def command(self) -> Sequence[str]:
        return [str(self._server), "-c", str(self.directory / "nats.conf")]

    def link(self) -> Link:
        return NatsLink(self.port)


def nats_server() -> Path:
    """The server, built from its Go module if need be: about two minutes. Raises CannotRun."""
    if NATS.exists():
        return NATS
    if shutil.which("go") is None:
        raise CannotRun(f"Go is not installed, which builds NATS {NATS_VERSION} (1.25 or later)")
    NATS.parent.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        ["go", "install", f"{NATS_MODULE}@v{NATS_VERSION}"],
        env={**os.environ, "GOBIN": str(NATS.parent)}, cwd=NATS.parent, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    if result.returncode:
        raise CannotRun(f"Go does not build NATS {NATS_VERSION}: {result.stderr.strip()[-300:]}")
    return NATS
