"""Steps from an open transport to working sessions: is this the right node, and do our sessions live?

Artemis-core s. 8.3: CHECK_FOR_FAILOVER with the node id our sessions were on, the topology up
to its last packet, then each session reattached or created again. One object per transport; it is
dropped with it, so nothing here outlives a lost connection.

Invariant: sessions are restored one after the other, and all of them before a new one is created.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from understudy.client.core.connection.calls import Call, Calls
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.options import Connector, ServingNode
from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    IncompatibleVersion,
    NotActive,
    SecurityError,
    SessionRejected,
)
from understudy.wire.core.packets import (
    CheckForFailover,
    CheckForFailoverReply,
    CreateSessionResponse,
    Packet,
    ReattachSession,
    ReattachSessionResponse,
)


class RestorationHost(Protocol):
    """The connection as seen from here."""

    @property
    def connector(self) -> Connector | None:
        """The connector of the new transport."""
        ...

    @property
    def cause(self) -> BrokerError:
        """The error that ended the connection before."""
        ...

    @property
    def serving_node(self) -> ServingNode:
        """The node that made a session last, and its epoch."""
        ...

    def greeted(self) -> None:
        """Called when the node has answered the greeting."""
        ...

    def restored(self) -> None:
        """Called when every session works."""
        ...

    def restoration_failed(self, error: BrokerError) -> None:
        """Called with the error that makes the transport useless."""
        ...

    def limit_phase(self) -> None:
        """Start the time limit of the next answer anew."""
        ...

    def later(self, again: Callable[[], None]) -> None:
        """Call after the pause for a node that is still starting."""
        ...

    def create_session(self, session: SessionState, name: str) -> Packet:
        """The packet that creates a session under a name."""
        ...

    def new_name(self) -> str:
        """A random name for a session."""
        ...

    def learn_version(self, server_version: int) -> None:
        """Called with the version of the server."""
        ...

    def learn_epoch(self, epoch: int) -> None:
        """Called with the epoch in which the server serves; 0 if it states none."""
        ...

    def lower_version(self) -> bool:
        """Use the next lower version that the client speaks; False if there is none."""
        ...


class Restoration:
    """Greets the node on one new transport and restores the sessions there."""

    def __init__(self, host: RestorationHost, calls: Calls) -> None:
        """Args:
        calls: The control channel's, for this transport alone.
        """
        self._host = host
        self._before = host.serving_node
        self.calls = calls
        calls.open()
        self._checked = False
        self._told = False
        self._greeted = False
        self._ended = False
        self._sessions: deque[SessionState] = deque()

    def greet(self, node_id: str | None) -> None:
        """Check that the node carries on ``node_id``; None for any node."""
        if node_id is None:
            self._checked = True
            return

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, BrokerError):
                self._host.restoration_failed(error)
            elif not packet.ok:
                refusal = NotActive(f"{self._host.connector} does not carry on node {node_id}")
                self._host.restoration_failed(refusal)
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
            self._host.greeted()

    def restore(self, sessions: tuple[SessionState, ...]) -> None:
        """Restore the sessions, in order."""
        self._sessions = deque(sessions)
        self._next()

    def session_closed(self, session: SessionState) -> None:
        """Leave this one out."""
        if session in self._sessions and self._sessions[0] is not session:
            self._sessions.remove(session)

    def abandon(self) -> None:
        """The transport is gone: whatever was put off does not happen."""
        self._ended = True

    def _next(self) -> None:
        if not self._sessions:
            self._host.restored()
            return
        session = self._sessions[0]
        self._host.limit_phase()

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, BrokerError):
                self._host.restoration_failed(error)
            elif packet.reattached:
                if session.closed is None:
                    session.reattached(packet.last_confirmed_command_id)
                self._restored()
            else:
                self._recreate(session)

        # Asked even without a confirmation window: it makes a server that has not noticed the
        # lost connection close the old session, so that its messages are delivered again.
        reattach = ReattachSession(session.name, session.reattach_id())
        self.calls.add(Call("reattach session", lambda _: reattach, (ReattachSessionResponse,), done))

    def _recreate(self, session: SessionState) -> None:
        name = self._host.new_name()

        def again() -> None:
            if not self._ended:
                self._recreate(session)

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, IncompatibleVersion) and self._host.lower_version():
                self._recreate(session)
            elif isinstance(error, SessionRejected):
                self._host.later(again)  # bounded by the time limit of this phase
            elif isinstance(error, BrokerError):
                self._host.restoration_failed(login_error(error))
            else:
                self._host.learn_version(packet.server_version)
                self._host.learn_epoch(packet.epoch or 0)
                session.takes_settlements = bool(packet.takes_settlements)
                if session.closed is None:
                    dropped = self._before == self._host.serving_node
                    session.recreated(name, self._host.cause, dropped=dropped)
                self._restored()

        create = self._host.create_session
        self.calls.add(Call("create session again", lambda _: create(session, name), (CreateSessionResponse,), done))

    def _restored(self) -> None:
        self._sessions.popleft()
        self._next()


def login_error(error: BrokerError) -> BrokerError:
    """A login refused: code 105 alone does not say whether identity or permission was missing."""
    return AuthenticationFailed(str(error)) if type(error) is SecurityError else error
