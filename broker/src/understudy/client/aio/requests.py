"""Requests of a session of the asyncio client, and conversations of several (``core.destinations``), and its close."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from understudy.client.aio.link import Link, Signal
from understudy.client.core.session.channel import SessionOptions
from understudy.client.core.session.state import SessionState
from understudy.client.core.url.destinations import Conversation, Request
from understudy.errors import BrokerError, IllegalState


async def ask(link: Link, session: SessionState, request: Request) -> Any:
    """Send a request and wait for its answer."""
    return await link.ask(
        lambda waiter: session.request(
            request.name, request.packet, request.expected, waiter, tolerated=request.tolerated
        )
    )


async def converse(link: Link, session: SessionState, conversation: Conversation) -> None:
    """Send the requests of a conversation one after the other, and give it their answers and errors."""
    step: Callable[[], Request] = conversation.__next__
    while True:
        try:
            request = step()
        except StopIteration:
            return
        try:
            answer = await ask(link, session, request)
        except BrokerError as error:
            step = _thrower(conversation, error)
        else:
            step = _sender(conversation, answer)


class TransactionBlock:
    """One transaction of a session in a block. Made by ``Session.transaction``."""

    def __init__(self, link: Link, session: SessionState) -> None:
        self._link = link
        self._session = session

    async def __aenter__(self) -> None:
        if not self._session.options.transacted:
            raise IllegalState("the session is not transacted", hint="use connection.session(transacted=True)")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._link.ask(self._session.commit)
        elif self._session.closed is None:
            await self._link.ask(self._session.rollback)


async def prove_login(link: Link) -> None:
    """Make a session and close it: the broker checks a login with the first session only (artemis-core s. 4.1).

    Raises:
        AuthenticationFailed: user or password are wrong.
    """
    session: SessionState = await link.ask(lambda waiter: link.core.sessions.open(SessionOptions(), waiter))
    await link.ask(session.close)


async def close_session(link: Link, session: SessionState, *, failed: bool = False) -> None:
    """Wait for unconfirmed sends, at most callTimeout, then close the session.

    Args:
        failed: An error ended its use: its messages in work are given back.
    """
    if not failed and session.closed is None and session.transaction.uncommitted:
        warnings.warn(
            f"session made at {session.created_at} is closed with work that was never committed: it is rolled back",
            RuntimeWarning,
            4,
        )
    deadline_s = link.now_s() + link.core.options.call_timeout_ms / 1000
    while session.sends.busy and session.closed is None and link.now_s() < deadline_s:
        idle = Signal(link)
        session.sends.on_idle = idle.set
        await idle.wait(deadline_s)
    await link.ask(lambda waiter: session.close(waiter, failed=failed))


def _thrower(conversation: Generator[Request, Any, None], error: BrokerError) -> Callable[[], Request]:
    return lambda: conversation.throw(error)


def _sender(conversation: Generator[Request, Any, None], answer: Any) -> Callable[[], Request]:
    return lambda: conversation.send(answer)
