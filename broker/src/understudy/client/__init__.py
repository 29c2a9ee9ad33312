"""The client: asyncio in ``aio``, blocking in ``sync``, the same names in both.

The core is pure (``state`` and the modules it uses); the two shells bring loops and sockets.

A body larger than ``minLargeMessageSize`` (100 KiB), or one that is read while it is sent, is a
large message and never whole in memory (``compressLargeMessage=true`` makes it a zlib stream)::

    await producer.send(Path("film.mkv"))           # or an open binary file, or an iterable of bytes
    message = await consumer.receive()
    await message.save_to("copy.mkv")               # or read_body(), or:
    async for piece in message.body_stream: ...

After a failover it is sent again from its beginning if it can be read again: bytes, paths, files
that can be sought, iterables that are no iterators; else ``send`` raises ``SendOutcomeUnknown``.
Received bodies up to 1 MiB are simply in ``message.body``; a larger one is read before the next
message is asked for, which discards what is left of it.
"""

from __future__ import annotations

from understudy.client.consumer_state import AcknowledgeMode, ReceivedMessage
from understudy.client.destinations import RoutingType
from understudy.client.url import ClientOptions, ClientUrl, Connector, parse_url

__all__ = [
    "AcknowledgeMode",
    "ClientOptions",
    "ClientUrl",
    "Connector",
    "ReceivedMessage",
    "RoutingType",
    "parse_url",
]
