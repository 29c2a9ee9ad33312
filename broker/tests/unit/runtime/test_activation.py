"""Steps of an activation are done in order, undone in reverse, and measured."""

from __future__ import annotations

import asyncio
import logging

import pytest

from understudy.errors import BrokerError, DiskFailed, StoreError
from understudy.ha.life.activation import ActivationFacts, Step, StepTime
from understudy.runtime.node.activation import SLOW_STEP_MS, Activation
from understudy.testing.manual_time import ManualTime


class Course:
    """Three steps that take 10, 20 and 30 ms and note their calls."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.failure: BrokerError | None = None
        """The error because of which the node ends."""
        self.activation = Activation(self.time, lambda: self.failure)
        self.seen: list[str] = []
        self.fails: dict[str, BaseException] = {}
        self.steps = [self._step(name, took_ms) for name, took_ms in (("a", 10), ("b", 20), ("c", 30))]

    def _step(self, name: str, took_ms: int) -> Step:
        async def do() -> None:
            self._act(name, took_ms)

        return Step(name, do, lambda: self._act(f"undo {name}", 1))

    def _act(self, what: str, took_ms: int) -> None:
        self.seen.append(what)
        self.time.advance(took_ms)
        if what in self.fails:
            raise self.fails[what]

    def run(self) -> BrokerError | None:
        """The error of the activation."""
        try:
            asyncio.run(self.activation.run(self.steps))
        except BrokerError as error:
            return error
        return None

    def undo(self) -> BrokerError | None:
        return asyncio.run(self.activation.undo())


def test_steps_are_done_in_order_and_measured() -> None:
    course = Course()
    assert course.activation.facts() is None
    assert course.run() is None
    assert course.seen == ["a", "b", "c"]
    times = (StepTime("a", 10), StepTime("b", 20), StepTime("c", 30))
    assert course.activation.facts() == ActivationFacts(None, False, 60, times)


def test_steps_are_undone_in_reverse() -> None:
    course = Course()
    course.run()
    course.seen.clear()
    assert course.undo() is None
    assert course.seen == ["undo c", "undo b", "undo a"]
    assert course.activation.facts() is None
    assert course.undo() is None
    assert course.seen[3:] == []


@pytest.mark.parametrize(("error", "kind"), [(StoreError("x"), StoreError), (PermissionError("x"), DiskFailed)])
def test_a_step_that_failed_is_undone_like_those_before_it(error: Exception, kind: type[BrokerError]) -> None:
    course = Course()
    course.fails["b"] = error
    assert isinstance(course.run(), kind)
    assert course.seen == ["a", "b"]
    assert course.undo() is None
    assert course.seen == ["a", "b", "undo b", "undo a"]


@pytest.mark.parametrize("during", ["a", "b", "c"])
def test_no_step_begins_after_the_node_has_failed(during: str) -> None:
    """The disk fails, or the lock is lost, beside a step that does not notice it."""
    course = Course()
    failure = DiskFailed("the disk is gone")

    def fail() -> None:
        course.failure = failure

    number = "abc".index(during)
    step = course.steps[number]
    course.steps[number] = Step(step.name, fail, step.undo)
    assert course.run() is failure
    assert course.seen == ["a", "b", "c"][:number]
    assert course.undo() is None
    assert course.seen[number:] == ["undo c", "undo b", "undo a"][2 - number :]


def test_an_undo_that_fails_keeps_no_other_from_being_done() -> None:
    course = Course()
    course.fails = {"undo c": StoreError("first"), "undo b": RuntimeError("a bug"), "undo a": OSError("last")}
    course.run()
    error = course.undo()
    assert course.seen[3:] == ["undo c", "undo b", "undo a"]
    assert str(error) == "first"
    course.fails.pop("undo c")
    course.run()
    assert isinstance(course.undo(), StoreError)


def test_the_step_under_way_is_named() -> None:
    course = Course()
    found: list[ActivationFacts | None] = []

    async def look() -> None:
        course.time.advance(7)
        found.append(course.activation.facts())

    course.steps = [*course.steps[:1], Step("look", look, look)]
    course.run()
    assert found[0] == ActivationFacts("look", False, 17, (StepTime("a", 10), StepTime("look", 7)))
    course.undo()
    assert found[1] is not None
    assert (found[1].step, found[1].undoing) == ("look", True)


def test_a_slow_step_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    course = Course()
    course.steps = [course._step("quick", SLOW_STEP_MS), course._step("slow", SLOW_STEP_MS + 1)]
    with caplog.at_level(logging.WARNING):
        course.run()
    assert [getattr(record, "step", None) for record in caplog.records] == ["slow"]
