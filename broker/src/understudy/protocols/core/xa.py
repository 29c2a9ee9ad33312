"""The XA packets of a session channel (artemis-core s. 4.5): each answered by XA_RESP, its code an XAException's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from understudy.errors import BrokerError, XaCode, XaError, forget_frames
from understudy.protocols.core.answers import SessionAnswers
from understudy.session.xa import XaRequests
from understudy.wire.core import packets

_OK: Final = packets.XaResponse(False, XaCode.OK, None)

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
    answer: packets.Packet = _OK
    try:
        _REQUESTS[type(packet)](handler.session.branches, packet)
    except BrokerError as error:
        forget_frames(error)
        if handler.gives_up(error):
            return
        answer = _refusal(handler, error)
    state = handler.session.state
    if answer is _OK and type(packet) in _WRITE_NOTHING:
        state.in_order(handler.channel.send_packet, answer)
    else:
        state.when_durable(handler.channel.send_packet, answer)


def _commit(handler: SessionAnswers, packet: packets.XaCommit) -> None:
    def done(error: BrokerError | None) -> None:
        if error is None:
            handler.channel.send_packet(_OK)
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
