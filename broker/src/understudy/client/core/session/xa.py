"""XA branches of one client session (artemis-core s. 4.5), across failovers.

A prepared branch survives a failover: the request that decides it is repeated until it is answered. If the node that
was asked first does not know the branch then, it has carried the request out. If another node answers so, such as the
target of a scale-down, the outcome is unknown, and the transaction manager has to recover the branch.

The work of a branch that was not prepared is lost with the server's session. The client sends XA_FAILED, so that
later acknowledgements in the branch can only be rolled back, and later sends are dropped. Ending or suspending the
branch then rolls the server's session back (SESS_ROLLBACK, like the client of Artemis) and fails with a rollback code.

Every refusal is an ``XaError`` with the code that an XAException would have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from understudy.client.core.connection.calls import Call, Interrupted, Waiter, settle
from understudy.client.core.consumer.consumers import Consumers
from understudy.client.core.session.channel import Channel
from understudy.client.core.session.sends import Sends
from understudy.errors import BrokerError, IllegalState, XaCode, XaError
from understudy.ids import Xid
from understudy.wire.core import packets_xa as packets
from understudy.wire.core.packets import NullResponse, Packet, Rollback, SessionStop

_ROLLED_BACK: Final = range(XaCode.ROLLED_BACK, 108)
#: Name of the request that undoes a branch.
_ROLL_BACK: Final = "roll back branch"


class _Request(NamedTuple):
    """A request about a branch."""

    name: str
    build: Callable[[], Packet]
    """Makes the packet when it is sent."""
    interrupted: Interrupted
    """Handling of the request after a failover."""
    again_means: Collection[int] = ()
    """Codes that mean "already done" when it had been asked before."""


class Branches:
    """The XA branches in which one session works."""

    def __init__(self, channel: Channel, sends: Sends, consumers: Consumers) -> None:
        self._channel = channel
        self._sends = sends
        self._consumers = consumers
        self._enabled = channel.options.xa
        self._working_in: Xid | None = None
        self.lost = False
        """A failover undid the work of the branch."""

    @property
    def working_in(self) -> Xid | None:
        """The branch that sends and acknowledgements belong to."""
        return self._working_in

    # -- its own part -----------------------------------------------------------------------------

    def start(self, xid: Xid, waiter: Waiter[None], *, join: bool = False, resume: bool = False) -> None:
        """Work in a branch: a new one, one that another session began, or a suspended one."""
        self._check()
        packet = packets.XaJoin(xid) if join else packets.XaResume(xid) if resume else packets.XaStart(xid)

        def begun() -> None:
            self._left()
            self._working_in = xid

        self._ask(_Request("start branch", lambda: packet, Interrupted.FAIL), waiter, begun)

    def suspend(self, waiter: Waiter[None]) -> None:
        """Leave the branch for now; ``start`` with ``resume`` goes on."""
        self._check()
        self._when_sent(
            lambda: self._ask(
                _Request("suspend branch", lambda: self._settled(packets.XaSuspend()), Interrupted.FAIL),
                waiter,
                self._left,
                works_in=True,
            )
        )

    def end(self, xid: Xid, waiter: Waiter[None], *, failed: bool = False) -> None:
        """End the session's part; received messages are acknowledged in the branch."""
        self._check()
        self._when_sent(lambda: self._end(xid, waiter, failed))

    def _when_sent(self, call: Callable[[], None]) -> None:
        """Call when no send waits for credits: such sends belong to the branch, and its end must not overtake them."""
        self._sends.when_none_waits(call)

    def _end(self, xid: Xid, waiter: Waiter[None], failed: bool) -> None:
        works_in = self._working_in == xid
        left = self._left if works_in else None
        self._ask(
            _Request("end branch", lambda: self._settled(packets.XaEnd(xid, failed)), Interrupted.FAIL),
            waiter,
            left,
            refused=left,
            works_in=works_in,
        )

    def _roll_back_lost(self, name: str, waiter: Waiter[None], *, wanted: bool) -> None:
        """Deliveries are stopped: roll back the new server's session after a failover undid the branch.

        Args:
            name: Name of the request, for errors.
            waiter: Receives the outcome.
            wanted: Whether the request is to undo the branch, so that it succeeds.
        """
        channel = self._channel
        self._consumers.rolled_back()

        def done(packet: Any, error: BaseException | None) -> None:
            self._left()
            channel.start()
            lost = XaError(f"{name}: a failover undid the work of this branch", xa_code=XaCode.ROLLED_BACK_OTHER)
            settle(waiter)(None, error or (None if wanted else lost))

        call = Call("rollback", lambda _: Rollback(False), (NullResponse,), done, Interrupted.FORGET, bound=True)
        channel.calls.add(call)

    def _settled(self, packet: Packet) -> Packet:
        self._consumers.acknowledge_all()
        return packet

    def _left(self) -> None:
        self._working_in = None
        self.lost = False
        self._channel.open_work.rollback_only = False

    # -- outcomes ---------------------------------------------------------------------------------

    def prepare(self, xid: Xid, waiter: Waiter[None]) -> None:
        """Have the broker promise that the branch can commit."""
        self._check()
        # asked again after a failover: a branch that is prepared already refuses with PROTOCOL
        self._ask(
            _Request("prepare branch", lambda: packets.XaPrepare(xid), Interrupted.REISSUE, {XaCode.PROTOCOL}),
            waiter,
            None,
        )

    def commit(self, xid: Xid, waiter: Waiter[None], *, one_phase: bool = False) -> None:
        """Commit a prepared branch, or in one phase one that only this session worked in."""
        self._check()
        interrupted = Interrupted.FAIL if one_phase else Interrupted.REISSUE
        # asked again: a prepared branch that is gone was committed by the first time
        self._ask(
            _Request("commit branch", lambda: packets.XaCommit(xid, one_phase), interrupted, {XaCode.UNKNOWN_XID}),
            waiter,
            None,
        )

    def roll_back(self, xid: Xid, waiter: Waiter[None]) -> None:
        """Undo a branch; messages that the session received are delivered again."""
        self._check()
        if self.lost and self._working_in == xid:
            # the end of the branch got no answer: the server's session still works in it
            undo = _Request(_ROLL_BACK, lambda: packets.XaRollback(xid), Interrupted.FAIL)
            self._ask(undo, waiter, None, works_in=True)
        else:
            self._roll_back(xid, waiter, _Repetition(self._channel))

    def _roll_back(self, xid: Xid, waiter: Waiter[None], repetition: _Repetition) -> None:
        """Stop deliveries, drop delivered messages, undo the branch, start.

        After a failover all of it is done again: the server's new session has begun to deliver, and with the branch it
        takes back everything that it delivered, also if it does not know the branch.

        Args:
            repetition: Number of the repetition of the request that undoes the branch.
        """
        name, channel = _ROLL_BACK, self._channel
        interrupted = _interruption(name)

        def cut_off() -> None:
            if channel.closed is not None:
                settle(waiter)(None, interrupted(channel.closed, repetition.asked))
            else:
                self._roll_back(xid, waiter, repetition)

        def build(_: int) -> Packet:
            repetition.asks()
            return packets.XaRollback(xid)

        def stopped(packet: Any, error: BaseException | None) -> None:
            if error is not None:
                settle(waiter)(None, error)
            elif packet is None:
                cut_off()
            else:
                self._consumers.returned()
                call = Call(name, build, (packets.XaResponse,), undone, Interrupted.FORGET, interrupted)
                channel.calls.add(call, first=True)

        def undone(packet: Any, error: BaseException | None) -> None:
            if error is None and packet is None:
                cut_off()
                return
            channel.start()
            settle(waiter)(None, error or repetition.error_of(name, packet, {XaCode.UNKNOWN_XID}))

        stop = Call(name, lambda _: SessionStop(), (NullResponse,), stopped, Interrupted.FORGET, interrupted)
        channel.calls.add(stop)

    def forget(self, xid: Xid, waiter: Waiter[None]) -> None:
        """The broker need not remember a heuristic outcome any more."""
        self._check()
        self._ask(
            _Request("forget branch", lambda: packets.XaForget(xid), Interrupted.REISSUE, {XaCode.UNKNOWN_XID}),
            waiter,
            None,
        )

    def in_doubt(self, waiter: Waiter[tuple[Xid, ...]]) -> None:
        """Branches that wait for their outcome, or whose heuristic outcome waits to be forgotten."""
        self._check()
        answered = settle(waiter, lambda packet: tuple(packet.xids))
        self._channel.calls.add(
            Call("branches in doubt", lambda _: packets.XaInDoubt(), (packets.XaInDoubtResponse,), answered)
        )

    def set_timeout(self, timeout_s: int, waiter: Waiter[bool]) -> None:
        """Set the timeout, in seconds, of branches started from now on; 0 uses the broker's default."""
        self._check()
        answered = settle(waiter, lambda packet: packet.ok)
        self._channel.calls.add(
            Call("branch timeout", lambda _: packets.XaSetTimeout(timeout_s), (packets.XaSetTimeoutResponse,), answered)
        )

    def timeout(self, waiter: Waiter[int]) -> None:
        """Seconds after which the broker gives up a branch that is not prepared."""
        self._check()
        answered = settle(waiter, lambda packet: packet.timeout_s)
        self._channel.calls.add(
            Call("branch timeout", lambda _: packets.XaGetTimeout(), (packets.XaGetTimeoutResponse,), answered)
        )

    # -- life -------------------------------------------------------------------------------------

    def session_recreated(self) -> None:
        """The server's session is a new one: the branch cannot commit, and the broker must know."""
        if self._working_in is not None:
            self.lost = True
            self._channel.transmit_packet(packets.XaFailed(self._working_in))

    def _check(self) -> None:
        channel = self._channel
        if channel.closed is not None:
            raise channel.closed
        if not self._enabled:
            raise IllegalState("the session is not an XA session")

    def _ask(
        self,
        request: _Request,
        waiter: Waiter[None],
        succeeded: Callable[[], None] | None,
        *,
        refused: Callable[[], None] | None = None,
        works_in: bool = False,
    ) -> None:
        """Args:
        succeeded: Called when it was done.
        refused: Called when it was refused, unless the session was to be rolled back: then it still works in the
            branch.
        works_in: Whether it is about the branch that the session works in: if a failover undid that, the session is
            rolled back instead.
        """
        rolls_back = False
        repetition = _Repetition(self._channel)

        def build_packet(_: int) -> Packet:
            # known only when it is sent: it may have waited for the failover to end
            nonlocal rolls_back
            rolls_back = works_in and self.lost
            repetition.asks()
            return SessionStop() if rolls_back else request.build()

        def done(packet: Any, error: BaseException | None) -> None:
            if error is None and rolls_back:
                self._roll_back_lost(request.name, waiter, wanted=request.name == _ROLL_BACK)
                return
            if error is None and packet is not None:
                error = repetition.error_of(request.name, packet, request.again_means)
            if error is None:
                if succeeded is not None:
                    succeeded()
            elif refused is not None and not rolls_back:
                refused()
            settle(waiter, lambda _: None)(None, error)

        call = Call(
            request.name,
            build_packet,
            (packets.XaResponse, NullResponse),
            done,
            request.interrupted,
            _interruption(request.name),
        )
        self._channel.calls.add(call)


