"""Goal: clients of AMQP 0-9-1 use a deployed pair on its default port, with TLS and a login, and lose nothing when its
active node ends.

Method: the replicated pair of inventories/quorum with the TLS of the molecule scenarios. The client pika runs on this
machine, in the namespace of the lab, and so at the address of the controller. It writes ledgers, which ``understudy
ledger check`` judges. Rules of the firewall for the port are tested elsewhere (tests/lab/README.md, Limits).
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError, AMQPError, ProbableAuthenticationError
from support.amqp_ledger import Consumer, Producer
from understudy_lab.errors import LabError
from understudy_lab.faults import cut_power, kill, power_on, shut_down
from understudy_lab.hosts import Lab, number_of
from understudy_lab.network import address, join
from understudy_lab.pair import (
    BACKUP,
    PASSWORDS,
    PRIMARY,
    QUEUE,
    ROOT,
    await_that,
    deploy,
    longest_window_s,
    make_ready,
    messages_at,
    record,
    serves,
)

TABLE = "amqp091"
PORT = 5672
PASSWORD = PASSWORDS["BROKER_DRILL_PASSWORD"]
WITH_TLS = ("--inventory", "molecule/booted/tls.yml")
MESSAGES = 150
"""Messages that are confirmed and acknowledged before and after a fault."""
CERTIFICATES = "MOLECULE_EPHEMERAL_DIRECTORY"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """File of the authority of all certificates, which the first playbook makes."""
    directory = tmp_path_factory.mktemp("certificates")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CERTIFICATES, str(directory))
        yield directory / "certificates" / "ca.pem"


@pytest.fixture(scope="module")
def pair(lab: Lab, authority: Path) -> Lab:
    """The hosts with the witness and the pair deployed."""
    playbooks = ("molecule/booted/certificates.yml", "playbooks/witness.yml", "playbooks/site.yml")
    deploy(lab, "quorum", TABLE, *playbooks, options=WITH_TLS)
    assert authority.exists()
    return lab


def place(host: str, authority: Path | None, password: str = PASSWORD) -> pika.ConnectionParameters:
    """How pika reaches the broker on a host; without TLS if there is no authority."""
    where = address(number_of(host))
    options = None
    if authority is not None:
        context = ssl.create_default_context(cafile=str(authority))
        options = pika.SSLOptions(context, server_hostname=where)
    return pika.ConnectionParameters(
        where,
        PORT,
        credentials=pika.PlainCredentials("drill", password),
        ssl_options=options,
        heartbeat=10,
        connection_attempts=1,
        socket_timeout=5,
        stack_timeout=10,
        blocked_connection_timeout=30,
    )


def refusal(lab: Lab, parameters: pika.ConnectionParameters) -> BaseException | None:
    """Why a connection was not made; None if it was."""
    raised: list[BaseException] = []

    def connect() -> None:  # a thread of its own, because a thread that has entered a namespace stays there
        try:
            join(lab.network.namespace)
            pika.BlockingConnection(parameters).close()
        except (AMQPError, OSError, LabError) as error:
            raised.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@dataclass
class Clients:
    """A producer and a consumer of AMQP 0-9-1 that run until ``judged``."""

    lab: Lab
    places: Sequence[pika.ConnectionParameters]
    directory: Path

    def __post_init__(self) -> None:
        def enter() -> None:
            join(self.lab.network.namespace)

        self._producer = Producer(self.places, QUEUE, self.directory / "sent.jsonl", enter)
        self._consumer = Consumer(self.places, QUEUE, self.directory / "taken.jsonl", enter)
        self._both = (self._producer, self._consumer)
        for client in self._both:
            client.start()

    def await_progress(self) -> None:
        """Waits until further messages are confirmed and acknowledged."""
        before = [client.count for client in self._both]

        def went_on() -> bool:
            for client in self._both:
                if client.bug is not None:
                    raise client.bug
            return all(client.count >= then + MESSAGES for client, then in zip(self._both, before, strict=True))

        await_that(went_on, "messages are confirmed and acknowledged over AMQP 0-9-1")

    @property
    def connected(self) -> int:
        """How often that of both was connected which was so the least."""
        return min(client.connected for client in self._both)

    def stop(self) -> None:
        """Lets both end, without waiting for it."""
        for client in self._both:
            client.enough.set()

    def judged(self, active: str) -> dict[str, object]:
        """Ends both when the queue is empty; the report of ``understudy ledger check``."""
        self._producer.finish()
        await_that(lambda: messages_at(self.lab, active) == 0, "all messages are acknowledged")
        self._consumer.finish()
        ledgers = [str(client.ledger) for client in self._both]
        check = [str(ROOT / ".venv/bin/understudy"), "ledger", "check", "--json", *ledgers]
        done = subprocess.run(check, stdout=subprocess.PIPE, text=True, check=False, timeout=120)
        report = json.loads(done.stdout)
        assert isinstance(report, dict)
        return report


def test_the_port_wants_tls_and_a_login(pair: Lab, authority: Path) -> None:
    active, _passive = make_ready(pair)
    assert refusal(pair, place(active, authority)) is None
    assert isinstance(refusal(pair, place(active, None)), AMQPConnectionError)
    wrong = refusal(pair, place(active, authority, "another-password-of-a-test"))
    assert isinstance(wrong, ProbableAuthenticationError), repr(wrong)


FAULTS = {
    "kill": (kill, lambda lab, victim: None),
    "power-cut": (cut_power, power_on),
    "shutdown": (shut_down, power_on),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failover_loses_nothing(pair: Lab, authority: Path, tmp_path: Path, fault: str) -> None:
    strike, repair = FAULTS[fault]
    active, passive = make_ready(pair)
    clients = Clients(pair, [place(host, authority) for host in (PRIMARY, BACKUP)], tmp_path)
    try:
        clients.await_progress()
        strike(pair, active)
        await_that(lambda: serves(pair, passive), "the backup serves")
        clients.await_progress()
        repair(pair, active)
        active, _passive = make_ready(pair)
        clients.await_progress()
        report = clients.judged(active)
    finally:
        clients.stop()
    counts = report["counts"]
    assert isinstance(counts, dict)
    kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "unresolved")}
    record(TABLE, {"fault": fault, "window_s": longest_window_s(report), "connected": clients.connected, **kept})
    assert report["ok"], report
    assert clients.connected > 1
