"""Management over messages: requests sent to the management address, and their replies.

Source: artemis-core s. 10.1. A request names a resource and an operation, with its parameters as a
JSON array in the body, or an attribute; the reply says whether it succeeded and contains a JSON
array of one element, the result or the error. Requests are not queued at the management address.

Implements ``session.callback.Management``. Not here: permission to manage and where replies go
(the session), what the operations do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from understudy.errors import BrokerError, LimitExceeded, ManagementError, RemoteProtocolError
from understudy.ids import uuid_text
from understudy.limits import MANAGEMENT_REQUEST_BYTES_MAX, STRING_UNITS_MAX
from understudy.management.doors.error_numbers import numbered
from understudy.management.json_text import parse_json
from understudy.management.operations.invocation import REQUEST_ID_MAX, Invocations, Requester
from understudy.message import CORRELATION_ID, REPLY_TO, Message, MessageType
from understudy.properties import Properties, decode_simple_string, encode_simple_string
from understudy.session.callback import SessionSecurity
from understudy.session.error_texts import ErrorTexts

RESOURCE: Final = "_AMQ_ResourceName"
OPERATION: Final = "_AMQ_OperationName"
ATTRIBUTE: Final = "_AMQ_Attribute"
SUCCEEDED: Final = "_AMQ_OperationSucceeded"
_CORRELATION_ID: Final = "JMSCorrelationID"
_NATIVE_MESSAGE_ID: Final = "NATIVE_MESSAGE_ID"


class ManagementRequests:
    """Handles requests in messages and sends their replies."""

    def __init__(self, address: str, invocations: Invocations) -> None:
        self.address = address
        self._invocations = invocations

    def handle(
        self, request: Message, security: SessionSecurity, remote_address: str, reply: Callable[[Message], None]
    ) -> None:
        """Handle a request; ``reply`` is called once, usually before this returns."""

        def answer(result: object, error: BrokerError | None) -> None:
            reply(_reply(request, result, error, self._invocations.node.services.error_texts))

        properties = request.properties
        given = properties.get(_CORRELATION_ID)
        request_id = given[:REQUEST_ID_MAX] if isinstance(given, str) else ""
        requester = Requester(security, remote_address.rpartition(":")[0], request_id)
        resource, operation = properties.get(RESOURCE), properties.get(OPERATION)
        attribute = properties.get(ATTRIBUTE)
        try:
            if not isinstance(resource, str):
                raise ManagementError(f"the request has no {RESOURCE}")
            if isinstance(operation, str):
                values = parameters_of(request)
                self._invocations.invoke(resource, operation, values, requester, answer)
            elif isinstance(attribute, str):
                self._invocations.read(resource, attribute, requester, answer)
            else:
                raise ManagementError(f"the request has neither {OPERATION} nor {ATTRIBUTE}")
        except BrokerError as error:
            answer(None, error)


def parameters_of(request: Message) -> Sequence[object]:
    """Parse the parameters in the body of a request; none if it has no text.

    Raises:
        ManagementError: the body is not a JSON array in a nullable SimpleString.
        LimitExceeded: the body is too long.
    """
    body = request.body
    if len(body) > MANAGEMENT_REQUEST_BYTES_MAX:
        raise LimitExceeded(f"management request of {len(body)} bytes, limit {MANAGEMENT_REQUEST_BYTES_MAX}")
    if not body or not body[0]:
        return ()
    try:
        text, _ = decode_simple_string(body, 1, len(body))
        values = parse_json(text)
    except (RemoteProtocolError, ValueError) as error:
        raise ManagementError(f"the parameters are not JSON that can be read: {error}") from error
    if not isinstance(values, list):
        raise ManagementError("the parameters are not a JSON array")
    return values


def _reply(request: Message, result: object, error: BrokerError | None, texts: ErrorTexts) -> Message:
    if error is None and result is not None:
        text = json.dumps([result], ensure_ascii=False, separators=(",", ":"))
        if len(text) > STRING_UNITS_MAX:
            error = LimitExceeded(f"a result of {len(text)} characters, limit {STRING_UNITS_MAX}: ask for a page of it")
    if error is not None:
        # errors of reading an attribute have no number in Artemis
        told = texts.remote(error)
        text = json.dumps([numbered(error, told) if OPERATION in request.properties else told])
    properties = Properties({SUCCEEDED: error is None})
    for name in (REPLY_TO, CORRELATION_ID):
        if name in request.properties:
            properties.set_typed(name, request.properties.tag(name), request.properties[name])
    if CORRELATION_ID not in properties:
        native = request.properties.get(_NATIVE_MESSAGE_ID)
        if isinstance(native, str):
            properties[CORRELATION_ID] = native
        elif request.user_id is not None:
            properties[CORRELATION_ID] = uuid_text(request.user_id)
    body = b"\x00" if error is None and result is None else b"\x01" + encode_simple_string(text)
    return Message(body, type=MessageType.TEXT, durable=False, properties=properties)
