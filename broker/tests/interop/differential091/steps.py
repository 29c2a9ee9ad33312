"""The steps of a program: requests with fixed fields, and requests about deliveries that came before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from understudy.wire.amqp091.layout import Method


class Place(NamedTuple):
    """A channel of a connection."""

    connection: int
    channel: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A method with fixed fields."""

    place: Place
    method: Method


@dataclass(frozen=True, slots=True)
class Publish:
    """A message."""

    place: Place
    method: Method
    properties: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Settle:
    """An answer to a delivery that is outstanding; without one nothing is sent."""

    place: Place
    verb: str
    """``ack``, ``nack`` or ``reject``."""
    choice: int
    """Which one of those that are outstanding, modulo their number."""
    multiple: bool = False
    """Whether all deliveries of that step and of earlier ones are settled."""
    requeue: bool = False


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests of one channel that are sent at once, without waiting for answers."""

    place: Place
    steps: tuple[Ask | Publish, ...]


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """End a connection, which is opened again by its next step."""

    place: Place


Step = Ask | Publish | Settle | Burst | CloseConnection
Program = tuple[Step, ...]


def name_of(step: Step) -> str:
    """Name of the request."""
    return step.method.name if isinstance(step, Ask | Publish) else type(step).__name__
