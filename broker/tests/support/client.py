"""Hand-driven surroundings for the pure client: a clock to set, a link that records, and ``Drive``,
which speaks the server's half of a conversation packet by packet.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from understudy.client.core.connection.state import ClientState
from understudy.client.core.consumer.taken import AcknowledgeMode
from understudy.client.core.session.channel import SessionOptions
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.options import Connector
from understudy.client.core.url.parsing import parse_url
from understudy.errors import BrokerError
from understudy.testing.manual_time import ManualTime
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.core.packets import (
    CheckForFailover,
    CheckForFailoverReply,
    ClusterTopologyV4,
    CreateSession,
    CreateSessionResponse,
    Packet,
    ReattachSession,
    ReattachSessionResponse,
    SubscribeTopologyV2,
)
from understudy.wire.core.transport import TransportConfiguration

P = TypeVar("P", bound=Packet)
NODE = "11111111-2222-3333-4444-555555555555"


class FakeEntropy:
    """Counts up, so that names differ and repeat from run to run."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = itertools.count(1)

    def token(self, length_bytes: int) -> bytes:
        return next(self._numbers).to_bytes(length_bytes, "big")


class Outcome:
    """A waiter that keeps its answer, and refuses a second one."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.settled = False

    def done(self) -> bool:
        return self.settled

    def set_result(self, result: Any, /) -> None:
        assert not self.settled
        self.settled, self.value = True, result

    def set_exception(self, exception: BaseException, /) -> None:
        assert not self.settled
        self.settled, self.error = True, exception


class FakeLink:
    """Records what the state asks of its shell."""

    def __init__(self) -> None:
        self.dials: list[tuple[Connector, int]] = []
        self.cancelled: list[int] = []
        self.hang_ups = 0
        self.flush_wanted = 0
        self.moments: list[int] = []
        self.lines: list[str] = []
        self.warnings: list[str] = []

    def dial(self, connector: Connector, attempt: int) -> None:
        self.dials.append((connector, attempt))

    def cancel(self, attempt: int) -> None:
        self.cancelled.append(attempt)

    def hang_up(self) -> None:
        self.hang_ups += 1

    def wants_flush(self) -> None:
        self.flush_wanted += 1

    def wake_at(self, moment_ms: int) -> None:
        self.moments.append(moment_ms)

    def notify(self, call: Callable[[], None]) -> None:
        call()

    def log(self, event: str, text: str, *, warning: bool = False) -> None:
        if warning:
            self.warnings.append(text)
        self.lines.append(f"{event}: {text}")


def transport(host: str, port: int) -> TransportConfiguration:
    return TransportConfiguration("c", parameters={"host": host, "port": str(port)})


class Drive:
    """A ``ClientState`` and the server at the other end of whatever it dialled last."""

    def __init__(self, url: str = "tcp://a:1?reconnectAttempts=-1&producerWindowSize=-1") -> None:
        self.clock = ManualTime(monotonic_ms=1_000_000)
        self.link = FakeLink()
        self.core = ClientState(parse_url(url), self.link, self.clock, FakeEntropy(), user="u", password="p")
        self.connected = Outcome()
        self._decoder = FrameDecoder("server", 2**24)

    @property
    def dialled(self) -> str:
        """Where the last dial went."""
        return str(self.link.dials[-1][0])

    def up(self) -> None:
        """The last dial succeeds."""
        self._decoder = FrameDecoder("server", 2**24)
        self.core.transport_up(self.link.dials[-1][1])

    def refuse(self, error: BrokerError) -> None:
        """The last dial fails, or its transport is lost."""
        self.core.transport_lost(self.link.dials[-1][1], error)

    def sent(self) -> list[tuple[int, Packet]]:
        """Everything the client wrote since the last call, as (channel, packet)."""
        frames = self._decoder.receive_data(self.core.data_to_send())
        return [(frame.channel_id, frame.packet) for frame in frames]

    def sent_one(self, kind: type[P]) -> P:
        """The only packet of that kind that was sent since the last call."""
        found = [packet for _, packet in self.sent() if isinstance(packet, kind)]
        assert len(found) == 1, found
        return found[0]

    def answer(self, channel_id: int, packet: Packet) -> None:
        self.core.receive_data(encode(packet, channel_id))

    def topology(
        self,
        *,
        node_id: str = NODE,
        primary: TransportConfiguration | None = None,
        backup: TransportConfiguration | None = None,
        event_id: int = 1,
        last: bool = True,
    ) -> None:
        self.answer(0, ClusterTopologyV4(False, node_id, event_id, primary, backup, last))

    def connect(
        self, *, primary: TransportConfiguration | None = None, backup: TransportConfiguration | None = None
    ) -> None:
        """The first connection, up to the end."""
        self.core.connect(self.connected)
        self.up()
        assert [type(packet) for _, packet in self.sent()][-1] is SubscribeTopologyV2
        self.topology(primary=primary, backup=backup)
        assert self.connected.settled
        assert self.connected.error is None

    def session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO, *, xa: bool = False) -> SessionState:
        """A new session; its first packets are dropped."""
        outcome = Outcome()
        self.core.sessions.open(SessionOptions(mode, xa), outcome)
        request = self.sent_one(CreateSession)
        self.answer(1, CreateSessionResponse(136))
        self.sent()
        session: SessionState = outcome.value
        assert session.channel_id == request.session_channel_id
        return session

    def fail_over(self, *, reattached: int | None = None) -> list[tuple[int, Packet]]:
        """Answer everything the client asks on a new transport until it is connected.

        Args:
            reattached: Answer REATTACH_SESSION with yes and this last command id.

        Returns:
            Packets that it sent on session channels.
        """
        self.up()
        on_sessions: list[tuple[int, Packet]] = []
        for _ in range(50):
            for channel_id, packet in self.sent():
                if isinstance(packet, CheckForFailover):
                    self.answer(1, CheckForFailoverReply(True))
                elif isinstance(packet, SubscribeTopologyV2):
                    self.topology()
                elif isinstance(packet, ReattachSession):
                    self.answer(1, ReattachSessionResponse(reattached or -1, reattached is not None))
                elif isinstance(packet, CreateSession):
                    self.answer(1, CreateSessionResponse(136))
                elif channel_id >= 10:
                    on_sessions.append((channel_id, packet))
            if not self.core.failing_over:
                break
        on_sessions += [each for each in self.sent() if each[0] >= 10]
        return on_sessions

    def tick(self, milliseconds: int) -> int | None:
        """Let time pass and the deadline be handled."""
        self.clock.now_ms += milliseconds
        return self.core.handle_deadline()
