"""Every error Understudy raises on purpose.

::

    BrokerError
        ConfigError                 element path, file, line
        ProtocolError
            LocalProtocolError      our own side asked for something illegal
            RemoteProtocolError     the peer sent something illegal
                LimitExceeded       the peer asked for more than a limit allows
                UnsupportedPacket   a well-formed frame of a type we do not serve
        ConnectionFailed
            Unreachable             no answer at the address
            ConnectionLost          it was up and went away
            NotActive               a passive node answered; ``go_to`` names the active one
            FailoverTimedOut        no node became available in time
            CallTimedOut            no answer within call-timeout
            IncompatibleVersion     the peer speaks no version that we do
            SessionRejected         the node is starting or stopping; try again
            LockManagerUnavailable  no usable answer from the service that keeps locks and sequences
        OutcomeUnknown
            SendOutcomeUnknown | CommitOutcomeUnknown   cut off before the answer
        TransactionError
            TransactionRolledBack   everything in it was undone
            RollbackOnly            it can only be rolled back
            TransactionTooLarge     it, or all open transactions together, hold as much as they may
            UnknownTransaction      no such transaction here
            XaError                 a request about an XA branch; ``xa_code`` as of an XAException
            DuplicateIdRejected     a duplicate id inside a transaction
        AddressError
            AddressNotFound | AddressExists | AddressHasBindings | AddressFull
            QueueNotFound | QueueExists | QueueInUse | InvalidQueueConfiguration
            InvalidSelector | MaxConsumersExceeded | UnexpectedRoutingType | IllegalState
            SharedQueueMismatch         the shared queue asked for exists, but is another one
            DuplicateMetadata | ObjectClosed | DivertExists | DivertNotFound
        SecurityError
            AuthenticationFailed | NotAuthorized | ClusterSecurityError
        StoreError                  the node stops rather than guess
            JournalCorrupt          file and offset of the first bad byte
            StoreVersionUnsupported written by a newer Understudy
            WrongNode | StoreInUse | WrongStore | StoreBehind
            DiskFull | DiskFailed
                DescriptorsExhausted | SegmentMissing
            LockLost | LockTimedOut
            ReplicaFailed               the copy on another node; this one is not affected
        ActivationRefused           the data of this node is not the newest; says which is and what to do
        LargeMessageFailed          its body cannot be stored, or differs from the stored body
        MessageUnreadable           the body of one message in a queue is damaged, or cannot be read
        StoreFormatHeld             a record that a passive node of an older version could not read
        ManagementError             a request to manage something that cannot be carried out
            ResourceNotFound | MessageNotFound | OperationNotFound
        LedgerDamaged               a delivery ledger cannot be read; names file and line
        MachineError                an illegal (state, event) pair: our own bug

Each class carries a unique ``code`` (stable text for logs, JSON and tests), whether a
``retryable`` repetition can help, and an instance may add a ``hint`` for the operator.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class BrokerError(Exception):
    """Base of all errors raised on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or self.code)
        self.hint = hint

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.hint})" if self.hint else text


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that has been handled and is kept, or whose handler keeps it in a variable.

    A traceback refers to every frame that the error passed, and so to everything that was handled there;
    together with the place where the error is kept that is a reference cycle, which is freed late.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__


class ConfigError(BrokerError):
    """A configuration that cannot be used; names the element path and the line."""

    code = "config"
    names_missing = False  # whether the only fault is that something which is named does not exist

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line) if part is not None)
        prefix = " ".join(part for part in (place, path) if part)
        super().__init__(f"{prefix}: {message}" if prefix else message, hint=hint)
        self.path, self.file, self.line = path, file, line


class ProtocolError(BrokerError):
    """A breach of the wire protocol."""

    code = "protocol"


