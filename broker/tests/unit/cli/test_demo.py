"""Counts of ``understudy demo``: what its clients send and receive while they end."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.cli.node import demo


class Service:
    """A broker for the two clients of the demo, whose connections, sessions and clients are one object each.

    A send that is under way when the traffic ends is confirmed only after the consumer has found the queue empty.
    """

    def __init__(self) -> None:
        self.messages = queue.Queue[Any]()
        self.sending = threading.Event()
        self.ending = threading.Event()
        self.looked = threading.Event()

    def connect(self, _: str) -> Client:
        return Client(self)


class Client:
    """A connection, its session, its producer and its consumer."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._receives = False

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        if self._receives:
            self._service.looked.set()

    def session(self, _: str = "") -> Client:
        return self

    def producer(self, _: str) -> Client:
        return self

    def consumer(self, _: str) -> Client:
        self._receives = True
        return self

    def send(self, _: str, properties: dict[str, int]) -> None:
        self._service.sending.set()
        self._service.looked.wait(30)
        self._service.messages.put(SimpleNamespace(properties=properties, ack=lambda: None))

    def receive(self, timeout_s: float) -> Any:
        try:
            return self._service.messages.get(timeout=min(timeout_s, 0.01))
        except queue.Empty:
            if self._service.ending.is_set():
                self._service.looked.set()
            return None


def test_a_message_that_is_confirmed_after_the_end_began_is_received(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    monkeypatch.setattr(demo.sync, "connect", service.connect)
    traffic = demo.Traffic("tcp://host:1")
    traffic.start()
    assert service.sending.wait(30)
    service.ending.set()
    traffic.end()
    assert traffic.sent == 1
    assert traffic.received == {0}
