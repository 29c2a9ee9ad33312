"""Goal: the modules that act on a running broker do what their documentation says, on a real one, with Debian's Python.

Method: a playbook for each module, with the assertions of an operator. States are set twice, and in check mode first.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from conftest import ADMIN_PASSWORD, Broker, free_port, play


def test_queues(broker: Broker) -> None:
    broker.purge("orders")
    broker.produce("orders", 3)
    play("queue.yml", {"directory": str(broker.directory)})


def test_addresses(broker: Broker) -> None:
    play("address.yml", {"directory": str(broker.directory)})


def test_users(broker: Broker) -> None:
    play("user.yml", {"directory": str(broker.directory), "url": broker.url})


def test_journals(broker: Broker, tmp_path: Path) -> None:
    """Copies of the journal of now and of before, and that of another node."""
    journal = broker.directory / "data/journal"
    shutil.copytree(journal, tmp_path / "old")
    broker.produce("orders", 2)
    for number in (1, 2, 3):
        shutil.copytree(tmp_path / "old", journal / f"oldreplica.{number}")
    other = Broker(tmp_path / "other", free_port(), free_port())
    assert other.command("create", str(other.directory), "--port", str(other.port)).returncode == 0
    other.deploy()
    other.start()
    other.stop()
    (other.directory / "data/journal").rename(tmp_path / "foreign")
    play("journal.yml", {"directory": str(broker.directory), "copies": str(tmp_path)})


def test_drains(broker: Broker) -> None:
    deployed = {"directory": str(broker.directory), "url": broker.url, "password": ADMIN_PASSWORD}
    broker.purge("orders")
    broker.produce("orders", 5)
    try:
        play("drain.yml", deployed)
    finally:
        broker.start()


def test_lines_of_the_management_cli(broker: Broker) -> None:
    play("cli.yml", {"directory": str(broker.directory)})
