"""The blocking client: the same names as ``client.aio``, without ``await``, safe from any thread.

It is a shell over ``client.core`` on blocking sockets, without an event loop: the thread that needs an answer reads the
socket itself (``link``, ADR 0043). The classes that an application uses are generated from those of ``client.aio``.

- Several threads may share a connection, a session, a producer or a consumer.
- Listeners and the callbacks of futures are called on a thread of their own, one after the other.
- An exception of a signal handler, such as ``KeyboardInterrupt``, ends the wait in which it comes and leaves the
  connection usable. One that comes in the few moments between two waits closes the connection with ``ObjectClosed``.
- After a fork a connection belongs to the parent. In the child its use raises ``IllegalState``, and closing it does
  nothing.
"""

from __future__ import annotations

from understudy.client.sources import Body
from understudy.client.sync.bodies import BodyReader, Processing, Received
from understudy.client.sync.connection import Connection, ConnectionFactory, connect
from understudy.client.sync.consumer import Browser, Consumer
from understudy.client.sync.producer import Producer
from understudy.client.sync.requests import TransactionBlock
from understudy.client.sync.session import DEFAULT_WINDOW, Session
from understudy.client.sync.xa import XaBranches

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
