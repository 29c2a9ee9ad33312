"""The session of a bridge at its target: login, address query, sends with credits, and their confirmations. No I/O.

Every message is sent with a correlation id and wants a response, which the target gives when it has the message
safely; the ids count up, and responses are matched by them. Credits are counted per address in encoded message bytes.
A message for which there is no credit waits here, and those after it, so that their order is kept.

Source: artemis-core s. 3.2 (versions), s. 3.3 (correlation ids), s. 4.1, 6.2 (credits, large messages), s. 7.3, s. 8.1.
Not here: the connection (``wire.core.peer``), attempts (``bridge``), the local queue (``forwarding``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum, auto
from itertools import accumulate
from typing import Final, Protocol

from understudy.cluster.bridges.conversion import ForwardForm
from understudy.cluster.membership.credentials import ClusterCredentials
from understudy.cluster.membership.handshake import CLUSTER_CHANNEL, prove
from understudy.cluster.membership.topology import Member
from understudy.config.bridge import BridgeConfiguration
from understudy.dataclass import dataclass
from understudy.errors import AddressFull, AddressNotFound, BrokerError, IncompatibleVersion, RemoteProtocolError
from understudy.kernel.core import forward_messages
from understudy.limits import (
    BRIDGE_ADDRESSES_MAX,
    BRIDGE_OUTGOING_BYTES_PAUSE,
    FRAME_BYTES_MAX,
    LARGE_PIECE_BYTES_MAX,
    LARGE_PIECE_BYTES_MIN,
)
from understudy.message import LARGE_SIZE, LargeMessage, Message
from understudy.ports import Clock, Entropy, Timer, Timers
from understudy.wire.core import packets
from understudy.wire.core.codec import ConfirmBatch, encode, encode_send
from understudy.wire.core.codes import error_of
from understudy.wire.core.packets import header_of_message
from understudy.wire.core.peer import CONTROL_CHANNEL, CorePeer, Dialer, PeerOptions, RefusalLog
from understudy.wire.core.transport import TransportConfiguration

SESSION_SETUP_CHANNEL: Final = 1
SESSION_CHANNEL: Final = 10
#: First channel version with correlation ids, without which confirmations cannot be matched.
_VERSION_MIN: Final = 130
_CLIENT_ID_SINCE: Final = 131
#: First channel version in which a message is sent as it is encoded.
_VERSION_OF_RUNS: Final = 134
#: Of an encoded message before its body.
_BODY_OFFSET_BYTES: Final = 4
_UTF16: Final = "utf-16-le", "surrogatepass"
#: Bytes of the frame of a message beside it.
SEND_OVERHEAD_BYTES: Final = 26
#: Wait before the socket, which has not taken all bytes yet, is looked at again.
_SOCKET_POLL_MS: Final = 5


class TargetOwner(Protocol):
    """The user of a target session. None of these is called after ``TargetSession.close``."""

    def target_ready(self) -> None:
        """The session exists and its address too: messages can be sent."""

    def target_confirmed(self, first: int, last: int) -> None:
        """Called when the target has the messages with the correlation ids ``first`` to ``last``.

        Raises:
            BrokerError: the connection is closed.
        """

    def target_writable(self) -> None:
        """``writable`` may be true again."""

    def target_member(self, member: Member) -> None:
        """The pair of nodes that the target belongs to, as it announces it; with ``ha`` only."""

    def target_lost(self, reason: str) -> None:
        """Called when the connection ended, was refused, or could not be made. Called once; the session is closed."""


@dataclass(frozen=True, slots=True)
class TargetAccess:
    """Objects that the target sessions of a node share."""

    dialer: Dialer | None
    """Dials the target; None: the node has no bridges."""
    clock: Clock
    timers: Timers
    entropy: Entropy
    credentials: ClusterCredentials | None
    """Credentials for bridges without user; None: there are none."""
    refusals: RefusalLog = field(init=False)
    """Refusals of all attempts at the targets."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "refusals", RefusalLog(self.clock))


