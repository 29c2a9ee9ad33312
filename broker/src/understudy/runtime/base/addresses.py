"""Facts about a socket of the loop: its addresses and its TLS."""

from __future__ import annotations

import asyncio
import ssl

from understudy.ports import Security


def address_text(transport: asyncio.BaseTransport, name: str) -> str:
    """Text ``host:port`` of one end of a socket.

    Args:
        name: ``peername`` or ``sockname``.
    """
    address = transport.get_extra_info(name)
    return f"{address[0]}:{address[1]}" if address else "?"


def security_of(transport: asyncio.BaseTransport) -> Security:
    """Protection of the bytes of a dialled connection."""
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is None:
        return Security.NONE
    return Security.TLS_VERIFIED if tls.context.check_hostname else Security.TLS
