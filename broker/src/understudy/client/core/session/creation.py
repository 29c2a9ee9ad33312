"""New sessions on one connection: CREATESESSION and its refusals.

Artemis-core s. 4.1 and 7.3. A refused version is offered again one lower; a node that is still
starting (code 112) or sends us elsewhere (222; the redirect follows as a DISCONNECT) is asked again
after a pause, within callTimeout. Not here: sessions made again after a failover (``restoration``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from understudy.client.core.connection.calls import Call, Calls, Interrupted, Waiter, settle
from understudy.client.core.connection.restoration import login_error
from understudy.client.core.session.state import SessionHost, SessionOptions, SessionState
from understudy.client.core.url.options import ClientOptions, ServingNode
from understudy.errors import BrokerError, IncompatibleVersion, NotActive, SessionRejected
from understudy.wire.core.packets import CreateSession, CreateSessionResponse, CreateSessionV2, Packet

FIRST_SESSION_CHANNEL: Final = 10
_CLIENT_ID_SINCE: Final = 131
#: Pause before a session is asked for again that a starting node rejected (artemis-core s. 7.3).
_REJECTED_PAUSE_MS: Final = 10


class CreationHost(SessionHost, Protocol):
    """The connection as seen from here."""

    @property
    def sessions(self) -> dict[int, SessionState]:
        """The sessions of the connection by channel."""
        ...

    @property
    def control(self) -> Calls:
        """The calls of channel 1."""
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


class SessionCreation:
    """Creates sessions on one connection and retries those that were refused for a while."""

    def __init__(self, host: CreationHost, options: ClientOptions, user: str | None, password: str | None) -> None:
        self._host = host
        self._options = options
        self._user = user
        self._password = password
        self._next_channel = FIRST_SESSION_CHANNEL
        self.serving_node = ServingNode()
        """The node that made a session last."""
        self._rejected: list[Callable[[], None]] = []
        self.retry_ms: int | None = None
        """Moment at which rejected sessions are requested again."""

    def open(self, options: SessionOptions, waiter: Waiter[SessionState]) -> None:
        """Create a session on the next channel."""
        host = self._host
        channel_id = self._next_channel
        self._next_channel += 1
        session = SessionState(host, channel_id, host.new_name(), options)
        rejected_until_ms = host.clock.monotonic_ms() + self._options.call_timeout_ms

        def build(_: int) -> Packet:
            session.name = host.new_name()
            return self.packet(session)

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, IncompatibleVersion) and host.lower_version():
                host.control.add(call(), first=True)
                return
            if isinstance(error, (SessionRejected, NotActive)) and host.clock.monotonic_ms() < rejected_until_ms:
                self.later(lambda: host.control.add(call()))
                return
            if error is None:
                host.learn_version(packet.server_version)
                host.learn_epoch(packet.epoch or 0)
                session.takes_settlements = bool(packet.takes_settlements)
                host.sessions[channel_id] = session
                session.opened()
                if waiter.done():
                    # The caller was cancelled meanwhile.
                    session.close(_Nobody())
                    return
            if isinstance(error, BrokerError):
                error = login_error(error)
            settle(waiter, lambda _: session)(packet, error)

        def call() -> Call:
            return Call("create session", build, (CreateSessionResponse,), done, Interrupted.REISSUE)

        host.control.add(call())

    def packet(self, session: SessionState, name: str | None = None) -> Packet:
        """The request for a session, with its name of now unless another is given."""
        options = session.options
        version = self._host.version
        common = (
            name or session.name,
            session.channel_id,
            version,
            self._user,
            self._password,
            self._options.min_large_message_size,
            options.xa,
            options.auto_commit_sends,
            options.auto_commit_acks,
            self._options.confirmation_window_size,
            options.pre_acknowledge,
            None,
        )
        if version >= _CLIENT_ID_SINCE and self._options.client_id is not None:
            return CreateSessionV2(*common, self._options.client_id)
        return CreateSession(*common)

    def later(self, again: Callable[[], None]) -> None:
        """Call after the pause for a node that is still starting."""
        self._rejected.append(again)
        self.retry_ms = self._host.clock.monotonic_ms() + _REJECTED_PAUSE_MS
        self._host.wake_at(self.retry_ms)

    def handle_deadline(self, now_ms: int) -> None:
        """Request rejected sessions again when the pause is over."""
        if self.retry_ms is not None and now_ms >= self.retry_ms:
            self.flush()

    def flush(self) -> None:
        """Ask again now; at the end of the connection that tells the callers."""
        again, self._rejected, self.retry_ms = self._rejected, [], None
        for each in again:
            each()


class _Nobody:
    """A waiter for an outcome that is not wanted."""

    def done(self) -> bool:
        return True

    def set_result(self, result: object, /) -> None:
        raise AssertionError("done() is always true")

    def set_exception(self, exception: BaseException, /) -> None:
        raise AssertionError("done() is always true")
