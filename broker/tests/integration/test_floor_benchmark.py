"""Goal: the floor of the peer benchmark loses nothing, confirms nothing before it is written, and no frame ends it.

The driver counts every message. Frames whose fields are not within them end their connection and nothing else.
"""

from __future__ import annotations

import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.cases import CASES
from benchmarks.content import JMS, NUMBER, PLAIN, PROPERTIES, Content, Shape
from benchmarks.core_link import CoreLink
from benchmarks.load import Load, build_driver, run
from benchmarks.targets import Floor

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the floor needs a C compiler (cc)")

CASES_SHORT = {name: load for name, (_, load) in CASES.items() if name != "queues-100"}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    floor = Floor(tmp_path / "floor")
    floor.prepare()
    try:
        floor.start()
        yield floor
    finally:
        floor.stop()


def test_every_message_is_counted(driver: Path, floor: Floor) -> None:
    runs = [(load, shape) for load, shape in zip(CASES_SHORT.values(), [PLAIN, PROPERTIES, JMS] * 2, strict=False)]
    runs.append((Load(queues=3, producers=2, in_flight=50), JMS))
    runs.append((Load(body_bytes=90_000, in_flight=20, backlog_max=40, ack_batch=1), PLAIN))
    for number, (load, shape) in enumerate(runs):
        outcome = run(driver, floor.link(), load, f"q{number}", floor.pids(), warmup_ms=20, window_ms=100, shape=shape)
        assert 0 < outcome.messages <= outcome.total, load


def send_frame(link: CoreLink, content: Content) -> tuple[socket.socket, bytes]:
    """A connection that is logged in, and the frame that it may send."""
    producer = link.producer("q", content)
    return producer.socket, producer.frame.replace(NUMBER, bytes(8))


@pytest.mark.parametrize("shape", [PLAIN, JMS])
@pytest.mark.parametrize("durable", [True, False])
def test_a_durable_message_is_in_the_file_when_it_is_confirmed(floor: Floor, shape: Shape, durable: bool) -> None:
    link = floor.link()
    assert isinstance(link, CoreLink)
    client, frame = send_frame(link, Content(shape, durable=durable))
    with client:
        client.sendall(frame)
        assert len(client.recv(21, socket.MSG_WAITALL)) == 21
        written = (floor.directory / "log").read_bytes()[: len(frame)]
    assert written == (frame if durable else bytes(len(frame)))


def patched(frame: bytes, offset: int, value: int) -> bytes:
    return frame[:offset] + struct.pack(">I", value) + frame[offset + 4 :]


def body_end(frame: bytes) -> int:
    return 13 + int.from_bytes(frame[13:17], "big") - 9


def consumer_frame(length: int) -> bytes:
    body = struct.pack(">qI", 0, length) + "q".encode("utf-16-le")
    return struct.pack(">Ibq", 9 + len(body), 40, 10) + body


MALFORMED = {
    "no length": lambda frame: patched(frame, 0, 0),
    "a length of almost 4 GiB": lambda frame: patched(frame, 0, 0xFFFF_FFFF),
    "shorter than its tail": lambda frame: patched(frame, 0, 15),
    "a body that is longer than its message": lambda frame: patched(frame, 13, len(frame)),
    "a body of almost 4 GiB": lambda frame: patched(frame, 13, 0xFFFF_FFFF),
    "a negative body": lambda frame: patched(frame, 13, 12),
    "no address": lambda frame: frame[: body_end(frame) + 8] + b"\0" + frame[body_end(frame) + 9 :],
    "an address that is longer than its message": lambda frame: patched(frame, body_end(frame) + 9, len(frame)),
    "an address of almost 4 GiB": lambda frame: patched(frame, body_end(frame) + 9, 0xFFFF_FFFC),
    "a header without its end": lambda frame: patched(
        frame, body_end(frame) + 9, len(frame) - 13 - (body_end(frame) + 13) - 1
    ),
    "an unknown request": lambda frame: frame[:4] + b"\x7f" + frame[5:],
    "a consumer without its queue": lambda frame: consumer_frame(3),
    "credits of no consumer": lambda frame: struct.pack(">Ibqqi", 21, 70, 10, 0, 1),
}


def test_a_malformed_frame_ends_its_connection_and_nothing_else(floor: Floor) -> None:
    link = floor.link()
    assert isinstance(link, CoreLink)
    for name, malformed in MALFORMED.items():
        client, frame = send_frame(link, Content(JMS))
        with client:
            client.settimeout(30)
            client.sendall(malformed(frame))
            assert client.recv(1) == b"", name
    for end in range(1, 40):
        # cut at any place: it waits for the rest
        client, frame = send_frame(link, Content(PLAIN))
        client.sendall(frame[: -7 * end])
        client.close()
    client, frame = send_frame(link, Content(PLAIN))
    with client:
        client.sendall(frame)
        assert len(client.recv(21, socket.MSG_WAITALL)) == 21
    assert (floor.directory / "out.log").read_text().count("a connection is closed") == len(MALFORMED)
