"""Numbered messages that are sent and consumed while the log of the broker is consolidated."""

from __future__ import annotations

import threading

from understudy.client import sync

#: Of broker.xml: the log is consolidated all the time.
CONSOLIDATING = """
    <journal-file-size>1M</journal-file-size>
    <journal-compact-min-files>2</journal-compact-min-files>
    <disk-scan-period>500</disk-scan-period>
"""


class Load:
    """Sends numbered messages and acknowledges them, until it is stopped."""

    def __init__(self, url: str) -> None:
        self.confirmed: set[int] = set()
        self._url = url
        self._enough = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with sync.connect(self._url) as connection, connection.session() as session:
                session.start()
                producer, consumer = session.producer("numbers"), session.consumer("numbers")
                number = 0
                while not self._enough.is_set():
                    producer.send(bytes(3_000), properties={"n": number})
                    self.confirmed.add(number)
                    number += 1
                    self._enough.wait(0.01)
                    received = consumer.receive(0.05)
                    if received is not None:
                        consumer.acknowledge(received)
        except BaseException as failure:
            self._failure = failure

    def give_up(self) -> None:
        """Let it end some time."""
        self._enough.set()

    def stop(self) -> None:
        """Let it end, and wait. Raises its error."""
        self._enough.set()
        self._thread.join(120)
        assert self._failure is None, self._failure
