"""The asyncio client: a shell over ``client.core``, on any event loop, a simulated one included.

All decisions are made in the pure modules of ``client.core``. Here are transports, one timer, futures (``link``) and
the classes that an application uses; ``client.sync`` has the same names without ``await``, and its classes are
generated from these (ADR 0043).

A connection belongs to the event loop that it was made on and is not safe to use from other threads.
"""

from __future__ import annotations

from understudy.client.aio.bodies import BodyReader, Processing, Received
from understudy.client.aio.connection import Connection, ConnectionFactory, connect
from understudy.client.aio.consumer import Browser, Consumer
from understudy.client.aio.producer import Producer
from understudy.client.aio.requests import TransactionBlock
from understudy.client.aio.session import DEFAULT_WINDOW, Session
from understudy.client.aio.xa import XaBranches
from understudy.client.sources import Body

__all__ = [
    "DEFAULT_WINDOW",
    "Body",
    "BodyReader",
    "Browser",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "Processing",
    "Producer",
    "Received",
    "Session",
    "TransactionBlock",
    "XaBranches",
    "connect",
]
