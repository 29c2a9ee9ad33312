"""Offsets of streams of journals: (node id, epoch, sequence) of the last record that was read.

Spark keeps offsets as JSON and compares them as text, so there is one encoding only. An offset always names the same
record, also after failovers (docs/build/journal-format.md s. 2.2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from understudy.dataclass import dataclass
from understudy.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The last record that was read."""

    node_id: str
    epoch: int
    """0: not known; only of a record that is no part of the log any more."""
    sequence: int

    def as_dict(self) -> dict[str, Any]:
        """The offset for Spark; the order of the names is part of the encoding."""
        return {"epoch": self.epoch, "node_id": self.node_id, "sequence": self.sequence}

    def as_json(self) -> str:
        """The offset for a broker."""
        return json.dumps(self.as_dict())

    def __str__(self) -> str:
        return f"epoch {self.epoch}, sequence {self.sequence} of node {self.node_id}"


def parse_offset(given: Mapping[str, Any], source: str = "the checkpoint") -> StreamOffset:
    """The offset of a dictionary.

    Args:
        given: Offset as Spark hands it over.

    Raises:
        ConfigError: it is not an offset of this source.
    """
    node_id, epoch, sequence = given.get("node_id"), given.get("epoch"), given.get("sequence")
    if (
        set(given) != {"node_id", "epoch", "sequence"}
        or not isinstance(node_id, str)
        or type(epoch) is not int
        or type(sequence) is not int
        or min(epoch, sequence) < 0
    ):
        raise ConfigError(
            f"{source} has the offset {json.dumps(given)[:200]}",
            hint="expected node_id, epoch and sequence: it is not one of a stream of journals",
        )
    return StreamOffset(node_id, epoch, sequence)
