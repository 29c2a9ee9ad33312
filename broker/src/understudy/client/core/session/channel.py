"""The channel of one client session: its frames, its calls, and what its producers, consumers and transactions share.

While the connection is down the session is *suspended*: the channel is not attached, sends and calls line up.
Not here: the parts that use it (``sends``, ``consumers``, ``transactions``, ``xa``), and their order (``session``).
"""

from __future__ import annotations

from understudy.client.core.connection.codec import Frame
from understudy.client.core.connection.link_state import LinkState
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.confirmations import Confirmations
from understudy.client.core.url.options import ClientOptions
from understudy.dataclass import dataclass
from understudy.errors import BrokerError
from understudy.message import Message
from understudy.wire.core.packets import Packet, SessionStart


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a new session."""

    mode: AcknowledgeMode = AcknowledgeMode.AUTO
    """TRANSACTED with ``xa``."""
    xa: bool = False
    """Whether the transactions of the session are XA branches."""
    pre_acknowledge: bool = False
    """The broker counts messages as acknowledged before it sends them."""

    @property
    def transacted(self) -> bool:
        """Whether the session has local transactions."""
        return self.mode is AcknowledgeMode.TRANSACTED and not self.xa

    @property
    def auto_commit_sends(self) -> bool:
        """Whether each send is a unit of work of its own."""
        return self.mode is not AcknowledgeMode.TRANSACTED

    @property
    def auto_commit_acks(self) -> bool:
        """Whether each acknowledgement is a unit of work of its own."""
        return self.mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK)

    @property
    def consumer_mode(self) -> AcknowledgeMode:
        """How its consumers acknowledge."""
        return AcknowledgeMode.PRE_ACKNOWLEDGE if self.pre_acknowledge else self.mode


class OpenWork:
    """Whether the open transaction or branch of a session has work, and whether that still exists at the server."""

    __slots__ = ("given", "late", "rollback_only")

    def __init__(self) -> None:
        self.given = False
        """Something that was given to the server's session depends on the next commit."""
        self.late = False
        """Something depends on the next commit that waits for a session at the server."""
        self.rollback_only = False
        """Whether a failover has undone work of the transaction, so that it can only be rolled back."""

    def done(self, *, attached: bool) -> None:
        """Something depends on the next commit; given to the server's session, if ``attached``."""
        if attached:
            self.given = True
        else:
            self.late = True

    def reattached(self) -> None:
        """The server's session lives on, with its work."""
        self.given = self.given or self.late
        self.late = False


class Channel:
    """One channel of a connection, and the state of the session on it that outlives the server's session."""

    def __init__(self, link: LinkState, channel_id: int, options: SessionOptions) -> None:
        self.link = link
        self.channel_id = channel_id
        self.options = options
        self.name = link.new_name()
        """Name of the session at the server; it gets a new one whenever it is created again."""
        self.generation = 0
        """Rises with every re-creation, and when messages in work are given back; a message of an older one cannot be
        acknowledged.
        """
        self.attached = False
        """Whether a session of the server works on the channel."""
        self.started = True
        """Whether the server delivers messages."""
        self.closed: BrokerError | None = None
        """The error that ended the session; None while it works."""
        self.takes_settlements = False
        """Whether the server takes outcomes of single deliveries; stated when it made the session."""
        self.last_confirmation_ms = 0
        """Time in ms at which the broker last confirmed a send, or had none to confirm."""
        self.calls = link.new_calls(self._send_call)
        self.confirmations = Confirmations(link.options.confirmation_window_size)
        self.open_work = OpenWork()

    @property
    def settings(self) -> ClientOptions:
        """The options of the connection."""
        return self.link.options

    @property
    def node_id(self) -> str | None:
        """Node id of the server; None before it is known."""
        return self.link.node_id

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.link.clock.wall_ms()

    def complaint(self, text: str) -> None:
        """Log an error that no caller waits for."""
        self.link.complaint(text)

    def transmit(self, frame: Frame) -> None:
        """Send a counted command; while suspended it is kept for a reattachment, or pointless."""
        if self.confirmations.enabled:
            self.confirmations.sent(frame)
        if self.attached:
            self.link.transmit(frame)

    def transmit_packet(self, packet: Packet) -> None:
        """Send a packet on the channel; one that is not counted is lost while suspended."""
        frame = self.link.codec.encode(self.channel_id, packet)
        if packet.counts_as_command:
            self.transmit(frame)
        elif self.attached:
            self.link.transmit(frame)

    def encode_send(self, message: Message, requires_response: bool, correlation_id: int, sender_id: int) -> Frame:
        """The frame of SESS_SEND for a message."""
        return self.link.codec.encode_send(
            message, self.channel_id, correlation_id if requires_response else None, sender_id
        )

    def start(self) -> None:
        """Have the server deliver, unless the application has stopped deliveries."""
        if self.started:
            self.transmit_packet(SessionStart())

    def awaiting_confirmation(self) -> None:
        """A command was sent whose confirmation has a time limit from now on."""
        now_ms = self.link.clock.monotonic_ms()
        self.last_confirmation_ms = now_ms
        self.link.shell.wake_at(now_ms + self.settings.call_timeout_ms)

    def _send_call(self, packet: Packet) -> None:
        frame = self.link.codec.encode(self.channel_id, packet)
        if packet.counts_as_command:
            self.transmit(frame)
        else:
            self.link.transmit(frame)
