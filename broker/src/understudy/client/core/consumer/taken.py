"""Messages that one consumer has given to the application, and their acknowledgements.

Acknowledgements are cumulative (artemis-core s. 6.4): one packet covers everything up to a message. Not here: buffers
and credits (``consumer``), or when which packet is sent (``consumers``, ``transactions``).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NoReturn

from understudy.wire.core.packets import Acknowledge


class AcknowledgeMode(Enum):
    """When received messages leave their queue (artemis-core s. 6.1)."""

    AUTO = "auto"
    """When the next one is asked for, when the handler returned, or at a close."""
    CLIENT = "client"
    """When the application calls ``acknowledge``: everything the session received so far."""
    INDIVIDUAL = "individual"
    """When the application calls ``acknowledge``: that message alone."""
    TRANSACTED = "transacted"
    """The message is acknowledged by the commit of the session's transaction."""
    DUPS_OK = "dups-ok"
    """When dupsOKBatchSize bytes were taken, or at a close: fewer packets, more seen again after a failure."""
    PRE_ACKNOWLEDGE = "pre"
    """The broker acknowledges messages before it sends them, so each arrives at most once."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"{value!r} is no mode of acknowledgement: {', '.join(each.value for each in cls)}")


_BY_THE_APPLICATION: Final = (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.TRANSACTED)


class TakenMessages:
    """Ids of the handed out messages of a consumer that are not acknowledged.

    A message is *unfinished* until the next one is asked for (AUTO, DUPS_OK) or until it is acknowledged (CLIENT,
    INDIVIDUAL); in the other modes none is.
    """

    __slots__ = ("_acknowledged_bytes", "_finished", "_last", "_mode", "_released", "_unsettled", "taken_bytes")

    def __init__(self, mode: AcknowledgeMode, batch_bytes: int) -> None:
        """``batch_bytes``: bytes taken after which a batch is acknowledged (DUPS_OK)."""
        self._mode = mode
        self._acknowledged_bytes = batch_bytes
        self.taken_bytes = 0
        """Bytes taken since the last acknowledgement."""
        self._last: int | None = None
        """Last message given to the application; it and those before it are not acknowledged."""
        self._finished: int | None = None
        """DUPS_OK: the last one after which another was asked for, if it is not released."""
        self._released: int | None = None
        """Last message that may be acknowledged."""
        self._unsettled: dict[int, None] = {}
        """Messages that are not acknowledged, in order; used by the modes CLIENT, INDIVIDUAL and TRANSACTED."""

    def asked(self) -> bool:
        """Called when the application asks for the next message. Whether an acknowledgement is due that was not
        before."""
        mode = self._mode
        if mode is AcknowledgeMode.AUTO:
            return self.release()
        if mode is AcknowledgeMode.DUPS_OK:
            self._finished = self._last
            return self.taken_bytes >= self._acknowledged_bytes and self.release()
        return False

    def add(self, message_id: int, size_bytes: int) -> None:
        """Called when a message was handed out."""
        self._last = message_id
        self.taken_bytes += size_bytes
        if self._mode in _BY_THE_APPLICATION:
            self._unsettled[message_id] = None

    def release(self) -> bool:
        """Everything handed out so far may be acknowledged. Whether an acknowledgement is due that was not before."""
        last = self._last
        if last is None:
            return False
        new = self._released is None
        self._released, self._last, self._finished = last, None, None
        self.taken_bytes = 0
        if self._mode is not AcknowledgeMode.INDIVIDUAL:
            self._unsettled.clear()
        return new

    def in_work(self, message_id: int) -> bool:
        """Whether a message may still have an outcome of its own: no acknowledgement has covered it."""
        if self._mode in _BY_THE_APPLICATION:
            return message_id in self._unsettled
        return message_id == self._last and message_id != self._finished

    def settled(self, message_id: int) -> None:
        """Note that a message in work has an outcome of its own, so that no acknowledgement covers it."""
        if self._mode in _BY_THE_APPLICATION:
            self._unsettled.pop(message_id, None)
            if message_id == self._last:
                self._last = next(reversed(self._unsettled), None)
        else:
            self._last = self._finished

    @property
    def unfinished(self) -> bool:
        """Whether the application has a message that it has not finished."""
        mode = self._mode
        if mode is AcknowledgeMode.INDIVIDUAL:
            return bool(self._unsettled)
        if mode is AcknowledgeMode.TRANSACTED or mode is AcknowledgeMode.PRE_ACKNOWLEDGE:
            return False
        return self._last is not None and self._last != self._finished

    def acknowledgement(
        self, consumer_id: int, *, requires_response: bool = False, due_only: bool = True
    ) -> Acknowledge | None:
        """The packet that acknowledges messages, which then count as acknowledged; None without any.

        Args:
            requires_response: Whether the broker answers it.
            due_only: Only those that may be acknowledged; False for all that were handed out.
        """
        last = self._released
        if not due_only and self._last is not None:
            last, self._last, self._finished = self._last, None, None
            self.taken_bytes = 0
            if self._mode is not AcknowledgeMode.INDIVIDUAL:
                self._unsettled.clear()
        self._released = None
        return None if last is None else Acknowledge(consumer_id, last, requires_response)

    def acknowledgement_before_return(self, consumer_id: int) -> Acknowledge | None:
        """The packet for a rollback that gives back the unfinished messages: it covers the finished ones, and, where
        acknowledgements are transacted at the server (CLIENT, INDIVIDUAL), all. None without any.
        """
        mode = self._mode
        if mode is AcknowledgeMode.INDIVIDUAL:
            last = next(reversed(self._unsettled), None)
            return None if last is None else Acknowledge(consumer_id, last, False)
        if self._finished is not None:
            self._released, self._finished = self._finished, None
        return self.acknowledgement(consumer_id, due_only=mode is not AcknowledgeMode.CLIENT)

    def clear(self) -> None:
        """Called when the broker has taken back all deliveries."""
        self._last = self._released = self._finished = None
        self.taken_bytes = 0
        self._unsettled.clear()
