"""``sendMessage`` of addresses and queues: sends a message for an operator.

The permissions are those of the given user, or of the requester if none is given; wrong
passwords count as failed logins of the requester's host.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Mapping
from typing import Final

from understudy.errors import BrokerError, ManagementError
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import flag, integer, mapping, text
from understudy.message import Message, MessageType
from understudy.properties import PropertyValue, encode_simple_string
from understudy.routing.post_office import ResponseOrder
from understudy.security.authentication import Principal
from understudy.session.callback import SessionSecurity
from understudy.terms import Permission

SENDING_PARAMETERS: Final = (
    mapping("headers"),
    integer("type"),
    text("body", nullable=True),
    flag("durable"),
    text("user", nullable=True),
    text("password", nullable=True),
)


def send(
    control: Control,
    address: str,
    headers: Mapping[str, object] | None,
    kind: int,
    body: str | None,
    durable: bool,
    user: str | None,
    password: str | None,
    create_message_id: bool = False,
) -> Generator[None, None, str]:
    """Send a message to an address.

    Args:
        control: Control of the requester.
        address: Plain or ``address::queue``.
        headers: String properties.
        kind: Message type: 3 is text; the body of every other type is Base64.
        body: None is an empty body.
        durable: Whether the message is durable.
        user: User as which it is sent; None is the requester.
        password: Password of the user.
        create_message_id: Set a user id, which is the message id in JMS.

    Returns:
        The id of the message.

    Raises:
        NotAuthorized, AuthenticationFailed, ManagementError, and what sending raises.
    """
    services = control.node.services
    security = yield from _sender(control, user, password)
    name, _, queue = address.partition("::")
    security.check(Permission.SEND, name, queue or None)
    if name not in services.sessions.post_office.directory.addresses:
        security.check(Permission.CREATE_ADDRESS, name)
    if not 0 <= kind <= 127:
        raise ManagementError(f"message type {kind}: 0 to 127")
    properties: dict[str, PropertyValue] = {}
    for key, value in (headers or {}).items():
        if not isinstance(value, str):
            raise ManagementError(f"header {key!r} is not a string")
        properties[key] = value
    message = Message(
        _body(kind, body),
        address=address,
        type=kind,
        durable=durable,
        # a message of an operator is appended to the queue, as in Artemis
        priority=0,
        timestamp=services.clock.wall_ms(),
        user_id=services.entropy.token(16) if create_message_id else None,
        properties=properties,
    ).without_reserved()
    if services.sessions.validated_users:
        message = services.sessions.validated_users.apply(
            message, security.user if services.access.policy.checks else None
        )
    services.sessions.post_office.send(message, ResponseOrder())
    return str(message.message_id)


def _body(kind: int, body: str | None) -> bytes:
    if kind == MessageType.TEXT:
        return b"\x00" if body is None else b"\x01" + encode_simple_string(body)
    try:
        return base64.b64decode(body or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ManagementError(f"the body of a message of type {kind} must be Base64: {error}") from error


def _sender(control: Control, user: str | None, password: str | None) -> Generator[None, None, SessionSecurity]:
    """The permissions of the sender, after the check of the password."""
    if not user:
        return control.requester.security
    services = control.node.services
    told: list[Principal | BrokerError] = []
    found = services.access.logins.ask(control.requester.host, user, password, told.append)
    if isinstance(found, Principal):
        return services.access.permissions(found)
    while not told:
        yield
    if isinstance(told[0], BrokerError):
        raise told[0]
    return services.access.permissions(told[0])