class LocalProtocolError(ProtocolError):
    """Our own side asked the codec for something illegal."""

    code = "protocol-local"


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that break the protocol; the connection is closed."""

    code = "protocol-remote"


class LimitExceeded(RemoteProtocolError):
    """The peer asked for more than a named limit (``limits.py``) allows."""

    code = "limit-exceeded"


class UnsupportedPacket(RemoteProtocolError):
    """A well-formed frame whose type is not served."""

    code = "unsupported-packet"

    def __init__(self, message: str = "", *, packet_type: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.packet_type = packet_type


class ConnectionFailed(BrokerError):
    """No broker could be reached, or the connection to it was lost."""

    code = "connection"
    retryable = True


class Unreachable(ConnectionFailed):
    """The address gave no answer."""

    code = "unreachable"


class ConnectionLost(ConnectionFailed):
    """The connection was up and went away."""

    code = "connection-lost"


class NotActive(ConnectionFailed):
    """A passive node answered; ``go_to`` names the active one where it is known."""

    code = "not-active"

    def __init__(self, message: str = "", *, go_to: str | None = None) -> None:
        super().__init__(message)
        self.go_to = go_to


class FailoverTimedOut(ConnectionFailed):
    """No node became available within the attempts or the time allowed."""

    code = "failover-timed-out"


class CallTimedOut(ConnectionFailed):
    """The peer did not answer within call-timeout."""

    code = "call-timed-out"


class IncompatibleVersion(ConnectionFailed):
    """The peer speaks no protocol version that we do."""

    code = "incompatible-version"
    retryable = False


class SessionRejected(ConnectionFailed):
    """The node is starting or stopping and takes no sessions; try again."""

    code = "session-rejected"


class LockManagerUnavailable(ConnectionFailed):
    """The lock manager gave no usable answer; the text names the provider and its address."""

    code = "lock-manager-unavailable"


class OutcomeUnknown(BrokerError):
    """The answer was cut off; never retried silently."""

    code = "outcome-unknown"


class SendOutcomeUnknown(OutcomeUnknown):
    """A durable send was cut off before its confirmation."""

    code = "send-outcome-unknown"


class CommitOutcomeUnknown(OutcomeUnknown):
    """A commit was cut off before its answer (CORE TRANSACTION_OUTCOME_UNKNOWN)."""

    code = "commit-outcome-unknown"


class TransactionError(BrokerError):
    """A request on a transaction cannot be carried out."""

    code = "transaction"


class TransactionRolledBack(TransactionError):
    """Everything in the transaction was undone."""

    code = "transaction-rolled-back"
    retryable = True


class RollbackOnly(TransactionError):
    """The transaction can only be rolled back."""

    code = "rollback-only"


class TransactionTooLarge(TransactionError):
    """A transaction, or all open transactions of a session or node together, hold as much as they may (``limits``)."""

    code = "transaction-too-large"


class UnknownTransaction(TransactionError):
    """The broker knows no such transaction."""

    code = "unknown-transaction"


class XaCode(IntEnum):
    """Outcomes of requests about XA branches (X/Open XA; artemis-core s. 4.5). 100 to 107: it was rolled back."""

    OK = 0
    HEURISTIC_ROLLBACK = 6
    HEURISTIC_COMMIT = 7
    ROLLED_BACK = 100
    ROLLED_BACK_OTHER = 104
    ROLLED_BACK_TIMEOUT = 106
    RESOURCE_MANAGER_ERROR = -3
    UNKNOWN_XID = -4
    INVALID = -5
    PROTOCOL = -6
    RESOURCE_MANAGER_FAILED = -7
    DUPLICATE_XID = -8


class XaError(TransactionError):
    """A request about an XA branch was refused; ``xa_code`` says why, as an XAException does."""

    code = "xa"

    def __init__(
        self, message: str = "", *, xa_code: int = XaCode.RESOURCE_MANAGER_ERROR, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.xa_code = xa_code
        """Code of the error, one of ``XaCode`` or another number of X/Open XA."""


class DuplicateIdRejected(TransactionError):
    """A duplicate id was met inside a transaction."""

    code = "duplicate-id-rejected"


class AddressError(BrokerError):
    """A request on an address, queue, consumer or selector cannot be carried out."""

    code = "address"


class AddressNotFound(AddressError):
    """The address does not exist and may not be created."""

    code = "address-not-found"


class AddressExists(AddressError):
    """An address of this name exists already."""

    code = "address-exists"


class AddressHasBindings(AddressError):
    """The address cannot be deleted while queues are bound to it."""

    code = "address-has-bindings"


class AddressFull(AddressError):
    """The address or the disk is full and its policy is to fail."""

    code = "address-full"
    retryable = True


class QueueNotFound(AddressError):
    """The queue does not exist and may not be created."""

    code = "queue-not-found"


class QueueExists(AddressError):
    """A queue of this name exists already."""

    code = "queue-exists"


class QueueInUse(AddressError):
    """The queue cannot be deleted while it has consumers."""

    code = "queue-in-use"


class InvalidQueueConfiguration(AddressError):
    """The requested properties of a queue contradict each other or its address."""

    code = "invalid-queue-configuration"


class InvalidSelector(AddressError):
    """A filter cannot be parsed, or is larger than the limits for filters."""

    code = "invalid-selector"


class MaxConsumersExceeded(AddressError):
    """The queue has as many consumers as its ``max-consumers`` allows."""

    code = "max-consumers-exceeded"


class UnexpectedRoutingType(AddressError):
    """The address does not have the routing type that the message or queue needs."""

    code = "unexpected-routing-type"


class IllegalState(AddressError):
    """The request is not allowed in the present state of the session or consumer."""

    code = "illegal-state"


class SharedQueueMismatch(AddressError):
    """A shared queue of this name exists with another address or filter (CORE
    INVALID_TRANSIENT_QUEUE_USE).
    """

    code = "shared-queue-mismatch"


class DivertExists(AddressError):
    """A divert of this name exists already."""

    code = "divert-exists"


class DivertNotFound(AddressError):
    """No divert has this name."""

    code = "divert-not-found"


class DuplicateMetadata(AddressError):
    """Another session has the same unique metadata (a JMS client id)."""

    code = "duplicate-metadata"


class ObjectClosed(AddressError):
    """The connection, session, producer or consumer is closed."""

    code = "object-closed"


class SecurityError(BrokerError):
    """The identity or a permission of the client was refused."""

    code = "security"


class AuthenticationFailed(SecurityError):
    """User or password are wrong."""

    code = "authentication-failed"


class NotAuthorized(SecurityError):
    """The user lacks a permission; the text names it and the address."""

    code = "not-authorized"


class ClusterSecurityError(SecurityError):
    """A broker-to-broker link failed to prove the cluster credentials."""

    code = "cluster-security"


class StoreError(BrokerError):
    """The store cannot be trusted; the node stops rather than guess."""

    code = "store"


class JournalCorrupt(StoreError):
    """A bad record that is not a torn tail; names the file and the offset."""

    code = "journal-corrupt"

    def __init__(self, message: str, *, file: str, offset: int, hint: str | None = None) -> None:
        super().__init__(f"{file} at offset {offset}: {message}", hint=hint)
        self.file = file
        self.offset = offset


class StoreVersionUnsupported(StoreError):
    """The store was written by a newer Understudy."""

    code = "store-version"


class WrongNode(StoreError):
    """The store belongs to another node id."""

    code = "wrong-node"


class StoreInUse(StoreError):
    """A broker runs on the store, so that it changes while it is read."""

    code = "store-in-use"


class WrongStore(StoreError):
    """The store has another identity than the instance directory notes, or none: it may not be mounted."""

    code = "wrong-store"


class StoreBehind(StoreError):
    """The store's log ends before a position that this node has seen: an older copy, or newest epochs deleted."""

    code = "store-behind"


