"""Both protocols of the Python client: URLs of the same nodes."""

from __future__ import annotations

from typing import Final

#: Names of the protocols, for tests that are run with each.
TRANSPORTS: Final = ("core", "amqp091")


def url_by(transport: str, url: str) -> str:
    """The URL of the same nodes by a protocol.

    Args:
        transport: One of ``TRANSPORTS``.
        url: A URL of CORE, whose ports serve both protocols.
    """
    if transport == "core":
        return url
    inside, bracket, query = url.removeprefix("(").partition(")?")
    if not bracket:
        inside, _, query = url.partition("?")
    hosts = ",".join(each.removeprefix("tcp://") for each in inside.split(","))
    return f"amqp091://{hosts}?{query}"
