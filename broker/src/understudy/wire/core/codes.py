"""CORE exception codes and the table that maps them to our error classes and back (artemis-core s. 7.3).

A broker calls ``code_of`` for the code of an error response; a client calls ``error_of`` for the
exception to raise. Codes that only a client library produces (``UNBLOCKED``, ``NOT_CONNECTED``) are
included, so that every number has a class.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from understudy import errors
from understudy.errors import BrokerError


class ErrorCode(IntEnum):
    """``code`` of an ``ExceptionResponse``."""

    INTERNAL_ERROR = 0
    UNSUPPORTED_PACKET = 1
    NOT_CONNECTED = 2
    CONNECTION_TIMEDOUT = 3
    DISCONNECTED = 4
    UNBLOCKED = 5
    IO_ERROR = 6
    QUEUE_DOES_NOT_EXIST = 100
    QUEUE_EXISTS = 101
    OBJECT_CLOSED = 102
    INVALID_FILTER_EXPRESSION = 103
    ILLEGAL_STATE = 104
    SECURITY_EXCEPTION = 105
    ADDRESS_DOES_NOT_EXIST = 106
    ADDRESS_EXISTS = 107
    INCOMPATIBLE_CLIENT_SERVER_VERSIONS = 108
    LARGE_MESSAGE_ERROR_BODY = 110
    TRANSACTION_ROLLED_BACK = 111
    SESSION_CREATION_REJECTED = 112
    DUPLICATE_ID_REJECTED = 113
    DUPLICATE_METADATA = 114
    TRANSACTION_OUTCOME_UNKNOWN = 115
    ALREADY_REPLICATING = 116
    INTERCEPTOR_REJECTED_PACKET = 117
    INVALID_TRANSIENT_QUEUE_USE = 118
    REMOTE_DISCONNECT = 119
    TRANSACTION_TIMEOUT = 120
    NATIVE_ERROR_200 = 200
    NATIVE_ERROR_201 = 201
    NATIVE_ERROR_202 = 202
    NATIVE_ERROR_203 = 203
    NATIVE_ERROR_204 = 204
    NATIVE_ERROR_205 = 205
    NATIVE_ERROR_206 = 206
    NATIVE_ERROR_208 = 208
    NATIVE_ERROR_209 = 209
    ADDRESS_FULL = 210
    LARGE_MESSAGE_INTERRUPTED = 211
    CLUSTER_SECURITY_EXCEPTION = 212
    NOT_IMPLEMENTED = 213
    MAX_CONSUMER_LIMIT_EXCEEDED = 214
    UNEXPECTED_ROUTING_TYPE_FOR_ADDRESS = 215
    INVALID_QUEUE_CONFIGURATION = 216
    DELETE_ADDRESS_ERROR = 217
    NULL_REF = 218
    SHUTDOWN_ERROR = 219
    REPLICATION_TIMEOUT_ERROR = 220
    DIVERT_DOES_NOT_EXIST = 221
    ROUTING_EXCEPTION = 222
    TIMEOUT = 223
    GENERIC = 999


#: One row per known pair. ``code_of`` takes the row of the class of the error, or of its nearest base
#: class that has one; ``error_of`` takes the first row of a code.
_ROWS: Final[tuple[tuple[ErrorCode, type[BrokerError]], ...]] = (
    (ErrorCode.INTERNAL_ERROR, errors.BrokerError),
    (ErrorCode.UNSUPPORTED_PACKET, errors.UnsupportedPacket),
    (ErrorCode.NOT_CONNECTED, errors.Unreachable),
    (ErrorCode.CONNECTION_TIMEDOUT, errors.CallTimedOut),
    (ErrorCode.CONNECTION_TIMEDOUT, errors.FailoverTimedOut),
    (ErrorCode.DISCONNECTED, errors.ConnectionLost),
    (ErrorCode.DISCONNECTED, errors.ConnectionFailed),
    # The connection was lost during a blocking call: its outcome is unknown.
    (ErrorCode.UNBLOCKED, errors.OutcomeUnknown),
    (ErrorCode.IO_ERROR, errors.StoreError),
    (ErrorCode.QUEUE_DOES_NOT_EXIST, errors.QueueNotFound),
    (ErrorCode.QUEUE_EXISTS, errors.QueueExists),
    (ErrorCode.OBJECT_CLOSED, errors.ObjectClosed),
    (ErrorCode.INVALID_FILTER_EXPRESSION, errors.InvalidSelector),
    (ErrorCode.ILLEGAL_STATE, errors.IllegalState),
    (ErrorCode.ILLEGAL_STATE, errors.QueueInUse),
    (ErrorCode.ILLEGAL_STATE, errors.DivertExists),
    (ErrorCode.ILLEGAL_STATE, errors.AddressError),
    (ErrorCode.ILLEGAL_STATE, errors.UnknownTransaction),
    (ErrorCode.ILLEGAL_STATE, errors.LimitExceeded),
    # Authentication and authorisation errors share a code, so the client raises their base class.
    (ErrorCode.SECURITY_EXCEPTION, errors.SecurityError),
    (ErrorCode.ADDRESS_DOES_NOT_EXIST, errors.AddressNotFound),
    (ErrorCode.ADDRESS_EXISTS, errors.AddressExists),
    (ErrorCode.INCOMPATIBLE_CLIENT_SERVER_VERSIONS, errors.IncompatibleVersion),
    (ErrorCode.LARGE_MESSAGE_ERROR_BODY, errors.LargeMessageFailed),
    (ErrorCode.TRANSACTION_ROLLED_BACK, errors.TransactionRolledBack),
    (ErrorCode.TRANSACTION_ROLLED_BACK, errors.RollbackOnly),
    (ErrorCode.TRANSACTION_ROLLED_BACK, errors.TransactionTooLarge),
    (ErrorCode.SESSION_CREATION_REJECTED, errors.SessionRejected),
    # A client that connected to a passive node retries later, as it does with a node that is starting.
    (ErrorCode.SESSION_CREATION_REJECTED, errors.NotActive),
    (ErrorCode.DUPLICATE_ID_REJECTED, errors.DuplicateIdRejected),
    (ErrorCode.DUPLICATE_METADATA, errors.DuplicateMetadata),
    (ErrorCode.TRANSACTION_OUTCOME_UNKNOWN, errors.CommitOutcomeUnknown),
    (ErrorCode.ALREADY_REPLICATING, errors.IllegalState),
    (ErrorCode.INTERCEPTOR_REJECTED_PACKET, errors.IllegalState),
    (ErrorCode.INVALID_TRANSIENT_QUEUE_USE, errors.SharedQueueMismatch),
    (ErrorCode.REMOTE_DISCONNECT, errors.ConnectionLost),
    (ErrorCode.TRANSACTION_TIMEOUT, errors.TransactionRolledBack),
    *((code, errors.DiskFailed) for code in ErrorCode if 200 <= code <= 209),
    (ErrorCode.ADDRESS_FULL, errors.AddressFull),
    (ErrorCode.ADDRESS_FULL, errors.DiskFull),
    (ErrorCode.LARGE_MESSAGE_INTERRUPTED, errors.ObjectClosed),
    (ErrorCode.CLUSTER_SECURITY_EXCEPTION, errors.ClusterSecurityError),
    (ErrorCode.NOT_IMPLEMENTED, errors.UnsupportedPacket),
    (ErrorCode.MAX_CONSUMER_LIMIT_EXCEEDED, errors.MaxConsumersExceeded),
    # Code of Artemis when a queue or an address is created or changed; other brokers send 215.
    (ErrorCode.INTERNAL_ERROR, errors.UnexpectedRoutingType),
    (ErrorCode.UNEXPECTED_ROUTING_TYPE_FOR_ADDRESS, errors.UnexpectedRoutingType),
    (ErrorCode.INVALID_QUEUE_CONFIGURATION, errors.InvalidQueueConfiguration),
    (ErrorCode.DELETE_ADDRESS_ERROR, errors.AddressHasBindings),
    (ErrorCode.NULL_REF, errors.BrokerError),
    (ErrorCode.SHUTDOWN_ERROR, errors.ConnectionLost),
    (ErrorCode.REPLICATION_TIMEOUT_ERROR, errors.StoreError),
    (ErrorCode.DIVERT_DOES_NOT_EXIST, errors.DivertNotFound),
    # A session refused with a redirect to another node.
    (ErrorCode.ROUTING_EXCEPTION, errors.NotActive),
    (ErrorCode.TIMEOUT, errors.CallTimedOut),
    (ErrorCode.GENERIC, errors.BrokerError),
)

_CODE_OF: Final[dict[type[BrokerError], ErrorCode]] = {}
_ERROR_OF: Final[dict[int, type[BrokerError]]] = {}
for _code, _error in _ROWS:
    _CODE_OF.setdefault(_error, _code)
    _ERROR_OF.setdefault(_code, _error)


def code_of(error: BaseException) -> ErrorCode:
    """The code for an error; ``INTERNAL_ERROR`` for exceptions of other classes."""
    for cls in type(error).__mro__:
        code = _CODE_OF.get(cls)
        if code is not None:
            return code
    return ErrorCode.INTERNAL_ERROR


def error_of(code: int, message: str | None = None) -> BrokerError:
    """The exception for an error response; a plain ``BrokerError`` for an unknown code."""
    cls = _ERROR_OF.get(code, BrokerError)
    if message:
        return cls(message)
    try:
        return cls(ErrorCode(code).name.lower().replace("_", " "))
    except ValueError:
        return cls(f"the peer sent the unknown error code {code}")
