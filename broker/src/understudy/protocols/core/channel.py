"""The channel of one session: frames, command ids, confirmations, detaching from a connection and attaching to
another.

Artemis-core s. 7.1. With a confirmation window every command has an id per direction; sent commands are kept
until the client confirms them, and received ones are confirmed once they are durable. With a window
above 0 the channel outlives its connection: it is *detached* until the client moves it to a new one
(``REATTACH``), or until it ends. Two differences from Artemis, explained in ADR 0009: requests answered by
EXCEPTION are counted too, as standard clients do, and nothing is confirmed before it is durable.

Not here: the checks of a reattachment (``reattachment``), and the meaning of packets (``session``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import ClassVar

from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.protocols.core.link import CoreLink
from understudy.protocols.core.resend import ResendCache
from understudy.wire.core import packets
from understudy.wire.core.codec import AcknowledgeBatch, CommitBatch, SendBatch, encode
from understudy.wire.core.commands import command_id


class State(Enum):
    """States of a channel."""

    ATTACHED = auto()
    """The session has a connection."""
    DETACHED = auto()
    """The connection was lost; the session waits for a reattachment."""
    ENDED = auto()


class Event(Enum):
    """Events of a channel."""

    LOSE = auto()
    """The connection was lost."""
    MOVE = auto()
    """The client reattaches the session, perhaps before the loss of its connection was noticed."""
    END = auto()
    """The session closes, or its client did not reattach in time."""


class SessionChannel(Machine[State, Event]):
    """The channel of one session: command ids, confirmations, detaching and reattaching."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.ATTACHED

    def __init__(
        self,
        connection: CoreLink,
        channel_id: int,
        window_bytes: int,
        when_durable: Callable[..., None],
        internal_error: Callable[[Exception], None],
    ) -> None:
        """Args:
        window_bytes: Size of the confirmation window; -1 = none.
        when_durable: Calls when everything that the session has written so far is durable.
        internal_error: Called with an internal error in a response of the channel itself.
        """
        super().__init__()
        self.channel_id = channel_id
        self.connection = connection
        self._window_bytes = window_bytes
        self._wire: Callable[[bytes], None] = connection.connection.send
        self._cache = ResendCache(connection.services.resend_budget) if window_bytes >= 0 else None
        self.send: Callable[[bytes], None] = self._wire if self._cache is None else self._send_kept
        """Sends the frame of a counted packet."""
        self.when_durable = when_durable
        self.internal_error = internal_error
        self._received = 0
        self._confirmed = 0
        self._unconfirmed_bytes = 0

    @property
    def counts(self) -> bool:
        """Whether commands are counted and kept until they are confirmed."""
        return self._cache is not None

    @property
    def survives(self) -> bool:
        """Whether the session survives the loss of its connection."""
        return self._window_bytes > 0

    @property
    def detached(self) -> bool:
        """Whether the session has no connection and waits for a reattachment."""
        return self._state is State.DETACHED

    @property
    def ended(self) -> bool:
        """Whether its session has ended."""
        return self._state is State.ENDED

    # -- sending ----------------------------------------------------------------------------------

    def send_packet(self, packet: packets.Packet) -> None:
        """Encode and send a packet, counted or not."""
        frame = encode(packet, self.channel_id, self.connection.decoder.version)
        if packet.counts_as_command:
            self.send(frame)
        else:
            self._wire(frame)

    def _send_kept(self, frame: bytes) -> None:
        assert self._cache is not None
        self._cache.sent(frame)
        self._wire(frame)

    # -- confirming -------------------------------------------------------------------------------

    def received(self, packet: packets.Packet, size_bytes: int) -> None:
        """Count a packet, or a run of packets, that was carried out; only with a window."""
        if self._cache is None or not packet.counts_as_command:
            return
        if isinstance(packet, SendBatch):
            self._received += packet.sends.count
        elif isinstance(packet, AcknowledgeBatch):
            self._received += len(packet.message_ids)
        else:
            self._received += 2 * len(packet.message_ids) if isinstance(packet, CommitBatch) else 1
        self._unconfirmed_bytes += size_bytes
        if self._unconfirmed_bytes >= self._window_bytes:
            self.flush_confirmations()

    def flush_confirmations(self) -> None:
        """Confirm received packets to the client, once their effects are durable."""
        if self._received > self._confirmed and self._state is not State.ENDED:
            self._confirmed = self._received
            self._unconfirmed_bytes = 0
            self.when_durable(self._confirm, self._received - 1)

    def _confirm(self, last_received: int) -> None:
        if self._state is State.ATTACHED:
            self.send_packet(packets.PacketsConfirmed(command_id(last_received)))

    def confirmed(self, last_received: int) -> None:
        """Called when the client has received everything up to this id."""
        if self._cache is not None:
            self._cache.confirmed(last_received)

    # -- moving -----------------------------------------------------------------------------------

    @property
    def last_received(self) -> int:
        """Id of the last command from the client, -1 if none."""
        return command_id(self._received - 1)

    def frames_after(self, last_received: int) -> list[bytes] | None:
        """Frames after the given id, for a client that received everything up to it; None = unknown."""
        return None if self._cache is None or not self.survives else self._cache.after(last_received)

    def _detach(self) -> None:
        self._wire = _nowhere

    def _attach(self, connection: CoreLink, frames: list[bytes]) -> None:
        self.connection = connection
        self._wire = connection.connection.send
        self._confirmed = self._received
        self._unconfirmed_bytes = 0
        for frame in frames:
            self._wire(frame)

    def _end(self) -> None:
        if self._cache is not None:
            self._cache.clear()
        # methods of itself and of its handler: kept, they would be reference cycles
        self._wire = self.send = _nowhere
        self.when_durable = self.internal_error = _nowhere

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.ATTACHED, Event.LOSE): To(State.DETACHED, _detach),
            (State.ATTACHED, Event.MOVE): To(State.ATTACHED, _attach),
            (State.ATTACHED, Event.END): To(State.ENDED, _end),
            (State.DETACHED, Event.MOVE): To(State.ATTACHED, _attach),
            (State.DETACHED, Event.END): To(State.ENDED, _end),
            (State.ENDED, Event.END): IGNORED,
        },
        otherwise={Event.LOSE: ILLEGAL, Event.MOVE: ILLEGAL, Event.END: ILLEGAL},
    )


def _nowhere(*_args: object) -> None:
    """Does nothing: the frames are kept for a reattachment, or not needed any more."""
