"""A fuzz target: a function over bytes, the errors it may raise, and valid inputs to begin with.

Not here: where inputs come from (``mutation``, ``coverage_guided``), or when to stop (``campaign``).
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

#: Memory that a decoder may take whatever the input: caches, error texts, the harness itself. Bytes.
MEMORY_FLOOR_BYTES = 512 * 1024
#: Lines of our code that may run whatever the input: making the input, layouts on first use.
STEPS_FLOOR = 20_000


@dataclass(frozen=True, slots=True)
class Target:
    """One decoder, or one conversation."""

    name: str
    run: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    """The errors that the function documents."""
    seeds: Callable[[], list[bytes]]
    memory_per_byte: int = 64
    """Most memory it may take for each byte of input, above the floor. Bytes."""
    memory_floor_bytes: int = MEMORY_FLOOR_BYTES
    steps_per_byte: int = 200
    """Most lines of our code that may run for each byte of input, above the floor."""
    steps_floor: int = STEPS_FLOOR
    input_bytes_max: int = 4096
    """Longest input that is made for it."""
    weight: int = 1
    """Part of the fuzzing time that the target gets; the simplest target has 1."""


class ProportionLost(Exception):
    """An input cost its decoder more memory or steps than its size accounts for."""


def check(target: Target, data: bytes) -> None:
    """Run one input. Raises what the target may not raise."""
    try:
        target.run(data)
    except target.allowed:
        pass


def check_memory(target: Target, data: bytes) -> int:
    """Run one input and measure; the peak in bytes.

    Raises:
        ProportionLost: the peak is out of proportion to the input.
    """
    check(target, data)  # caches that fill once are none of this input's doing
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        check(target, data)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        if started:
            tracemalloc.stop()
    allowed = target.memory_floor_bytes + target.memory_per_byte * len(data)
    if peak > allowed:
        raise ProportionLost(f"{target.name}: {peak} bytes for an input of {len(data)}, allowed {allowed}")
    return peak


def count_steps(target: Target, data: bytes, room: str = "/understudy/") -> int:
    """Lines of our own code that one input makes run: time without a clock.

    Raises:
        ProportionLost: they are out of proportion to the input.
    """
    steps = 0

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += event == "line"
        return in_frame

    def entering(frame: FrameType, event: str, argument: Any) -> Any:
        return in_frame if room in frame.f_code.co_filename else None

    check(target, data)
    before = sys.gettrace()
    sys.settrace(entering)
    try:
        check(target, data)
    finally:
        sys.settrace(before)
    allowed = target.steps_floor + target.steps_per_byte * len(data)
    if steps > allowed:
        raise ProportionLost(f"{target.name}: {steps} steps for an input of {len(data)}, allowed {allowed}")
    return steps
