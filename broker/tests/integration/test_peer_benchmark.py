"""Goal: the load driver of the peer benchmark tells a wrong broker from a fast one.

Against a broker of our own it counts every message; against a scripted peer that confirms what was not sent, delivers
twice, out of order or not at all, or closes, the run ends with the reason.
"""

from __future__ import annotations

import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.content import NUMBER, Content
from benchmarks.core_link import CoreLink
from benchmarks.load import Consumer, Load, Patch, Producer, RunFailed, build_driver, run
from support.processes import Pair

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the driver needs a C compiler (cc)")

BODY = Content().body
_HEAD = struct.Struct(">ibq")
_NULL_RESPONSE, _RECEIVE, _SEND = 21, 75, 71


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def test_every_message_is_counted(driver: Path, tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        pair.primary.start().wait_ready("active")
        assert pair.primary.process is not None
        pids = [pair.primary.process.pid]
        link = CoreLink(pair.primary.port)
        for number, load in enumerate(
            (
                Load(queues=3, producers=2, in_flight=50),
                Load(durable=False),
                Load(producers=4, in_flight=1, consume_during=False),
                Load(rate=500, consume_during=False),
            )
        ):
            outcome = run(driver, link, load, f"case{number}", pids, warmup_ms=50, window_ms=1_000)
            assert 0 < outcome.messages <= outcome.total
            # the kernel counts in hundredths of a second, of which few messages need none
            assert outcome.broker_cpu_us > 0 or load.rate
            queues = [pair.primary.queue(f"case{number}.{each}") for each in range(load.queues)]
            assert sum(int(str(queue["messages_added"])) for queue in queues if queue) == outcome.total
            # what was not acknowledged yet comes back when the connection closes: less than a batch
            _wait(pair, [f"case{number}.{each}" for each in range(load.queues)], load.ack_batch)
    finally:
        pair.end()


def _wait(pair: Pair, queues: Sequence[str], fewer_than: int) -> None:
    ends = time.monotonic() + 60
    left = dict.fromkeys(queues, fewer_than)
    while any(count >= fewer_than for count in left.values()):
        assert time.monotonic() < ends, left
        for name in queues:
            facts = pair.primary.queue(name)
            left[name] = int(str(facts["message_count"])) if facts is not None else fewer_than


def _confirm(number: int) -> bytes:
    return _HEAD.pack(17, _NULL_RESPONSE, 10) + struct.pack(">q", number)


def _delivery(number: int) -> bytes:
    message = struct.pack(">i", len(BODY) + 13) + BODY.replace(NUMBER, struct.pack(">q", number)) + bytes(30)
    tail = struct.pack(">qi", 0, 1)
    return _HEAD.pack(9 + len(message) + len(tail), _RECEIVE, 10) + message + tail


class Scripted:
    """A link to a peer that answers each send with what ``script`` says; producer 0 and consumer 1."""

    protocol = "core"

    def __init__(self, script: Callable[[int], tuple[bytes, bytes] | None]) -> None:
        self.script = script
        self.theirs: list[socket.socket] = []

    def declare(self, queues: Sequence[str]) -> None:
        pass

    def producer(self, queue: str, content: Content) -> Producer:
        frame = _HEAD.pack(9 + len(BODY) + 8, _SEND, 10) + BODY + bytes(8)
        return Producer(self._pair(), frame, (Patch(13, body=True), Patch(len(frame) - 8)))

    def consumer(self, queue: str, number: int) -> Consumer:
        ours = self._pair()
        threading.Thread(target=self._serve, args=(_HEAD.size + len(BODY) + 8,), daemon=True).start()
        return Consumer(ours, b"start")

    def _pair(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            self.theirs.append(listener.accept()[0])
        return ours

    def _serve(self, frame_bytes: int) -> None:
        producer, consumer = self.theirs
        number = 0
        try:
            while producer.recv(frame_bytes, socket.MSG_WAITALL):
                answer = self.script(number)
                if answer is None:
                    break
                producer.sendall(answer[0])
                consumer.sendall(answer[1])
                number += 1
        except OSError:
            pass
        producer.close()
        consumer.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (lambda n: (_confirm(n + 7), _delivery(n)), "confirmation of 7, which does not wait"),
        (lambda n: (_confirm(n) * 2, _delivery(n)), "confirmation of 0, which does not wait"),
        (lambda n: (_confirm(n), _delivery(n) * 2), "delivery of 0 where 1 was next"),
        (lambda n: (_confirm(n), _delivery(n + 1)), "delivery of 1 where 0 was next"),
        (lambda n: (_confirm(n), _delivery(n) if n != 40 else b""), "delivery of 41 where 40 was next"),
        (lambda n: (_confirm(n), _delivery(n)) if n < 40 else None, "closed a connection"),
        (lambda n: (_HEAD.pack(13, 20, 10) + struct.pack(">i", 105), b""), "EXCEPTION, code 105"),
    ],
)
def test_a_wrong_broker_is_a_failed_run(
    driver: Path, script: Callable[[int], tuple[bytes, bytes] | None], reason: str
) -> None:
    with pytest.raises(RunFailed, match=reason):
        # it ends as soon as it is wrong; the window is only longer than that may take
        run(driver, Scripted(script), Load(in_flight=1), "q", [], warmup_ms=20, window_ms=60_000)


def test_a_right_one_is_not(driver: Path) -> None:
    link = Scripted(lambda n: (_confirm(n), _delivery(n)))
    outcome = run(driver, link, Load(in_flight=1), "q", [], warmup_ms=20, window_ms=1_000)
    assert outcome.messages > 0
