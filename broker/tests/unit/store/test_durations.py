"""Durations of batches: each is counted once, at the smallest bound that it does not exceed."""

from __future__ import annotations

from understudy.store.durations import BOUNDS_NS, Confirmations, Durations
from understudy.store.log.operation_context import Contract, OperationContext, Voter


def test_bounds_rise() -> None:
    assert list(BOUNDS_NS) == sorted(set(BOUNDS_NS))
    assert (BOUNDS_NS[0], BOUNDS_NS[-1]) == (50_000, 10_000_000_000)


def test_a_duration_counts_at_the_first_bound_that_holds_it() -> None:
    durations = Durations()
    for took_ns in (0, 50_000, 50_001, 10_000_000_001):
        durations.add(took_ns)
    assert (durations.counts[0], durations.counts[1], durations.counts[-1]) == (2, 1, 1)
    assert sum(durations.counts) == 4
    assert durations.total_ns == 10_000_100_002


def measured() -> tuple[OperationContext, Confirmations, list[int]]:
    """A context, its measured times, and the present time in nanoseconds."""
    now_ns = [0]
    context = OperationContext()
    context.demand(Contract.REPLICA_DISK)
    context.measured = Confirmations(lambda: now_ns[0])
    return context, context.measured, now_ns


def test_a_batch_is_measured_until_its_last_sequence_is_durable() -> None:
    context, times, now_ns = measured()
    times.sequence, times.began_ns = 5, 1_000_000
    now_ns[0] = 2_000_000
    context.advance(4)
    assert sum(times.counts) == 0
    now_ns[0] = 4_000_000
    context.advance(5)
    assert (sum(times.counts), times.total_ns, times.sequence) == (1, 3_000_000, 0)
    context.advance(6)
    assert sum(times.counts) == 1


def test_a_batch_that_waits_for_a_replica_is_measured_until_the_replica_has_it() -> None:
    context, times, now_ns = measured()
    context.attach_replica()
    times.sequence = 1
    now_ns[0] = 1_000_000
    context.advance(1)
    assert sum(times.counts) == 0
    now_ns[0] = 7_000_000
    context.advance(1, Voter.REPLICA_MEMORY)
    context.advance(1, Voter.REPLICA_DISK)
    assert (sum(times.counts), times.total_ns) == (1, 7_000_000)