class _Credits:
    """Credits of one address at the target."""

    __slots__ = ("arriving", "balance", "refused")

    def __init__(self) -> None:
        self.balance = 0
        self.arriving = 0
        self.refused = False
        """Whether the target has refused it, because the address is full."""


class _Stage(Enum):
    """Progress of a session at its target."""

    OPENING = auto()
    """The target has not created the session: nothing is known about the other side."""
    ACCEPTED = auto()
    """The session exists at the target, which has thus accepted the login."""
    READY = auto()
    """Messages can be sent."""


class TargetSession:
    """One connection of a bridge with one session at its target. Implements ``wire.core.peer.PeerOwner``."""

    def __init__(
        self,
        owner: TargetOwner,
        target: TransportConfiguration,
        bridge: BridgeConfiguration,
        access: TargetAccess,
        *,
        xa: bool = False,
        node_id: str = "",
        proves: bool = True,
    ) -> None:
        """Dial the target at once.

        Args:
            owner: Called when something happens.
            target: Connector of the target.
            bridge: Settings of the bridge.
            access: Dialer, clock and credentials.
            xa: Whether its sends belong to the branch that the session works in.
        node_id: Id that the target must have, if both prove the cluster password; empty: any.
            proves: Whether, without a user, both brokers prove the cluster credentials, if this one has any.
        """
        self._owner: TargetOwner | None = owner
        self._xa = xa
        self._node_id = node_id
        self.received: Callable[[Message], None] | None = None
        """Called with messages for consumers of the session; None: it has none."""
        self.refused: Callable[[int, BrokerError], bool] | None = None
        """Called with the correlation id of a message that the target refuses; returns whether the connection goes on.
        None: it never does."""
        self._bridge = bridge
        self._access = access
        self._name = access.entropy.token(16).hex()
        self._login = bridge.target.user, bridge.target.password
        self._proves = proves
        self.proof_refused = False
        """Whether the target has not accepted the cluster credentials, which it was offered."""
        self._stage = _Stage.OPENING
        self._correlation_id = 0
        self._expected = 1
        """Correlation id that is to be confirmed next, if the target confirms in order."""
        self._credits: dict[str, _Credits] = {}
        self._held: deque[tuple[str, int, bytes]] = deque()
        """Address, cost and frames of messages that wait for credit."""
        self._address = ""
        """Address of the large message that is being sent."""
        self._large_bytes = -1
        self._socket_timer: Timer | None = None
        options = PeerOptions(bridge.connection.connection_ttl_ms, bridge.connection.check_period_ms)
        self._peer = CorePeer(self, target, access.clock, access.timers, options)
        assert access.dialer is not None
        access.dialer.dial(target, self._peer)

    # -- for the owner ----------------------------------------------------------------------------

    @property
    def target(self) -> TransportConfiguration:
        """Connector of the target."""
        return self._peer.target

    @property
    def ready(self) -> bool:
        """Whether messages can be sent."""
        return self._stage is _Stage.READY and self._owner is not None

    @property
    def writable(self) -> bool:
        """Whether the next message would leave at once; otherwise ``target_writable`` follows."""
        if self._held:
            return False
        if self._peer.outgoing_bytes() < BRIDGE_OUTGOING_BYTES_PAUSE:
            return True
        if self._socket_timer is None:
            self._socket_timer = self._access.timers.call_later(_SOCKET_POLL_MS, self._look_at_socket)
        return False

    @property
    def last_sent(self) -> int:
        """Correlation id of the message that was sent last."""
        return self._correlation_id

    @property
    def full_address(self) -> str:
        """Address for which the target refuses credit or has given none that is needed; empty: there is none."""
        refused = (address for address, credit in self._credits.items() if credit.refused)
        return next(refused, self._held[0][0] if self._held else "")

    @property
    def awaits_credit(self) -> bool:
        """Whether messages wait for credit of the target."""
        return bool(self._held)

    def send(self, message: Message) -> int:
        """Send a message. Returns its correlation id."""
        self._correlation_id += 1
        if message.header_offset > self._bridge.min_large_message_size_bytes:
            self._send_in_pieces(message)
        else:
            frame = encode_send(message, SESSION_CHANNEL, True, self._correlation_id, -1, self._peer.version)
            self._post(message.address or "", len(message.encoded), frame)
        return self._correlation_id

    def send_together(self, messages: Sequence[bytes], message_ids: Sequence[int], form: ForwardForm) -> int:
        """Send encoded messages in one batch: plain ones, whose properties ``form`` may change. The first one
        gets the next correlation id, and each further one the next.

        Args:
            messages: Messages in their order.
            message_ids: One for each.
            form: The changes.

        Returns:
            How many were sent; the next one, if any, is for ``send``.
        """
        if self._peer.version < _VERSION_OF_RUNS:
            return 0
        window_bytes = self._bridge.producer_window_size_bytes
        if 0 <= window_bytes <= sum(map(len, messages)):
            # the messages take their credit together: at most the amount that one request asks the target for
            begins = accumulate(map(len, messages), initial=0)
            messages = messages[: max(1, sum(each < window_bytes for each in begins) - 1)]
            message_ids = message_ids[: len(messages)]
        frames, count, address = forward_messages(
            messages, message_ids, form.address, form.ids_name, form.node_id,
            self._bridge.min_large_message_size_bytes - _BODY_OFFSET_BYTES, SESSION_CHANNEL, self._correlation_id + 1,
        )  # fmt: skip
        if count:
            self._correlation_id += count
            self._post((form.address or address).decode(*_UTF16), len(frames) - count * SEND_OVERHEAD_BYTES, frames)
        return count

    def begin_large(self, message: LargeMessage) -> int:
        """Announce a large message, whose pieces follow. Returns its correlation id."""
        self._correlation_id += 1
        self._announce(message, message.header, message.large.size_bytes)
        return self._correlation_id

    def send_piece(self, piece: bytes, continues: bool) -> None:
        """The next piece of the large message announced last."""
        packet = packets.SessionSendContinuation(
            piece, continues, self._large_bytes, not continues, -1 if continues else self._correlation_id
        )
        self._post(self._address, len(piece), encode(packet, SESSION_CHANNEL, self._peer.version))

    def request(
        self,
        packet: packets.Packet,
        expected: tuple[type[packets.Packet], ...],
        answer: Callable[[packets.Packet], None],
        *,
        of_cluster: bool = False,
    ) -> None:
        """Send a request of the session, or on the channel between brokers; see ``CorePeer.request``. No message that
        was sent before may wait for its confirmation if the answer is of the same type.
        """
        self._peer.request(packet, CLUSTER_CHANNEL if of_cluster else SESSION_CHANNEL, expected, answer)

    def tell(self, packet: packets.Packet, *, of_cluster: bool = False) -> None:
        """Send a packet that is not answered, of the session or on the channel between brokers."""
        self._peer.send(packet, CLUSTER_CHANNEL if of_cluster else SESSION_CHANNEL)

    def close(self) -> None:
        """Close session and connection; the owner is not called any more."""
        if self._stage is _Stage.READY:
            self._peer.send(packets.SessionClose(), SESSION_CHANNEL)
        self._end()

    # -- PeerOwner --------------------------------------------------------------------------------

    def peer_opened(self, peer: CorePeer) -> None:
        """Log in; called when the connection is established."""
        credentials = self._access.credentials
        if self._proves and self._bridge.target.user is None and credentials is not None:
            self._login = credentials.login_at(peer.target)
            self.proof_refused = True
            prove(peer, credentials, self._proved, self._node_id)
        else:
            self._create_session()

    def peer_lost(self, peer: CorePeer, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        self._access.refusals.note(peer)
        self._fail(reason)

    def peer_received(self, peer: CorePeer, channel_id: int, packet: packets.Packet) -> None:
        """Take a packet that answers no request of ``CorePeer``. Raises BrokerError: the connection is closed.

        Packets before the session exists are dropped: a stranger at the address of the target could name another node
        as its backup, to which this one would then bring its messages.
        """
        if self._stage is _Stage.OPENING:
            return
        if channel_id == SESSION_CHANNEL:
            self._receive(packet)
        elif channel_id == CONTROL_CHANNEL and isinstance(packet, packets.ClusterTopologyV2) and not packet.exit:
            self._learn(packet)

    def _learn(self, packet: packets.ClusterTopologyV2) -> None:
        """Take the entry of the target in its topology; other members are no concern of a bridge."""
        if self._owner is None or not any(
            self.target.same_place(each) for each in (packet.primary, packet.backup) if each is not None
        ):
            return
        group = packet.scale_down_group_name if isinstance(packet, packets.ClusterTopologyV3) else None
        self._owner.target_member(
            Member(packet.node_id, packet.unique_event_id, packet.primary, packet.backup, None, group)
        )

    # -- session ----------------------------------------------------------------------------------

    def _proved(self) -> None:
        self.proof_refused = False
        self._create_session()

    def _create_session(self) -> None:
        bridge, version = self._bridge, self._peer.version
        common = (self._name, SESSION_CHANNEL, version, *self._login)
        options = (bridge.min_large_message_size_bytes, self._xa, not self._xa)
        request = packets.CreateSession(*common, *options)
        if version >= _CLIENT_ID_SINCE and bridge.target.client_id is not None:
            request = packets.CreateSessionV2(*common, *options, client_id=bridge.target.client_id)
        answers = (packets.CreateSessionResponse, packets.ExceptionResponse)
        self._peer.request(request, SESSION_SETUP_CHANNEL, answers, self._session_answered)

    def _session_answered(self, answer: packets.Packet) -> None:
        if isinstance(answer, packets.ExceptionResponse):
            error = error_of(answer.error_code, answer.message)
            if not isinstance(error, IncompatibleVersion) or self._peer.version <= _VERSION_MIN:
                raise error
            self._peer.version -= 1
            self._create_session()
            return
        # a session was created, so the other side has accepted the login
        self._stage = _Stage.ACCEPTED
        self._peer.accept_frames(FRAME_BYTES_MAX)
        self._peer.group_confirms()
        if self._bridge.target.ha:
            self._peer.send(packets.SubscribeTopologyV2(False, self._peer.version))
        address = self._bridge.forwarding_address
        if address is None:
            self._begin()
        else:
            query = packets.BindingQuery(address)
            self._peer.request(query, SESSION_CHANNEL, (packets.BindingQueryResponse,), self._address_answered)

    def _address_answered(self, answer: packets.Packet) -> None:
        assert isinstance(answer, packets.BindingQueryResponse)
        if not answer.exists:
            raise AddressNotFound(f"the target has no address {self._bridge.forwarding_address!r}")
        self._begin()

    def _begin(self) -> None:
        self._stage = _Stage.READY
        if self._owner is not None:
            self._owner.target_ready()

    def _receive(self, packet: packets.Packet) -> None:
        owner = self._owner
        if owner is None:
            return
        if isinstance(packet, ConfirmBatch):
            self._confirmed(packet.correlation_ids)
        elif isinstance(packet, packets.NullResponse):
            self._confirmed([packet.correlation_id])
        elif isinstance(packet, packets.ProducerCredits):
            credit = self._credits.get(packet.address)
            if credit is not None:
                credit.balance += packet.credits
                credit.arriving = max(0, credit.arriving - packet.credits)
                self._send_held()
        elif isinstance(packet, packets.ReceiveMessage):
            if self.received is not None:
                self.received(packet.message)
        elif isinstance(packet, packets.ProducerFailCredits):
            self._credits.setdefault(packet.address, _Credits()).refused = True
            raise AddressFull(f"address {packet.address!r} of the target is full")
        elif isinstance(packet, packets.ExceptionResponse):
            self._refused(error_of(packet.error_code, packet.message), packet.correlation_id)

    def _refused(self, error: BrokerError, correlation_id: int | None) -> None:
        """Tell the owner of a refused message. Raises ``error`` if the connection cannot go on without it."""
        known = correlation_id is not None and 0 < correlation_id <= self._correlation_id
        if not known or self.refused is None or not self.refused(correlation_id or 0, error):
            raise error
        self._expected = (correlation_id or 0) + 1

    def _confirmed(self, correlation_ids: list[int]) -> None:
        """Give the owner what the target confirms, neighbours together."""
        first, last = correlation_ids[0], correlation_ids[-1]
        if 0 < first <= last <= self._correlation_id and [*range(first, last + 1)] == correlation_ids:
            self._expected = last + 1
            self._tell_confirmed(first, last)
            return
        first = last = 0
        for each in correlation_ids:
            # -1: from a target that does not copy the id; it answers in the order of the requests
            correlation_id = each if each > 0 else self._expected
            if correlation_id > self._correlation_id:
                raise RemoteProtocolError(f"the target confirms message {correlation_id}, which was not sent")
            self._expected = correlation_id + 1
            if correlation_id != last + 1 or not last:
                self._tell_confirmed(first, last)
                first = correlation_id
            last = correlation_id
        self._tell_confirmed(first, last)

    def _tell_confirmed(self, first: int, last: int) -> None:
        if self._owner is not None and last:
            self._owner.target_confirmed(first, last)

    def _fail(self, reason: str) -> None:
        owner = self._owner
        self._end()
        if owner is not None:
            owner.target_lost(reason)

    def _end(self) -> None:
        self._owner = None
        if self._socket_timer is not None:
            self._socket_timer.cancel()
            self._socket_timer = None
        self._held.clear()
        self._peer.close()

    # -- sending ----------------------------------------------------------------------------------

    def _announce(self, message: Message, header: bytes, body_bytes: int) -> None:
        self._address = message.address or ""
        original = message.properties.get(LARGE_SIZE)
        self._large_bytes = original if isinstance(original, int) else body_bytes
        frame = encode(packets.SessionSendLarge(header), SESSION_CHANNEL, self._peer.version)
        self._post(self._address, len(header), frame)

    def _send_in_pieces(self, message: Message) -> None:
        body = message.body
        piece_bytes = min(max(self._bridge.min_large_message_size_bytes, LARGE_PIECE_BYTES_MIN), LARGE_PIECE_BYTES_MAX)
        self._announce(message, header_of_message(message), len(body))
        for begin in range(0, max(len(body), 1), piece_bytes):
            self.send_piece(body[begin : begin + piece_bytes], begin + piece_bytes < len(body))

    def _post(self, address: str, cost_bytes: int, frame: bytes) -> None:
        if self._held or not self._take_credit(address, cost_bytes):
            self._held.append((address, cost_bytes, frame))
        else:
            self._peer.send_frame(frame)

    def _send_held(self) -> None:
        held = self._held
        if not held:
            return
        while held and self._take_credit(held[0][0], held[0][1]):
            self._peer.send_frame(held.popleft()[2])
        if not held and self._owner is not None:
            self._owner.target_writable()

    def _take_credit(self, address: str, cost_bytes: int) -> bool:
        """Take credit for a message, and ask for more before it is used up. Returns whether there was enough."""
        window_bytes = self._bridge.producer_window_size_bytes
        if window_bytes < 0:
            return True
        credit = self._credits.get(address)
        if credit is None:
            if len(self._credits) >= BRIDGE_ADDRESSES_MAX:
                del self._credits[next(iter(self._credits))]
            credit = self._credits[address] = _Credits()
        wanted_bytes = max(cost_bytes, window_bytes) - credit.arriving
        if credit.balance < wanted_bytes:
            credit.arriving += wanted_bytes
            self._peer.send(packets.ProducerRequestCredits(wanted_bytes, address), SESSION_CHANNEL)
        if credit.balance < cost_bytes:
            return False
        credit.balance -= cost_bytes
        return True

    def _look_at_socket(self) -> None:
        self._socket_timer = None
        if self.writable and self._owner is not None:
            self._owner.target_writable()
