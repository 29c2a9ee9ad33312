"""Settings of exported queues: those that the request for a new queue has, and those that are left to an operator.

Not here: the export file (``tools.export``), sending (``sending``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from understudy.client.core.url.destinations import QueueAttributes
from understudy.tools.export import ExportedQueue
from understudy.wire.core.packets import QueueQueryResponse

#: Attributes of a queue that would keep messages of an import out, with the operation that sets them afterwards.
_AFTERWARDS: Final = {"enabled": ("disabled", "disable"), "paused": ("paused", "pause")}


def attributes_of(queue: ExportedQueue) -> QueueAttributes:
    """The settings with which a queue is made again. A queue that was disabled takes messages until an operator
    disables it.
    """
    known = QueueAttributes.__annotations__.keys() - _AFTERWARDS.keys()
    return cast(QueueAttributes, {name: value for name, value in queue.settings.items() if name in known})


def notes_on(queue: ExportedQueue) -> Iterator[str]:
    """Steps that are left to an operator for a queue that is made again."""
    settings = queue.settings
    for name, missing in (("enabled", settings.get("enabled") is False), ("paused", settings.get("paused") is True)):
        if missing:
            state, operation = _AFTERWARDS[name]
            yield f"queue {queue.name!a} was {state}, and is not now: call its operation {operation} after the import"


def differences(queue: ExportedQueue, present: QueueQueryResponse) -> Iterator[str]:
    """Settings of a queue that exists already and has others."""
    attributes: Mapping[str, Any] = attributes_of(queue)
    different = [
        f"{name} {value!r} in the export, {getattr(present, name)!r} there"
        for name, value in attributes.items()
        if hasattr(present, name) and getattr(present, name) not in (None, value)
    ]
    if different:
        yield f"queue {queue.name!a} exists with other settings, which stay: {'; '.join(different)}"
