"""Emptying a node: which queues count, when they are empty for good, and what is said of those that are not.

Pure: rows of ``listQueues`` go in, one ``Sample`` for each look; ``Progress`` collects them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_STORE_AND_FORWARD = re.compile(r"sf\..+\.[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")
"""End of the names of queues with messages for other members of the cluster: a cluster connection and a node id. What
is in front is ``internal-naming-prefix``.
"""
SETTLE_S = 2.0
"""Queues must be empty, and get no messages, for so long: producers may still use credits that they have."""
SAMPLES_MAX = 100
SHOWN_MAX = 10
"""Queues that a message of failure names."""

CONSUME, SCALE_DOWN = METHODS = ("consume", "scale_down")


@dataclass(frozen=True)
class Sample:
    """All queues that count, at one moment."""

    elapsed_ms: int
    depths: Mapping[str, int]
    """Messages by queue, empty queues left out."""
    consumers: Mapping[str, int]
    """Number of consumers by queue, for the queues of ``depths``."""
    added: int
    """Messages that came to any queue since the activation."""

    @property
    def messages(self) -> int:
        return sum(self.depths.values())


def counts(row: Mapping[str, object], ignored: Iterable[str]) -> bool:
    """Whether a queue must be empty: it is not the broker's own, unless it has messages for other members, and is not
    named by a pattern.
    """
    name = str(row["name"])
    internal = str(row["internalQueue"]).lower() == "true"
    own = internal and _STORE_AND_FORWARD.search(name) is None
    return not own and not any(fnmatchcase(name, pattern) for pattern in ignored)


def sample(rows: Iterable[Mapping[str, object]], ignored: Iterable[str], elapsed_ms: int) -> Sample:
    """One look.

    Raises:
        KeyError, ValueError: a row lacks a value.
    """
    patterns = list(ignored)
    found = [row for row in rows if counts(row, patterns)]
    deep = {str(row["name"]): row for row in found if int(str(row["messageCount"]))}
    return Sample(
        elapsed_ms,
        {name: int(str(row["messageCount"])) for name, row in sorted(deep.items())},
        {name: int(str(row["consumerCount"])) for name, row in sorted(deep.items())},
        sum(int(str(row["messagesAdded"])) for row in found),
    )


@dataclass
class Progress:
    """The looks so far."""

    samples: list[Sample] = field(default_factory=list)

    def add(self, seen: Sample) -> None:
        self.samples.append(seen)

    @property
    def settled(self) -> bool:
        """Whether the queues are empty, and were for ``SETTLE_S`` without a new message."""
        last = self.samples[-1] if self.samples else None
        if last is None or last.depths:
            return False
        quiet = last
        for each in reversed(self.samples):
            if each.depths or each.added != last.added:
                break
            quiet = each
        return last.elapsed_ms - quiet.elapsed_ms >= SETTLE_S * 1000

    def as_list(self) -> list[dict[str, int]]:
        """Depths over time: where they change, and at most ``SAMPLES_MAX`` of them."""
        changes = [
            each
            for number, each in enumerate(self.samples)
            if number in (0, len(self.samples) - 1) or each.messages != self.samples[number - 1].messages
        ]
        step = -(-len(changes) // SAMPLES_MAX)
        thinned = changes[:: step or 1]
        if changes and thinned[-1] is not changes[-1]:
            thinned[-1] = changes[-1]
        return [{"elapsed_ms": each.elapsed_ms, "messages": each.messages} for each in thinned]


def complaint(seen: Sample, timeout_s: float) -> str:
    """Why the node is not empty."""
    if not seen.depths:
        return f"messages still came within {timeout_s:g} s: producers that use no credits, or hold many"
    deepest = sorted(seen.depths.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{name} has {count} and {seen.consumers[name] or 'no'} consumers" for name, count in deepest[:SHOWN_MAX]]
    more = f", and {len(deepest) - SHOWN_MAX} further queues" if len(deepest) > SHOWN_MAX else ""
    return f"{seen.messages} messages are left after {timeout_s:g} s: {', '.join(parts)}{more}"


def remains(left: int, allowed: int, damages: int) -> str:
    """Why the journal of a stopped node is no proof that it is empty; empty text if it is.

    Args:
        left: Messages in queues.
        allowed: Messages that ignored queues had before the stop.
        damages: Damaged places; the messages after one are not counted.
    """
    if damages:
        return f"is stopped, and its journal has {damages} damaged places: whether messages are left is not known"
    if left > allowed:
        return f"is stopped, and {left} messages are in its journal, of which {allowed} were in ignored queues"
    return ""


def scales_down(elements: Sequence[str], enabled: str) -> bool:
    """Whether a node moves its messages when it stops.

    Args:
        elements: Names of the elements of broker.xml.
        enabled: Text of ``enabled`` of ``scale-down``; empty if there is none.
    """
    return "scale-down" in elements and enabled.strip().lower() != "false"
