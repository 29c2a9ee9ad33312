"""The XA packets of a session channel (artemis-core s. 4.5): each answered by XA_RESP, its code an XAException's."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from understudy.errors import BrokerError, XaCode, XaError, forget_frames
from understudy.protocols.core.answers import SessionAnswers
from understudy.session.xa import XaRequests
from understudy.wire.core import packets
from understudy.wire.core.codec import encode


@lru_cache(maxsize=256)
def _ok(channel_id: int, version: int) -> bytes:
    """The frame of the answer that a request was carried out, which is sent up to four times for a transaction."""
    return encode(packets.XaResponse(False, XaCode.OK, None), channel_id, version)


_REQUESTS: Final[dict[type, Callable[[XaRequests, Any], None]]] = {
    packets.XaStart: lambda requests, packet: requests.start(packet.xid),
    packets.XaJoin: lambda requests, packet: requests.join(packet.xid),
    packets.XaResume: lambda requests, packet: requests.resume(packet.xid),
    packets.XaSuspend: lambda requests, packet: requests.suspend(),
    packets.XaEnd: lambda requests, packet: requests.end(packet.xid, failed=packet.failed),
    packets.XaPrepare: lambda requests, packet: requests.prepare(packet.xid),
    packets.XaRollback: lambda requests, packet: requests.roll_back(packet.xid),
    packets.XaForget: lambda requests, packet: requests.forget(packet.xid),
}
#: Requests that write nothing to the log. Their answer does not wait until earlier work of the branch is durable, which
#: is what the answer to the preparation says.
_WRITE_NOTHING: Final = frozenset((packets.XaStart, packets.XaJoin, packets.XaResume, packets.XaSuspend, packets.XaEnd))


def _request(handler: SessionAnswers, packet: Any) -> None:
    answer: packets.Packet | None = None
    try:
        _REQUESTS[type(packet)](handler.session.branches, packet)
    except BrokerError as error:
        forget_frames(error)
        if handler.gives_up(error):
            return
        answer = _refusal(handler, error)
    state, channel = handler.session.state, handler.channel
    if answer is not None:
        state.when_durable(channel.send_packet, answer)
    elif type(packet) in _WRITE_NOTHING:
        state.in_order(channel.send, _ok(channel.channel_id, handler.version))
    else:
        state.when_durable(channel.send, _ok(channel.channel_id, handler.version))


def _commit(handler: SessionAnswers, packet: packets.XaCommit) -> None:
    def done(error: BrokerError | None) -> None:
        if error is None:
            handler.channel.send(_ok(handler.channel.channel_id, handler.version))
        elif not handler.gives_up(error):
            handler.channel.send_packet(_refusal(handler, error))

    try:
        handler.session.branches.commit(packet.xid, one_phase=packet.one_phase, done=done)
    except BrokerError as error:
        forget_frames(error)
        if handler.gives_up(error):
            return
        handler.session.state.when_durable(handler.channel.send_packet, _refusal(handler, error))


def _refusal(handler: SessionAnswers, error: BrokerError) -> packets.Packet:
    code = error.xa_code if isinstance(error, XaError) else XaCode.RESOURCE_MANAGER_ERROR
    return packets.XaResponse(True, code, handler.text_of(error))


def refuse(handler: SessionAnswers, error: BrokerError) -> None:
    """Answer a request that was skipped."""
    handler.reply(_refusal(handler, error))


def _failed(handler: SessionAnswers, packet: packets.XaFailed) -> None:
    handler.session.branches.failed(packet.xid)


def _in_doubt(handler: SessionAnswers, _: packets.XaInDoubt) -> None:
    # a branch that is not listed has ended: its end must be durable before the transaction manager forgets the branch
    handler.session.state.when_durable(
        handler.channel.send_packet, packets.XaInDoubtResponse(handler.session.branches.in_doubt())
    )


def _set_timeout(handler: SessionAnswers, packet: packets.XaSetTimeout) -> None:
    handler.reply(packets.XaSetTimeoutResponse(handler.session.branches.set_timeout(packet.timeout_s)))


def _get_timeout(handler: SessionAnswers, _: packets.XaGetTimeout) -> None:
    handler.reply(packets.XaGetTimeoutResponse(handler.session.branches.timeout_s))


#: Requests that are answered by XA_RESP.
ANSWERED: Final = frozenset((*_REQUESTS, packets.XaCommit))

HANDLERS: Final[dict[type, Callable[[SessionAnswers, Any], None]]] = {
    **dict.fromkeys(_REQUESTS, _request),
    packets.XaCommit: _commit,
    packets.XaFailed: _failed,
    packets.XaInDoubt: _in_doubt,
    packets.XaSetTimeout: _set_timeout,
    packets.XaGetTimeout: _get_timeout,
}