class _Repetition:
    """The request of a session that was perhaps sent before, and which node got it then."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._first: str | None = None
        """Node id of the broker that was asked first."""
        self._times = 0

    @property
    def asked(self) -> bool:
        """Whether the repeated request was sent."""
        return self._times > 0

    def asks(self) -> None:
        """Note that the call is sent now."""
        if not self._times:
            self._first = self._channel.node_id
        self._times += 1

    def error_of(self, name: str, packet: Any, again_means: Collection[int]) -> XaError | None:
        """The error in an answer; None if there is none.

        Args:
            name: Name of the request, for errors.
            packet: The answer.
            again_means: Codes that mean "already done" when the same node was asked before.
        """
        refusal = _refusal_of(name, packet)
        if refusal is None or self._times < 2 or refusal.xa_code not in again_means:
            return refusal
        if self._channel.node_id == self._first:
            return None
        return XaError(
            f"{name}: the outcome is unknown: the connection was lost, and another node answers: {refusal}",
            xa_code=XaCode.RESOURCE_MANAGER_FAILED,
        )


def _interruption(name: str) -> Callable[[BrokerError, bool], BaseException]:
    """Makes the error of a request that was cut off."""

    def lost(error: BrokerError, sent: bool) -> BaseException:
        return XaError(f"{name}: the connection was lost: {error}", xa_code=XaCode.RESOURCE_MANAGER_FAILED)

    return lost


def _refusal_of(name: str, packet: Any) -> XaError | None:
    """The error in an answer; None if there is none."""
    if not packet.error:
        return None
    code = packet.response_code
    return XaError(packet.message or f"{name}: code {code}", xa_code=code)


def is_rollback(error: XaError) -> bool:
    """Whether the branch was rolled back: nothing of it is left to be decided."""
    return error.xa_code in _ROLLED_BACK
