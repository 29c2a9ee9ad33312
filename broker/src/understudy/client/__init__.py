"""The client: asyncio in ``aio``, blocking in ``sync``, the same names in both.

The core is pure (``core``); the two shells bring loops, threads and sockets.

A body larger than ``minLargeMessageSize`` (100 KiB), or one that is read while it is sent, is a
large message and never whole in memory (``compressLargeMessage=true`` makes it a zlib stream)::

    await producer.send(Path("film.mkv"))           # or an open binary file, or an iterable of bytes
    message = await consumer.receive()
    await message.save_to("copy.mkv")               # or read_body(), or:
    async for piece in message.body_stream: ...

After a failover it is sent again from its beginning if it can be read again: bytes, paths, files
that can be sought, iterables that are no iterators; else ``send`` raises ``SendOutcomeUnknown``.
Received bodies up to 1 MiB are simply in ``message.body``; a larger one is read before the next
message is asked for, which discards the rest of it.
"""

from __future__ import annotations

from understudy import errors
from understudy.client.core.connection.listeners import FailoverEvent, FailoverListener, FailureCode, FailureListener
from understudy.client.core.connection.tracing import Tracing
from understudy.client.core.consumer.backoff import Backoff
from understudy.client.core.consumer.content import Content
from understudy.client.core.consumer.received import MessageView
from understudy.client.core.consumer.state import ReceivedMessage
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.large_sends import Readable
from understudy.client.core.session.send_options import MessageOptions, SendOptions
from understudy.client.core.url.destinations import QueueAttributes, RoutingType
from understudy.client.core.url.options import (
    ClientOptions,
    ClientUrl,
    Connector,
    DiscoveryGroup,
    ServingNode,
    TlsOptions,
)
from understudy.client.core.url.parsing import parse_url
from understudy.client.profiles import profile_url
from understudy.ids import Xid
from understudy.message import Message, MessageType
from understudy.properties import Properties, PropertyValue
from understudy.wire.core.packets import BindingQueryResponse, QueueQueryResponse

__all__ = [
    "AcknowledgeMode",
    "Backoff",
    "BindingQueryResponse",
    "ClientOptions",
    "ClientUrl",
    "Connector",
    "Content",
    "DiscoveryGroup",
    "FailoverEvent",
    "FailoverListener",
    "FailureCode",
    "FailureListener",
    "Message",
    "MessageOptions",
    "MessageType",
    "MessageView",
    "Properties",
    "PropertyValue",
    "QueueAttributes",
    "QueueQueryResponse",
    "Readable",
    "ReceivedMessage",
    "RoutingType",
    "SendOptions",
    "ServingNode",
    "TlsOptions",
    "Tracing",
    "Xid",
    "errors",
    "parse_url",
    "profile_url",
]
