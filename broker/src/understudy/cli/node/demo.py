"""``understudy demo``: a pair of nodes on this machine, clients, a kill and a failback, with a table that follows."""

from __future__ import annotations

import logging
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from understudy.cli.node.instances import create_instance
from understudy.cli.node.status import Place, readiness_of
from understudy.cli.terminal import echo
from understudy.client import sync
from understudy.config import instance_files
from understudy.dataclass import dataclass
from understudy.errors import BrokerError, Unreachable

QUEUE: Final = "demo"
#: Longest wait for a state of a node, on a slow machine.
_STATE_S: Final = 60.0
#: Between two looks at the nodes.
_LOOK_S: Final = 0.05
#: Between two rows of the table.
_ROW_S: Final = 0.5
#: Between two messages.
_SEND_S: Final = 0.002
#: Longest wait of the consumer before it looks whether all messages are received.
_RECEIVE_S: Final = 0.2
_COMMAND: Final = (sys.executable, "-c", "from understudy.cli.main import main; main()")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the directory with the nodes, their logs and their store.")
def demo(keep: bool) -> None:
    """Show a failover on this machine: a pair of nodes, a producer, a consumer, a kill -9 and a failback.

    Everything is in a temporary directory and on free ports of the loopback address, and removed at the end.

    \b
    Example: understudy demo

    Exit codes: 0 no confirmed message was lost; 1 one was lost, or a node did not do its part.
    """
    # the table shows the failovers that the client would warn about
    logging.getLogger("understudy").setLevel(logging.ERROR)
    directory = Path(tempfile.mkdtemp(prefix="understudy-demo-"))
    pair = Pair.made(directory)
    try:
        if not _show(pair):
            raise SystemExit(1)
    finally:
        pair.stop()
        if keep:
            echo(f"The nodes are in {directory}; start them again with `understudy run --instance`.")
        else:
            shutil.rmtree(directory, ignore_errors=True)


