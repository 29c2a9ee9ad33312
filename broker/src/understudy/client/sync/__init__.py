"""The blocking client: the same names as ``client.aio``, without ``await``, safe from any thread.

One daemon thread per process runs an event loop for all connections (``sync.thread``); every call
here is carried out there and waited for.

Failure listeners and callbacks run on that thread and must not call back into this module.
"""

from __future__ import annotations

from understudy.client.aio.bodies import Body
from understudy.client.aio.session import DEFAULT_WINDOW
from understudy.client.sync.bodies import BodyReader, Received
from understudy.client.sync.connection import Connection, ConnectionFactory, connect
from understudy.client.sync.endpoints import Browser, Consumer, Producer
from understudy.client.sync.session import Session
from understudy.client.sync.xa import XaBranches

__all__ = [
    "DEFAULT_WINDOW",
    "Body",
    "BodyReader",
    "Browser",
    "Connection",
    "ConnectionFactory",
    "Consumer",
    "Producer",
    "Received",
    "Session",
    "XaBranches",
    "connect",
]
