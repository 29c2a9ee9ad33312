"""The fuzzers themselves: they find planted bugs, repeat a run exactly, and notice excessive cost.

And time without a clock: for the inputs that cost a decoder the most, twice the bytes make it do
about twice the work, counted in lines of our code.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.campaign import measure, mutate_for, target_name
from fuzz.captures import streams
from fuzz.catalogue import TARGETS
from fuzz.mutation import mutate
from fuzz.target import ProportionLost, Target, check, check_memory, count_steps
from fuzz.targets_wire import VERSIONS, sample_message, sample_packets
from understudy.properties import Properties
from understudy.wire.core import packets as p
from understudy.wire.core.codec import encode


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_takes_its_seeds(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    assert seeds
    for data in seeds:
        check(target, data)
    for data in random.Random(1).sample(seeds, min(len(seeds), 8)):
        measure(target, data)


def test_every_packet_is_among_the_samples() -> None:
    assert {type(packet) for packet in sample_packets()} == set(p.PACKET_TYPES.values())
    assert len(streams("to-server")) > 3
    assert len(streams("to-client")) > 3


def planted(data: bytes) -> None:
    """Breaks on a length that is off by one."""
    if len(data) >= 5 and data[0] != len(data) - 1 and data[0] < 0x80:
        raise IndexError("planted")


def test_a_planted_bug_is_found_kept_and_replayed(tmp_path: Path) -> None:
    target = Target("detect", planted, (ValueError,), lambda: [b"\x08rest of it"[:9]])
    outcome = mutate_for(target, 20, 1, tmp_path)
    assert outcome.failure is not None
    assert "planted" in outcome.failure.text
    assert outcome.failure.path.parent == tmp_path
    assert target_name(outcome.failure.path) == "detect"
    with pytest.raises(IndexError):
        measure(target, outcome.failure.path.read_bytes())
    # a kept input is replayed by one command; the real target of that name takes it
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--replay", str(outcome.failure.path)],
        cwd=Path(__file__).parents[1], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "taken as it should be" in done.stdout


def test_a_seed_repeats_its_inputs() -> None:
    corpus = [b"one", b"another one"]
    first, second = random.Random(5), random.Random(5)
    assert [mutate(corpus, first, 99) for _ in range(200)] == [mutate(corpus, second, 99) for _ in range(200)]


def test_greed_is_noticed() -> None:
    hungry = Target("hungry", lambda data: bytearray(8 << 20), (), lambda: [b"x"])
    with pytest.raises(ProportionLost, match="bytes"):
        check_memory(hungry, b"x")


def test_slowness_is_noticed() -> None:
    numbers = list(range(300))

    def quadratic(data: bytes) -> None:
        properties = Properties({str(number): number for number in numbers})
        for _ in data:
            for key in properties:
                properties.get(key)

    with pytest.raises(ProportionLost, match="steps"):
        count_steps(Target("slow", quadratic, (), lambda: [b"x"], steps_per_byte=10), bytes(100))


def framed(packet_type: int, body: bytes) -> bytes:
    return (
        bytes((len(VERSIONS) - 1,))
        + (len(body) + 9).to_bytes(4)
        + packet_type.to_bytes(1, signed=True)
        + bytes(8)
        + body
    )


def many_properties(count: int) -> bytes:
    return Properties({f"name {number}": number for number in range(count)}).encode()


def tiny_frames(count: int) -> bytes:
    return bytes((len(VERSIONS) - 1,)) + encode(p.SessionStart(), 10) * count


def pieces(count: int) -> bytes:
    """Records of a log, each of the smallest size."""
    return b"\x0e\x00\x08\x00" + bytes(8) + (b"\x0b\x00\x18\x00" + bytes(24)) * count


#: The greediest inputs known for a target, by how many of something they have.
WORST: dict[str, Callable[[int], bytes]] = {
    "properties": many_properties,
    "message": lambda n: sample_message(properties=Properties({f"k{i}": "v" for i in range(n)})).encoded,
    "frames-server": tiny_frames,
    "frames-client": lambda n: framed(-11, bytes(4) + b"\x00" + n.to_bytes(4) + bytes(n) + b"\x00\x00"),
    "connector": lambda n: b"".join((bytes(8), n.to_bytes(4), (b"\0\0\0\1\0a\1\0\0\0\0") * n))[: 12 + 256 * 11],
    "selector": lambda n: b"a LIKE '%_b%_c' OR " * n + b"a = 1",
    "like": lambda n: b"\x80" + b"%_a" * n + b"ab" * (n * 2),
    "ledger-row": lambda n: b'{"x": ' + b"[" * n + b"]" * n + b"}",
    "export-line": lambda n: b'{"message": {"properties": [' + b'["a", "int", 1],' * n,
    "broker-xml": lambda n: b"<configuration><core>" + b"<a>" * n,
    "log": pieces,
    "users-and-roles": lambda n: b"a = b\n" * n,
    "client-url": lambda n: b"(" + b",".join(b"tcp://h:%d" % (1 + i) for i in range(n)) + b")",
    "server-conversation": lambda n: b"\x01" + encode(p.QueueQuery("q"), 10) * n,
}


@pytest.mark.parametrize("name", WORST)
def test_twice_the_input_is_at_most_about_twice_the_work(name: str) -> None:
    target, make = TARGETS[name], WORST[name]
    base = count_steps(target, make(1))
    once, twice = (count_steps(target, make(count)) - base for count in (60, 120))
    assert twice <= 2.5 * once + 200, (base, once, twice)
    assert count_steps(target, make(120)) >= 0


@pytest.mark.parametrize("name", ["frames-server", "message", "properties", "selector", "export-line"])
def test_the_greediest_inputs_take_memory_in_proportion(name: str) -> None:
    for count in (10, 500):
        check_memory(TARGETS[name], WORST[name](count))
