"""SASL mechanisms of AMQP 0-9-1: user and password in the response of connection.start-ok."""

from __future__ import annotations

from typing import Final, NamedTuple

from understudy.limits import AMQP091_TABLE_DEPTH_BEFORE_LOGIN_MAX, AMQP091_TABLE_VALUES_BEFORE_LOGIN_MAX
from understudy.wire.amqp091.codes import Amqp091Error, ReplyCode
from understudy.wire.amqp091.tables import decode_table

PLAIN = "PLAIN"
AMQPLAIN = "AMQPLAIN"
EXTERNAL = "EXTERNAL"
#: User and password that RabbitMQ and its clients have by default, known to everyone.
DEFAULT_LOGIN: Final = ("guest", "guest")


class Credentials(NamedTuple):
    """User and password of a client; both are None with the mechanism EXTERNAL."""

    user: str | None
    password: str | None


def mechanisms(*, by_certificate: bool) -> tuple[str, ...]:
    """Mechanisms that a client may choose.

    Args:
        by_certificate: Whether the client can log in by its certificate.
    """
    return (PLAIN, AMQPLAIN, EXTERNAL) if by_certificate else (PLAIN, AMQPLAIN)


def credentials(mechanism: str, response: bytes, *, by_certificate: bool) -> Credentials:
    """User and password of a response.

    Args:
        mechanism: Mechanism as the client chose it.
        response: Response of the mechanism.
        by_certificate: The same as for ``mechanisms``.

    Raises:
        Amqp091Error: ACCESS_REFUSED: a mechanism that was not offered, or a response that cannot be read.
    """
    if mechanism not in mechanisms(by_certificate=by_certificate):
        raise Amqp091Error(ReplyCode.ACCESS_REFUSED, "the mechanism was not offered", closes_connection=True)
    if mechanism == EXTERNAL:
        return Credentials(None, None)
    try:
        if mechanism == PLAIN:
            _, user, password = response.decode().split("\0")
            return Credentials(user, password)
        table, _ = decode_table(
            len(response).to_bytes(4, "big") + response,
            0,
            len(response) + 4,
            depth_max=AMQP091_TABLE_DEPTH_BEFORE_LOGIN_MAX,
            values_max=AMQP091_TABLE_VALUES_BEFORE_LOGIN_MAX,
        )
        named, secret = table["LOGIN"], table["PASSWORD"]
        if isinstance(named, str) and isinstance(secret, str):
            return Credentials(named, secret)
    except (ValueError, KeyError, Amqp091Error):
        pass
    raise Amqp091Error(ReplyCode.ACCESS_REFUSED, "the response cannot be read", closes_connection=True)
