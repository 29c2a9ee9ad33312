# SPDX-License-Identifier: Apache-2.0
"""Clocks of hosts against each other, by way of the controller. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

NOTED_MS = 1_000
"""Above this difference an expiry or a time stamp is noticeably wrong after a take-over."""
REFUSED_MS = 10_000
"""Above this difference a message with a short time to live may be lost by a take-over alone."""


@dataclass(frozen=True)
class Reading:
    """One question to a host; times in nanoseconds since 1970."""

    before: int
    """Clock of the controller before the question."""
    host: int
    """Clock of the host."""
    after: int
    """Clock of the controller after the answer."""

    @property
    def offset_ms(self) -> int:
        """Clock of the host minus clock of the controller."""
        return round((self.host - (self.before + self.after) / 2) / 1e6)

    @property
    def uncertain_ms(self) -> int:
        """How far the offset may be wrong."""
        return round((self.after - self.before) / 2e6)


def closest(readings: Sequence[Reading]) -> Reading:
    """The reading that is least uncertain."""
    return min(readings, key=lambda each: each.uncertain_ms)


def differences(clocks: Mapping[str, Mapping[str, object]], pairs: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Sentences about the clocks of each pair: ``faults`` and ``advice``.

    Args:
        clocks: by host, ``offset_ms`` and ``uncertain_ms``; hosts that are missing are left out.
        pairs: hosts of each pair by its name.
    """
    found: dict[str, list[str]] = {"faults": [], "advice": []}
    for pair, members in sorted(pairs.items()):
        for one, other in combinations(sorted(each for each in members if each in clocks), 2):
            ahead = int(str(clocks[one]["offset_ms"])) - int(str(clocks[other]["offset_ms"]))
            doubt = int(str(clocks[one]["uncertain_ms"])) + int(str(clocks[other]["uncertain_ms"]))
            certain = abs(ahead) - doubt
            if certain <= NOTED_MS:
                continue
            word = "ahead of" if ahead > 0 else "behind"
            sentence = (
                f"pair {pair}: the clock of {one} is {abs(ahead) / 1000:.1f} s {word} that of {other}, by which the "
                "expiry of messages is wrong after a take-over; set up NTP on both"
            )
            found["faults" if certain > REFUSED_MS else "advice"].append(sentence)
    return found
