"""Goal: nothing is released before it is durable, in order, and never after a failure."""

from functools import partial

import pytest

from understudy.errors import DiskFull
from understudy.store.log.operation_context import OperationContext


def test_runs_at_once_when_durable() -> None:
    calls: list[str] = []
    OperationContext(5).when_durable(5, calls.append, "now")
    assert calls == ["now"]


def test_waits_and_keeps_order() -> None:
    context, calls = OperationContext(), []
    context.when_durable(3, calls.append, "c")
    context.when_durable(2, calls.append, "asked later")
    context.when_durable(4, calls.append, "d")
    context.advance(2)
    assert calls == []
    context.advance(3)
    assert calls == ["c", "asked later"]
    assert context.waiting == 1
    context.advance(9)
    assert calls == ["c", "asked later", "d"]


def test_never_goes_back() -> None:
    context = OperationContext(7)
    context.advance(3)
    assert context.durable == 7


def test_nothing_after_failure() -> None:
    context, calls = OperationContext(1), []
    context.when_durable(2, calls.append, "waiting")
    context.fail(OSError("first"))
    context.fail(OSError("second"))
    context.when_durable(1, calls.append, "durable before")
    context.advance(10)
    assert calls == []
    assert context.failed
    assert str(context.failure) == "first"
    assert context.durable == 1


def test_a_released_call_that_fails_the_context_silences_the_rest() -> None:
    context, calls = OperationContext(), []
    context.when_durable(1, context.fail, OSError("during"))
    context.when_durable(1, calls.append, "later")
    context.advance(1)
    assert calls == []


def test_a_bug_in_one_call_keeps_no_other_back() -> None:
    context, calls = OperationContext(), []

    def breaks() -> None:
        raise ValueError("a bug")

    context.when_durable(1, calls.append, "before")
    context.when_durable(1, breaks)
    context.when_durable(2, calls.append, "behind")
    with pytest.raises(ValueError, match="a bug"):
        context.advance(2)
    assert calls == ["before", "behind"]
    assert (context.durable, context.waiting) == (2, 0)


class Answerer:
    """Owner of a callback: records the internal errors of its calls."""

    def __init__(self) -> None:
        self.bugs: list[Exception] = []

    def internal_error(self, bug: Exception) -> None:
        self.bugs.append(bug)

    def breaks(self, *_: object) -> None:
        raise ValueError("a bug")


def fails_for(*_: object) -> None:
    raise ValueError("a bug")


def test_an_internal_error_is_reported_to_the_owner_of_the_call_only() -> None:
    context, calls, owner, other = OperationContext(), [], Answerer(), Answerer()
    ways = [
        (owner.breaks,),
        (partial(partial(owner.breaks, 1), 2), None),
        (fails_for, ["queues"], partial(owner.breaks, 3)),
        (fails_for, ["queues"], owner, partial(other.breaks, 3)),
    ]
    for number, (call, *args) in enumerate(ways):
        context.when_durable(1, call, *args)
        context.when_durable(1, calls.append, number)
    context.advance(1)
    assert calls == [0, 1, 2, 3]
    assert [str(bug) for bug in owner.bugs] == ["a bug"] * 4
    assert other.bugs == []


def test_an_owner_that_cannot_handle_an_internal_error_delays_no_other_call() -> None:
    context, calls = OperationContext(), []

    class Deaf(Answerer):
        def internal_error(self, bug: Exception) -> None:
            raise LookupError("another bug")

    context.when_durable(1, Deaf().breaks)
    context.when_durable(1, calls.append, "behind")
    with pytest.raises(LookupError, match="another bug"):
        context.advance(1)
    assert calls == ["behind"]


def test_an_error_of_the_node_releases_no_further_call() -> None:
    context, calls = OperationContext(), []

    def fails() -> None:
        raise DiskFull("no space")

    context.when_durable(1, fails)
    context.when_durable(1, calls.append, "behind")
    with pytest.raises(DiskFull):
        context.advance(1)
    assert calls == []
