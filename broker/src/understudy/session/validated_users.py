"""The validated user of messages: populate-validated-user and reject-empty-validated-user.

The name is the property ``_AMQ_VALIDATED_USER`` (JMS: ``JMSXUserID``). What a client writes there is removed like
every property that only a broker writes, so consumers may trust it. A user is validated by a login that was
checked: without security-enabled no user is.
"""

from __future__ import annotations

from understudy.dataclass import dataclass
from understudy.errors import IllegalState
from understudy.message import VALIDATED_USER, Message


@dataclass(frozen=True, slots=True)
class ValidatedUsers:
    """Settings for the user of each message."""

    populate: bool = False
    """Write the name into every message (populate-validated-user)."""
    reject_empty: bool = False
    """Whether messages without a validated user are refused (reject-empty-validated-user)."""

    def __bool__(self) -> bool:
        return self.populate or self.reject_empty

    def apply(self, message: Message, user: str | None) -> Message:
        """The message of a client as it is routed.

        Args:
            message: Without properties that the client may not set.
            user: Validated user of its session; None without one.

        Raises:
            IllegalState: it has no validated user and such messages are rejected.
        """
        if VALIDATED_USER in message.properties:
            # of a message that was sent to another broker, or here earlier
            return message
        if self.populate and user:
            return message.with_validated_user(user)
        if self.reject_empty:
            raise IllegalState("a message without a validated user is rejected (reject-empty-validated-user)")
        return message
