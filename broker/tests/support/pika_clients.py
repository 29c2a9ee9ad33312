"""Connections of the AMQP 0-9-1 client pika to nodes on this host."""

from __future__ import annotations

from typing import Any

import pika  # type: ignore[import-untyped]  # has no types
from pika.exceptions import AMQPError  # type: ignore[import-untyped]


def connected(*ports: int, **options: Any) -> pika.BlockingConnection:
    """A connection to the first port that answers."""
    parameters = [
        pika.ConnectionParameters(
            "127.0.0.1", port, connection_attempts=1, socket_timeout=10, blocked_connection_timeout=30, **options
        )
        for port in ports
    ]
    return pika.BlockingConnection(parameters)


def connected_again(*ports: int) -> pika.BlockingConnection:
    """A connection to whichever node becomes active; the nodes answer or refuse within the limits of pika."""
    for _ in range(600):
        try:
            return connected(*ports)
        except (AMQPError, OSError):
            continue
    raise AssertionError(f"no node of {ports} became active")
