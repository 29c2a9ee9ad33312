"""The text of the metrics of a node and of its process. Loaded at the first scrape."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from understudy.management.doors.metrics import Families, families

__all__ = ["CONTENT_TYPE", "exposition", "families"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_PROCESS: Final = ProcessCollector(namespace="understudy", registry=None)


def exposition(found: Families) -> bytes:
    """The text of the families of a node, and of processor, memory and descriptors of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(found)
    registry.register(_PROCESS)
    return generate_latest(registry)
