"""Run one suite against a fresh node or RabbitMQ, in a network namespace in which nothing else runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.targets import RabbitMq
from interop.suites091.definitions import Suite
from interop.suites091.preparing import directory_of
from interop.suites091.results import Outcome, go_outcomes, junit_outcomes
from support import forked
from support.processes import COMMAND, TOKEN, Node

USER = PASSWORD = "guest"
_PORT = 5672
BROKERS = ("understudy", "rabbitmq")
"""Brokers that a suite can run against, the default one first."""

_XML = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>suites</name>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <acceptors>
      <acceptor name="amqp">tcp://127.0.0.1:5672?protocols=AMQP091;virtualHosts=test</acceptor>
      <acceptor name="amqps">{tls}</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">
        <permission type="send" roles="amq"/>
        <permission type="consume" roles="amq"/>
        <permission type="browse" roles="amq"/>
        <permission type="createAddress" roles="amq"/>
        <permission type="deleteAddress" roles="amq"/>
        <permission type="createDurableQueue" roles="amq"/>
        <permission type="createNonDurableQueue" roles="amq"/>
        <permission type="deleteDurableQueue" roles="amq"/>
        <permission type="deleteNonDurableQueue" roles="amq"/>
      </security-setting>
    </security-settings>
  </core>
</configuration>
"""
_TLS = (
    "tcp://127.0.0.1:5671?protocols=AMQP091;sslEnabled=true;keyStorePath={folder}/server.pem;"
    "trustStorePath={folder}/authority.pem;wantClientAuth=true"
)


@contextmanager
def _node(scratch: Path) -> Iterator[dict[str, str]]:
    """A node on the port that the suites use. Yields variables that say where its management is."""
    directory = scratch / "node"
    shutil.rmtree(directory, ignore_errors=True)
    node = Node(directory, "primary", _PORT)
    node.config.parent.mkdir(parents=True)
    node.config.write_text(_XML.format(store=directory / "store", tls=_TLS.format(folder=scratch / "tls")))
    hashed = forked.run(
        [str(COMMAND), "user", "hash", USER], input=f"{PASSWORD}\n", capture_output=True, text=True, check=True
    ).stdout
    (node.config.parent / "artemis-users.properties").write_text(hashed)
    (node.config.parent / "artemis-roles.properties").write_text(f"amq = {USER}\n")
    try:
        node.start().wait_ready("active")
        yield {"UNDERSTUDY_MANAGEMENT": f"http://{node.host}:{node.http_port}", "UNDERSTUDY_TOKEN": TOKEN}
        assert node.process is not None
        if node.process.poll() is not None:
            raise AssertionError(f"the node has ended with {node.process.returncode}: {node.tail()}")
    finally:
        node.end()


@contextmanager
def _rabbitmq(scratch: Path) -> Iterator[dict[str, str]]:
    """RabbitMQ of Debian on the port that the suites use. Raises CannotRun."""
    directory = scratch / "rabbitmq"
    shutil.rmtree(directory, ignore_errors=True)
    broker = RabbitMq(directory)
    broker.port = _PORT
    broker.prepare()
    try:
        broker.start()
        yield {}
    finally:
        broker.stop()


@contextmanager
def _service(command: tuple[str, ...], scratch: Path) -> Iterator[None]:
    """The server that a suite needs, if any."""
    if not command:
        yield
        return
    with (scratch / "service.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=scratch, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def run(suite: Suite, scratch: Path, broker: str) -> dict[str, Outcome]:
    """Run a suite. Returns the outcome of each test by its name; its output is kept in ``SUITE.log``.

    Args:
        suite: The suite, prepared.
        scratch: Directory of everything that a run makes.
        broker: One of ``BROKERS``.
    """
    directory = directory_of(suite, scratch)
    reports = scratch / "reports" / suite.name
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    command = {"pytest": _pytest, "go": _go, "junit": _junit}[suite.kind](suite, directory, reports, scratch)
    log = scratch / f"{suite.name}.log"
    started = _rabbitmq(scratch) if broker == "rabbitmq" else _node(scratch)
    with _service(suite.service, scratch), started as management, log.open("wb") as output:
        try:
            subprocess.run(
                command,
                cwd=directory,
                env={**os.environ, **suite.environment, **management},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=suite.limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {f"the whole suite within {suite.limit_s} s": Outcome.FAILED}
    if suite.kind == "go":
        return go_outcomes(line for line in log.read_text().splitlines() if line.startswith("{"))
    return junit_outcomes(sorted(reports.glob("*.xml")))


def _pytest(suite: Suite, directory: Path, reports: Path, scratch: Path) -> list[str]:
    python = scratch / "environments" / suite.name / "bin" / "python"
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={reports}/report.xml"]
    return [str(python), "-m", "pytest", *options, *suite.arguments]


def _go(suite: Suite, directory: Path, reports: Path, scratch: Path) -> list[str]:
    return ["go", "tool", "test2json", str(directory / "suite.test"), "-test.v=test2json", "-test.timeout=15m"]


def _junit(suite: Suite, directory: Path, reports: Path, scratch: Path) -> list[str]:
    (launcher,) = (directory / "launcher").glob("*.jar")
    parts = ["target/test-classes", "target/classes", (directory / "classpath").read_text().strip(), str(launcher)]
    properties = [each for each in suite.arguments if each.startswith("-D")]
    selected = [each for each in suite.arguments if not each.startswith("-D")]
    main = "org.junit.platform.console.ConsoleLauncher"
    return ["java", *properties, "-cp", ":".join(parts), main, "execute", f"--reports-dir={reports}", *selected]
