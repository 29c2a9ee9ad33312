"""The cases of the peer benchmark: producers, consumers, queues and rates."""

from __future__ import annotations

from typing import Final

from benchmarks.load import Load

CASES: Final[dict[str, tuple[str, Load]]] = {
    "pipelined": ("1 producer, 1 consumer, 1,000 unconfirmed, acknowledged by 50", Load(backlog_max=10_000)),
    "blocking": ("1 producer that waits for each confirmation", Load(in_flight=1, consume_during=False)),
    "blocking-16": ("16 producers that wait", Load(producers=16, in_flight=1, consume_during=False)),
    "latency": ("confirmation latency at 1,000 a second", Load(rate=1_000, consume_during=False)),
    "non-durable": ("as pipelined, messages not durable", Load(durable=False, backlog_max=10_000)),
    "queues-100": (
        "100 queues of 1 producer (100 unconfirmed) and 1 consumer",
        Load(queues=100, in_flight=100, backlog_max=1_000),
    ),
}

_MIB: Final = 1024 * 1024


def sized(body_bytes: int) -> Load:
    """Load of the case ``pipelined`` with bodies of another size: unconfirmed, waiting and unacknowledged messages are
    limited in bytes too, because the windows of consumers are.
    """
    in_flight = max(1, min(1_000, 16 * _MIB // body_bytes))
    return Load(
        body_bytes=body_bytes,
        in_flight=in_flight,
        ack_batch=max(1, min(50, _MIB // 4 // body_bytes)),
        backlog_max=max(2 * in_flight, min(10_000, 64 * _MIB // body_bytes)),
    )


#: The family ``sizes``.
SIZES: Final[dict[str, tuple[str, Load]]] = {
    f"size-{name}": (f"as pipelined, bodies of {name.replace('-', ' ')}", sized(body_bytes))
    for name, body_bytes in (
        ("100-B", 100),
        ("1-KiB", 1024),
        ("10-kB", 10_000),
        ("50-kB", 50_000),
        ("90-kB", 90_000),
        ("500-kB", 500_000),
        ("5-MB", 5_000_000),
    )
}
#: The family ``amqp``, which only clients of AMQP 0-9-1 have.
AMQP: Final[dict[str, tuple[str, Load]]] = {
    "amqp-ack-each": (
        "1 producer, 1 consumer, 1,000 unconfirmed, each acknowledged alone",
        Load(backlog_max=10_000, ack_batch=1, prefetch=1000),
    ),
    "amqp-workers": (
        "1 producer, 8 consumers of one queue with a prefetch of 10, each acknowledged alone",
        Load(backlog_max=10_000, consumers=8, ack_batch=1, prefetch=10),
    ),
    "amqp-in-turn": (
        "1 producer on one channel to 10 queues in turn, 1,000 unconfirmed, 10 consumers",
        Load(queues=10, backlog_max=1_000, in_turn=True),
    ),
}
FAMILIES: Final = {"sizes": tuple(SIZES), "amqp": tuple(AMQP)}
ALL: Final = {**CASES, **SIZES, **AMQP}
