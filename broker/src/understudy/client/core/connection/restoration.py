"""Steps from an open transport to working sessions: is this the right node, and do our sessions live?

Artemis-core s. 8.3: CHECK_FOR_FAILOVER with the node id our sessions were on, the topology up
to its last packet, then each session reattached or created again. One object per transport; it is
dropped with it, so nothing here outlives a lost connection.

Invariant: sessions are restored one after the other, and all of them before a new one is created.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from understudy.client.core.connection.calls import Call, Calls
from understudy.client.core.connection.failover import Event
from understudy.client.core.connection.link_state import LinkState
from understudy.client.core.connection.sessions import Sessions, login_error
from understudy.client.core.session.state import SessionState
from understudy.errors import BrokerError, IncompatibleVersion, NotActive, SessionRejected
from understudy.wire.core.packets import (
    CheckForFailover,
    CheckForFailoverReply,
    CreateSessionResponse,
    Packet,
    ReattachSession,
    ReattachSessionResponse,
)

Report = Callable[[Event, BrokerError | None], None]
"""Called with GREETED, RESTORED, or LOST and the error that makes the transport useless."""


class Restoration:
    """Greets the node on one new transport and restores the sessions there."""

    def __init__(self, link: LinkState, sessions: Sessions, calls: Calls, cause: BrokerError, report: Report) -> None:
        """Args:
        calls: The control channel's, for this transport alone.
        cause: The error that ended the connection before.
        """
        self._link = link
        self._sessions = sessions
        self._cause = cause
        self._report = report
        self._before = link.serving_node
        self.calls = calls
        calls.open()
        self.deadline_ms = 0
        """Moment at which the next answer must have come."""
        self._checked = False
        self._told = False
        self._greeted = False
        self._ended = False
        self._waiting: deque[SessionState] = deque()

    def greet(self, node_id: str | None) -> None:
        """Check that the node carries on ``node_id``; None for any node."""
        connector = self._link.connector
        assert connector is not None
        # a frozen process accepts connections too; then the other connectors must get their turn
        self._limit(min(self._link.options.call_timeout_ms, connector.connect_timeout_ms))
        if node_id is None:
            self._checked = True
            return

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, BrokerError):
                self._report(Event.LOST, error)
            elif not packet.ok:
                self._report(Event.LOST, NotActive(f"{connector} does not carry on node {node_id}"))
            else:
                self._checked = True
                self._continue()

        check = CheckForFailover(node_id)
        self.calls.add(Call("check for failover", lambda _: check, (CheckForFailoverReply,), done))

    def topology_told(self) -> None:
        """The last packet of the first topology came."""
        self._told = True
        self._continue()

    def _continue(self) -> None:
        if self._checked and self._told and not self._greeted:
            self._greeted = True
            self._report(Event.GREETED, None)

    def restore(self) -> None:
        """Restore the sessions, in order."""
        self._waiting = deque(self._sessions)
        self._next()

    def abandon(self) -> None:
        """The transport is gone: whatever was put off does not happen."""
        self._ended = True

    def _limit(self, timeout_ms: int) -> None:
        self.deadline_ms = self._link.clock.monotonic_ms() + timeout_ms
        self._link.shell.wake_at(self.deadline_ms)

    def _next(self) -> None:
        while self._waiting and self._waiting[0].closed is not None:
            self._waiting.popleft()
        if not self._waiting:
            self._report(Event.RESTORED, None)
            return
        session = self._waiting[0]
        self._limit(self._link.options.call_timeout_ms)

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, BrokerError):
                self._report(Event.LOST, error)
            elif packet.reattached:
                if session.closed is None:
                    session.reattached(packet.last_confirmed_command_id)
                self._restored()
            else:
                self._recreate(session)

        # Asked even without a confirmation window: it makes a server that has not noticed the
        # lost connection close the old session, so that its messages are delivered again.
        channel = session.channel
        reattach = ReattachSession(channel.name, channel.confirmations.last_received)
        self.calls.add(Call("reattach session", lambda _: reattach, (ReattachSessionResponse,), done))

    def _recreate(self, session: SessionState) -> None:
        channel = session.channel
        name = self._link.new_name()

        def again() -> None:
            if not self._ended:
                self._recreate(session)

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, IncompatibleVersion) and self._link.lower_version():
                self._recreate(session)
            elif isinstance(error, SessionRejected):
                self._sessions.later(again)  # the repetition is bounded by the time limit of this phase
            elif isinstance(error, BrokerError):
                self._report(Event.LOST, login_error(error))
            else:
                self._sessions.made(channel, packet)
                if session.closed is None:
                    dropped = self._before == self._link.serving_node and self._link.codec.ended_by_broker
                    session.recreated(name, self._cause, dropped=dropped)
                self._restored()

        def build(_: int) -> Packet:
            return self._sessions.packet(channel, name)

        self.calls.add(Call("create session again", build, (CreateSessionResponse,), done))

    def _restored(self) -> None:
        self._waiting.popleft()
        self._next()
