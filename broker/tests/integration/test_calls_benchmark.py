"""Goal: ``python -m benchmarks calls`` counts the calls of the broker's functions, and no others."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from benchmarks.calls import Call, Count, Counter, judge_calls, listing, measure

_SOURCE = """
def outer(values):
    inner()
    return len(values)

def inner():
    return "x".upper()
"""


def _module(name: str) -> Any:
    module = types.ModuleType(name)
    exec(compile(_SOURCE, name, "exec"), module.__dict__)
    return module


def _counted(module: Any, other: Any) -> Counter:
    counter = Counter()
    counter.start()
    try:
        module.outer([])
        other.outer([])
    finally:
        counter.stop()
    module.outer([])
    return counter


def test_calls_of_the_brokers_functions_are_counted_in_order() -> None:
    counter = _counted(_module("understudy.counted"), _module("elsewhere"))
    assert sys.getprofile() is None
    assert [(call.native, call.function, call.depth) for call in counter.calls] == [
        (False, "outer", 0),
        (False, "inner", 1),
        (True, "str.upper", 2),
        (True, "len", 1),
    ]
    assert listing(counter.calls).splitlines()[2] == "c     str:str.upper"


@pytest.mark.parametrize(("per_message", "met"), [(45, True), (46, False)])
def test_the_goal_of_a_lone_send(per_message: int, met: bool) -> None:
    calls = [Call(False, "understudy.m", "C.data_received", "t", 0)]
    calls += [Call(False, f"understudy.m{number % 20}", "f", "t", 1) for number in range(per_message - 1)]
    python_calls, modules = judge_calls([Count("send", 3, tuple(calls * 3), 0)])
    assert (python_calls.found, python_calls.met) == (str(per_message), met)
    assert (modules.found, modules.met) == ("21", False)


def test_every_operation_of_a_real_broker_is_one_read() -> None:
    for count in measure(["send", "acknowledge"]):
        assert len(count.segments()) == count.messages
        assert 5 < count.per_message(native=False) < 500
        assert {"understudy.runtime.net.acceptor", "understudy.runtime.base.journal_writer"} <= set(count.modules())
        # the sync of the native kernel is a part of one call (ADR 0197)
        syncs = {"fdatasync", "BatchThread.execute", "BatchThread.submit"}
        assert syncs & {call.function for call in count.typical()}


def test_a_batch_costs_less_than_as_many_lone_sends() -> None:
    (count,) = measure(["batch-duplicate-id"])
    assert 0 < count.per_message(native=False) < 50