class DiskFull(StoreError):
    """The disk of the store has no space for another message."""

    code = "disk-full"
    retryable = True


class DiskFailed(StoreError):
    """A write or a sync failed; the outcome of unconfirmed operations is unknown."""

    code = "disk-failed"


class DescriptorsExhausted(DiskFailed):
    """The process or the machine has no file descriptor left; this says nothing about the disk or a lock."""

    code = "descriptors-exhausted"
    retryable = True


class SegmentMissing(DiskFailed):
    """A segment of the log was removed while the node uses it: by the next owner of the store, or by hand."""

    code = "segment-missing"


class ReplicaFailed(StoreError):
    """The copy of the store on another node cannot be completed or kept up to date; the store is not affected."""

    code = "replica-failed"
    retryable = True


class LockLost(StoreError):
    """The store's lock is no longer ours or cannot be verified."""

    code = "lock-lost"


class LockTimedOut(StoreError):
    """The store's lock was not had within journal-lock-acquisition-timeout."""

    code = "lock-timed-out"
    retryable = True


class ActivationRefused(BrokerError):
    """The node must not activate: the activation sequence of the lock manager says that its data is not the newest."""

    code = "activation-refused"


class LargeMessageFailed(BrokerError):
    """The body of one large message cannot be stored, or its file is missing, short or not what was
    stored; names the file. The store as a whole is as good as before.
    """

    code = "large-message-failed"

    def __init__(self, message: str = "", *, file: str = "") -> None:
        super().__init__(f"{file}: {message}" if file else message)
        self.file = file


class MessageUnreadable(BrokerError):
    """The body of one message in a queue is damaged or cannot be read (``__cause__`` says why); the store as a
    whole is as good as before.
    """

    code = "message-unreadable"


class StoreFormatHeld(BrokerError):
    """A record of a later format version than a passive node of the pair reads; nothing was written."""

    code = "store-format-held"
    retryable = True


class ManagementError(BrokerError):
    """A management request that cannot be understood or carried out; the text names the requested operation."""

    code = "management"


class ResourceNotFound(ManagementError):
    """No managed resource has this name."""

    code = "resource-not-found"


class MessageNotFound(ManagementError):
    """The queue has no message of this id."""

    code = "message-not-found"


class OperationNotFound(ManagementError):
    """The resource has no operation or attribute of this name with these parameters."""

    code = "operation-not-found"


class LedgerDamaged(BrokerError):
    """A line of a delivery ledger is no row; names the file and the line (from 1)."""

    code = "ledger-damaged"

    def __init__(self, message: str, *, file: str, line: int, hint: str | None = None) -> None:
        super().__init__(f"{file}:{line}: {message}", hint=hint)
        self.file = file
        self.line = line


class MachineError(BrokerError):
    """An illegal (state, event) pair: a bug of our own."""

    code = "machine"


def all_error_types() -> list[type[BrokerError]]:
    """Every error class, base first, for tables and tests."""
    found: list[type[BrokerError]] = [BrokerError]
    for cls in found:
        found.extend(cls.__subclasses__())
    return found