class Node:
    """One node in a process."""

    def __init__(self, directory: Path, http: int) -> None:
        """Nothing runs yet."""
        self.directory = directory
        self._http = http
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its log goes to a file beside it."""
        with self.directory.with_suffix(".log").open("ab") as log:
            command = [*_COMMAND, "run", "--instance", str(self.directory), "--http", f"127.0.0.1:{self._http}"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it like a power failure."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it cleanly."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()

    @property
    def state(self) -> str:
        """State of the node: ``-`` if it does not run, ``alone`` if it is active and no other node may take over."""
        try:
            found = readiness_of(Place(f"http://127.0.0.1:{self._http}", ""))
        except (Unreachable, BrokerError):
            return "-"
        return "alone" if found["state"] == "active" and not found["protected"] else str(found["state"])


@dataclass(frozen=True, slots=True)
class Pair:
    """The two nodes and their clients."""

    a: Node
    b: Node
    url: str

    @classmethod
    def made(cls, directory: Path) -> Pair:
        """Write the instances of both nodes."""
        ports = _free_ports(4)
        password = secrets.token_hex(16)
        for name, own, other in (("a", 0, 1), ("b", 1, 0)):
            options = instance_files.InstanceOptions(
                name=name,
                port=ports[own],
                data=str(directory / "store"),
                role=None,
                pair=instance_files.Pair(name == "b", "127.0.0.1", ports[other], password),
            )
            create_instance(directory / name, options)
        url = f"(tcp://127.0.0.1:{ports[0]},tcp://127.0.0.1:{ports[1]})?ha=true&reconnectAttempts=-1&retryInterval=50"
        return cls(Node(directory / "a", ports[2]), Node(directory / "b", ports[3]), url)

    def stop(self) -> None:
        """Stop both nodes."""
        self.b.stop()
        self.a.stop()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Traffic:
    """A producer and a consumer on threads of their own, and their counts."""

    def __init__(self, url: str) -> None:
        """Nothing is connected yet."""
        self._url = url
        self._ending = threading.Event()
        self._counted = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._consumer = threading.Thread(target=self._consume, daemon=True)
        self.sent = 0
        """Confirmed messages."""
        self.received: set[int] = set()
        self.twice = 0
        """Messages that were received again."""
        self.longest_s = 0.0
        """Longest send."""
        self.error: BrokerError | None = None

    def start(self) -> None:
        """Connect and begin."""
        self._producer.start()
        self._consumer.start()

    def _produce(self) -> None:
        try:
            with sync.connect(self._url) as connection, connection.session() as session:
                producer = session.producer(QUEUE)
                while not self._ending.is_set():
                    began_s = time.monotonic()
                    producer.send(f"message {self.sent}", properties={"number": self.sent})
                    self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                    self.sent += 1
                    time.sleep(_SEND_S)
        except BrokerError as error:
            self.error = error

    def _consume(self) -> None:
        try:
            with sync.connect(self._url) as connection, connection.session("client") as session:
                consumer = session.consumer(QUEUE)
                while not (self._counted.is_set() and len(self.received) >= self.sent):
                    message = consumer.receive(_RECEIVE_S)
                    if message is None:
                        continue
                    number = int(str(message.properties["number"]))
                    self.twice += number in self.received
                    self.received.add(number)
                    message.ack()
        except BrokerError as error:
            self.error = error

    def end(self) -> None:
        """Send nothing more, and receive the rest.

        The consumer ends only after the producer, whose last send may be confirmed after this call began. Without the
        messages that it waits for, it is given up after a minute.
        """
        self._ending.set()
        self._producer.join(_STATE_S)
        self._counted.set()
        self._consumer.join(_STATE_S)


class Board:
    """The table: a row each half second, and a line for each event."""

    def __init__(self, pair: Pair, traffic: Traffic) -> None:
        """Begin without output."""
        self._pair = pair
        self._traffic = traffic
        self._began_s = time.monotonic()
        self._shown_s = 0.0

    def head(self) -> None:
        """Print the headings."""
        echo(f"{'time':>7}  {'node a':9} {'node b':9} {'confirmed':>9} {'received':>9} {'longest send':>13}")

    def say(self, text: str) -> None:
        """Print an event with the row of that moment."""
        self.row()
        echo(f"{time.monotonic() - self._began_s:6.1f}s  -- {text}")

    def row(self) -> None:
        """Print a row."""
        self._shown_s = time.monotonic()
        traffic = self._traffic
        echo(
            f"{self._shown_s - self._began_s:6.1f}s  {self._pair.a.state:9} {self._pair.b.state:9}"
            f" {traffic.sent:>9,} {len(traffic.received):>9,} {traffic.longest_s * 1000:>10,.0f} ms"
        )

    def until(self, holds: Callable[[], bool], missing: str, *, rows: bool = True) -> None:
        """Wait until something holds, with rows meanwhile. Raises BrokerError: it does not in time."""
        deadline_s = time.monotonic() + _STATE_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise BrokerError(f"{missing} within {_STATE_S:.0f} s")
            if rows and time.monotonic() - self._shown_s > _ROW_S:
                self.row()
            time.sleep(_LOOK_S)

    def watch(self, messages: int) -> None:
        """Show rows until so many further messages were received."""
        wanted = len(self._traffic.received) + messages
        self.until(lambda: len(self._traffic.received) >= wanted, "the messages did not arrive")


def _show(pair: Pair) -> bool:
    """Whether no confirmed message was lost."""
    traffic = Traffic(pair.url)
    board = Board(pair, traffic)
    echo("Two nodes that share a store start: a is the primary, b its backup.")
    pair.a.start()
    pair.b.start()
    board.until(lambda: pair.a.state == "active" and pair.b.state == "passive", "the pair is not complete", rows=False)
    board.head()
    board.say("the pair is complete: a producer and a consumer begin")
    traffic.start()
    board.watch(200)
    before_s, traffic.longest_s = traffic.longest_s, 0.0
    board.say("kill -9 of node a")
    pair.a.kill()
    board.until(lambda: pair.b.state in ("alone", "active"), "node b did not take over")
    board.watch(200)
    taken_s, traffic.longest_s = traffic.longest_s, 0.0
    board.say(f"node b serves; the longest send took {taken_s * 1000:,.0f} ms ({before_s * 1000:,.0f} ms before)")
    pair.a.start()
    board.until(lambda: pair.a.state == "active", "node a did not get its place back")
    board.watch(200)
    board.say(f"node a serves again (failback); the longest send took {traffic.longest_s * 1000:,.0f} ms")
    traffic.end()
    lost = traffic.sent - len(traffic.received)
    echo(f"{traffic.sent:,} confirmed, {lost} lost, {traffic.twice} received twice")
    if traffic.error is not None:
        echo(f"understudy: {traffic.error}", err=True)
    return lost == 0 and traffic.error is None
