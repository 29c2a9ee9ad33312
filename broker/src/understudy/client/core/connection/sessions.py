"""The sessions of one connection: CREATESESSION and its refusals, and the time limits of all of them.

Artemis-core s. 4.1 and 7.3. A refused version is offered again one lower; a node that is still
starting (code 112) or sends us elsewhere (222; the redirect follows as a DISCONNECT) is asked again
after a pause, within callTimeout. Not here: sessions made again after a failover (``restoration``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from understudy.client.core.connection.calls import Call, Calls, Interrupted, Waiter, settle
from understudy.client.core.connection.link_state import LinkState
from understudy.client.core.session.channel import Channel, SessionOptions
from understudy.client.core.session.state import SessionState
from understudy.errors import (
    AuthenticationFailed,
    BrokerError,
    IncompatibleVersion,
    NotActive,
    SecurityError,
    SessionRejected,
)
from understudy.wire.core.packets import CreateSession, CreateSessionResponse, CreateSessionV2, Packet

FIRST_SESSION_CHANNEL: Final = 10
_CLIENT_ID_SINCE: Final = 131
#: Pause before a session is asked for again that a starting node rejected (artemis-core s. 7.3).
_REJECTED_PAUSE_MS: Final = 10


class Sessions:
    """The sessions of one connection by channel; creates them, and retries those that were refused for a while."""

    def __init__(self, link: LinkState, control: Calls, user: str | None, password: str | None) -> None:
        """Args:
        control: The calls of channel 1.
        """
        self.by_channel: dict[int, SessionState] = {}
        self._link = link
        self._control = control
        self._user = user
        self._password = password
        self._next_channel = FIRST_SESSION_CHANNEL
        self._rejected: list[Callable[[], None]] = []
        self._retry_ms: int | None = None
        """Moment at which rejected sessions are requested again."""

    def __iter__(self) -> Iterator[SessionState]:
        return iter(tuple(self.by_channel.values()))

    def __len__(self) -> int:
        return len(self.by_channel)

    @property
    def has_login(self) -> bool:
        """Whether a user or password is given."""
        return self._user is not None or self._password is not None

    def open(self, options: SessionOptions, waiter: Waiter[SessionState]) -> None:
        """Create a session on the next channel."""
        link, control = self._link, self._control
        channel = Channel(link, self._next_channel, options)
        self._next_channel += 1
        session = SessionState(channel, self._forget)
        rejected_until_ms = link.clock.monotonic_ms() + link.options.call_timeout_ms

        def build(_: int) -> Packet:
            channel.name = link.new_name()
            return self.packet(channel, channel.name)

        def done(packet: Any, error: BaseException | None) -> None:
            if isinstance(error, IncompatibleVersion) and link.lower_version():
                control.add(call(), first=True)
                return
            if isinstance(error, (SessionRejected, NotActive)) and link.clock.monotonic_ms() < rejected_until_ms:
                self.later(lambda: control.add(call()))
                return
            if error is None:
                self.made(channel, packet)
                self.by_channel[channel.channel_id] = session
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

        control.add(call())

    def made(self, channel: Channel, answer: CreateSessionResponse) -> None:
        """Note what its answer says about the server; called when the server has made a session."""
        self._link.learn_version(answer.server_version)
        self._link.learn_epoch(answer.epoch or 0)
        channel.takes_settlements = bool(answer.takes_settlements)

    def packet(self, channel: Channel, name: str) -> Packet:
        """The request for a session with that name."""
        options, settings = channel.options, channel.settings
        version = self._link.version
        common = (
            name,
            channel.channel_id,
            version,
            self._user,
            self._password,
            settings.min_large_message_size,
            options.xa,
            options.auto_commit_sends,
            options.auto_commit_acks,
            settings.confirmation_window_size,
            options.pre_acknowledge,
            None,
        )
        if version >= _CLIENT_ID_SINCE and settings.client_id is not None:
            return CreateSessionV2(*common, settings.client_id)
        return CreateSession(*common)

    def later(self, again: Callable[[], None]) -> None:
        """Call after the pause for a node that is still starting."""
        self._rejected.append(again)
        self._retry_ms = self._link.clock.monotonic_ms() + _REJECTED_PAUSE_MS
        self._link.shell.wake_at(self._retry_ms)

    def _flush(self) -> None:
        again, self._rejected, self._retry_ms = self._rejected, [], None
        for each in again:
            each()

    def _forget(self, session: SessionState) -> None:
        self.by_channel.pop(session.channel_id, None)

    # time and loss

    def suspend(self, error: BrokerError) -> None:
        """Called when the connection was lost."""
        for session in self:
            session.suspend(error)

    def end(self, error: BrokerError) -> None:
        """End every session; called when the connection has ended and is not made again."""
        for session in self:
            session.end(error)
        self.by_channel.clear()

    def refuse_waiting(self) -> None:
        """Tell the callers of rejected sessions; called when the control channel has ended."""
        self._flush()

    def handle_deadline(self, now_ms: int) -> None:
        """Request rejected sessions again when the pause is over."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._flush()

    def unconfirmed_too_long(self, now_ms: int) -> int | None:
        """The time for which no send of a session was confirmed, if it is longer than ``callTimeout``, in ms."""
        for session in self.by_channel.values():
            waiting_ms = now_ms - session.channel.last_confirmation_ms
            if session.sends.unconfirmed and waiting_ms >= self._link.options.call_timeout_ms:
                return waiting_ms
        return None

    def excuse(self, now_ms: int) -> None:
        """The broker takes no messages for now, so the time limits of confirmations begin again."""
        for session in self.by_channel.values():
            session.channel.last_confirmation_ms = now_ms

    def confirm_received(self) -> None:
        """Confirm the commands that have arrived, of every session."""
        for session in self.by_channel.values():
            session.confirm_received()

    def deadlines_ms(self, *, connected: bool) -> Iterator[int | None]:
        """Moments at which ``handle_deadline``, a call or a send of a session has a time limit.

        Args:
            connected: Whether sends can be confirmed.
        """
        yield self._retry_ms
        for session in self.by_channel.values():
            yield session.channel.calls.next_deadline_ms()
            if connected and session.sends.unconfirmed:
                yield session.channel.last_confirmation_ms + self._link.options.call_timeout_ms


def login_error(error: BrokerError) -> BrokerError:
    """A login refused: code 105 alone does not say whether identity or permission was missing."""
    return AuthenticationFailed(str(error)) if type(error) is SecurityError else error


class _Nobody:
    """A waiter for an outcome that is not wanted."""

    def done(self) -> bool:
        return True

    def set_result(self, result: object, /) -> None:
        raise AssertionError("done() is always true")

    def set_exception(self, exception: BaseException, /) -> None:
        raise AssertionError("done() is always true")
