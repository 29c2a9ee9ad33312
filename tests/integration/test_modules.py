"""Goal: the modules that act on a running broker do what their documentation says, on a real one, with Debian's Python.

Method: a playbook for each module, with the assertions of an operator. States are set twice, and in check mode first.
"""

from __future__ import annotations

from conftest import Broker, play


def test_queues(broker: Broker) -> None:
    broker.produce("orders", 3)
    play("queue.yml", {"directory": str(broker.directory)})


def test_addresses(broker: Broker) -> None:
    play("address.yml", {"directory": str(broker.directory)})
