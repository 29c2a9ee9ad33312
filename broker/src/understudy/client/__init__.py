"""The client: asyncio in ``aio``, blocking in ``sync``, the same names in both.

The core is pure (``state`` and the modules it uses); the two shells bring loops and sockets.
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
