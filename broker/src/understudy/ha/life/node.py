"""The life of a node: follow, activate, serve, yield, stop and fail, under any policy.

A failover reads from top to bottom of the table: the policy of a passive node takes the lock and calls ``activate``;
the shell carries out the steps of the activation (``NodePort.activate``) and answers ``_activation_done``; the policy
gets ``serve``. Every end goes through ``deactivate``, which undoes the same steps.

Not here: when to do any of it (``ha.life.policy``), and how (``runtime.node.node``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto

from understudy.errors import BrokerError
from understudy.ha.life.policy import Decisions, Ending, NodePort, NodeState, Policy, Standby
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table

log = logging.getLogger(__name__)


class NodeEvent(Enum):
    """Events of the machine."""

    START = auto()
    PLACE_TAKEN = auto()
    """The policy: the node has its place in the pair."""
    CLAIMED = auto()
    """The policy: this node is the one to be active."""
    ACTIVATED = auto()
    """The shell: all steps of the activation are done."""
    FAILBACK_WANTED = auto()
    """The policy reports that another node asks for its place."""
    DEACTIVATED = auto()
    """The shell: all steps are undone."""
    QUEUED_AGAIN = auto()
    """The policy: look for a place anew."""
    NETWORK_LOST = auto()
    """The network check: no target answers. Reported after every check."""
    NETWORK_BACK = auto()
    """The network check: a target answers. Reported after every check."""
    STOP = auto()
    FAILED = auto()
    """The node cannot go on. Its argument is the error."""


_S, _E = NodeState, NodeEvent


class NodeLife(Machine[NodeState, NodeEvent]):
    """Life of one node as a declared machine. Implements ``ha.life.policy.Decisions``."""

    STATES = NodeState
    EVENTS = NodeEvent
    INITIAL = NodeState.STOPPED

    def __init__(
        self,
        make_policy: Callable[[Decisions], Policy],
        standby: Standby,
        node: NodePort,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """The node is stopped.

        Args:
            make_policy: Makes what decides, which reports its decisions to the life it is given.
            standby: The node while another one is active.
            node: Activates and deactivates.
            changed: Called after each change of the state.
        """
        super().__init__()
        self.policy = make_policy(self)
        self._standby = standby
        self._node = node
        self._changed = changed
        self._fail_over = False
        self._stop_wanted = False
        """A stop came while the node was activating or failing back."""
        self._error: BrokerError | None = None

    @property
    def error(self) -> BrokerError | None:
        """The error because of which the node ends, or None."""
        return self._error

    # --- called by the shell and the policy ------------------------------------------------------

    def start(self) -> None:
        """Begin; the policy looks for a place."""
        self.fire(NodeEvent.START)

    def take_place(self) -> None:
        self.fire(NodeEvent.PLACE_TAKEN)

    def activate(self) -> None:
        self.fire(NodeEvent.CLAIMED)

    def fail_back(self) -> None:
        self.fire(NodeEvent.FAILBACK_WANTED)

    def refuse_failback(self) -> str | None:
        """Reason why the node cannot yield, on request, to the node that it took over from; None: it can."""
        if self.state is not NodeState.ACTIVE:
            return f"the node is {self.state.shown}, not active"
        return self.policy.refuse_failback()

    def take_stopped(self) -> str | None:
        """Activate on request, although the active node was stopped cleanly; why the node cannot, or None."""
        if self.state is not NodeState.PASSIVE:
            return f"the node is {self.state.shown}" + (", in line" if self.state is NodeState.QUEUED else "")
        return self.policy.take_stopped()

    def queue_again(self) -> None:
        self.fire(NodeEvent.QUEUED_AGAIN)

    def stop(self, *, fail_over: bool = False) -> None:
        """Stop cleanly; ``fail_over`` lets another node take over whatever is configured."""
        self._fail_over = fail_over
        self.fire(NodeEvent.STOP)

    def fail(self, error: BrokerError) -> None:
        """The node can no longer do its work (store, lock, activation): end it."""
        self.fire(NodeEvent.FAILED, error)

    def network_checked(self, reachable: bool) -> None:
        """Result of a network check: a node that reaches no target stops, and starts again when it does (artemis-ha
        s. 3.6). A clean stop in every other respect: whether another node takes over depends on the policy.
        """
        self.fire(NodeEvent.NETWORK_BACK if reachable else NodeEvent.NETWORK_LOST)

    def state_changed(self, origin: NodeState, target: NodeState, event: NodeEvent) -> None:
        log.info("ha state", extra={"from": origin.name, "to": target.name, "cause": event.name})
        self._changed()

    # --- passive ---------------------------------------------------------------------------------

    def _queue(self) -> None:
        self._tell(self.policy.queue)

    def _queue_again(self) -> None:
        self._standby.withdraw()
        self._standby.stop_following()
        self._tell(self.policy.queue)

    def _stand_by(self) -> None:
        self._tell(self.policy.stand_by)

    def _end_passive(self, error: BrokerError | None = None) -> None:
        self._remember(error)
        self._standby.withdraw()
        self._standby.stop_following()
        self._end(served=False)

    def _isolate_passive(self) -> None:
        self._standby.withdraw()
        self._standby.stop_following()
        self._isolate(served=False)

    # --- active ----------------------------------------------------------------------------------

    def _activate(self) -> None:
        self._node.activate(self.policy.activation, self._activation_done)

    def _activation_done(self, error: BrokerError | None) -> None:
        if error is not None:
            self.fire(NodeEvent.FAILED, error)
        else:
            self.fire(NodeEvent.ACTIVATED)

    def _serve(self) -> None:
        self._tell(self.policy.serve)
        self._stop_if_wanted()

    # --- yielding and stopping -------------------------------------------------------------------

    def _stop_later(self) -> None:
        self._stop_wanted = True

    def _stop_if_wanted(self) -> None:
        if self._stop_wanted:
            self.fire(NodeEvent.STOP)

    def _deactivate(self, error: BrokerError | None = None) -> None:
        self._remember(error)
        self.policy.leave(fail_over=self._fail_over)
        self._node.deactivate(self._deactivation_done)

    def _deactivation_done(self, error: BrokerError | None) -> None:
        if error is not None and self.state in (NodeState.FAILING_BACK, NodeState.ISOLATING):
            self.fire(NodeEvent.FAILED, error)
            return
        self._remember(error)
        self.fire(NodeEvent.DEACTIVATED)

    def _yielded(self) -> None:
        self._tell(self.policy.give_back)
        self._stop_if_wanted()

    def _isolate_active(self) -> None:
        self._isolate(served=True)

    def _isolate(self, *, served: bool) -> None:
        log.warning("stopped by the network check until the network is reachable")
        error = self.policy.release(Ending(served, None, False))
        if error is not None:
            self.fire(NodeEvent.FAILED, error)
        else:
            self._stop_if_wanted()

    def _end_isolated(self, error: BrokerError | None = None) -> None:
        self._remember(error)
        self._end(served=False)

    def _end_active(self) -> None:
        self._end(served=True)

    def _end(self, *, served: bool) -> None:
        self._remember(self.policy.release(Ending(served, self._error, self._fail_over)))
        self._node.stopped(self._error)

    def _remember(self, error: BrokerError | None) -> None:
        self._error = self._error or error

    def _tell(self, hook: Callable[[], None]) -> None:
        """Call a method of the policy; an error that it raises ends the node."""
        try:
            hook()
        except BrokerError as error:
            self.fire(NodeEvent.FAILED, error)

    TABLE = table(
        NodeState,
        NodeEvent,
        {
            (_S.STOPPED, _E.START): To(_S.QUEUED, _queue),
            (_S.STOPPED, _E.STOP): IGNORED,
            (_S.STOPPED, _E.FAILED): IGNORED,
            (_S.QUEUED, _E.PLACE_TAKEN): To(_S.PASSIVE, _stand_by),
            (_S.QUEUED, _E.STOP): To(_S.STOPPED, _end_passive),
            (_S.QUEUED, _E.FAILED): To(_S.STOPPED, _end_passive),
            (_S.PASSIVE, _E.CLAIMED): To(_S.ACTIVATING, _activate),
            (_S.PASSIVE, _E.QUEUED_AGAIN): To(_S.QUEUED, _queue_again),
            (_S.PASSIVE, _E.STOP): To(_S.STOPPED, _end_passive),
            (_S.PASSIVE, _E.FAILED): To(_S.STOPPED, _end_passive),
            (_S.ACTIVATING, _E.ACTIVATED): To(_S.ACTIVE, _serve),
            # a stop during an activation waits until the activation has succeeded or failed
            (_S.ACTIVATING, _E.STOP): To(_S.ACTIVATING, _stop_later),
            (_S.ACTIVATING, _E.FAILED): To(_S.STOPPING, _deactivate),
            (_S.ACTIVE, _E.FAILBACK_WANTED): To(_S.FAILING_BACK, _deactivate),
            (_S.ACTIVE, _E.STOP): To(_S.STOPPING, _deactivate),
            (_S.ACTIVE, _E.FAILED): To(_S.STOPPING, _deactivate),
            (_S.FAILING_BACK, _E.DEACTIVATED): To(_S.YIELDED, _yielded),
            (_S.FAILING_BACK, _E.STOP): To(_S.FAILING_BACK, _stop_later),
            (_S.FAILING_BACK, _E.FAILED): To(_S.STOPPING, _deactivate),
            (_S.YIELDED, _E.QUEUED_AGAIN): To(_S.QUEUED, _queue),
            (_S.YIELDED, _E.STOP): To(_S.STOPPED, _end_passive),
            (_S.YIELDED, _E.FAILED): To(_S.STOPPED, _end_passive),
            (_S.STOPPING, _E.DEACTIVATED): To(_S.STOPPED, _end_active),
            (_S.STOPPING, _E.STOP): IGNORED,
            (_S.STOPPING, _E.FAILED): To(_S.STOPPING, _remember),
            (_S.STOPPING, _E.ACTIVATED): IGNORED,
            # in other states a node is about to be one of these or to end; the next check reports it again
            (_S.QUEUED, _E.NETWORK_LOST): To(_S.ISOLATED, _isolate_passive),
            (_S.PASSIVE, _E.NETWORK_LOST): To(_S.ISOLATED, _isolate_passive),
            (_S.YIELDED, _E.NETWORK_LOST): To(_S.ISOLATED, _isolate_passive),
            (_S.ACTIVE, _E.NETWORK_LOST): To(_S.ISOLATING, _deactivate),
            (_S.ISOLATING, _E.DEACTIVATED): To(_S.ISOLATED, _isolate_active),
            (_S.ISOLATING, _E.STOP): To(_S.ISOLATING, _stop_later),
            (_S.ISOLATING, _E.FAILED): To(_S.STOPPING, _deactivate),
            (_S.ISOLATED, _E.NETWORK_BACK): To(_S.QUEUED, _queue),
            (_S.ISOLATED, _E.STOP): To(_S.STOPPED, _end_isolated),
            (_S.ISOLATED, _E.FAILED): To(_S.STOPPED, _end_isolated),
        },
        otherwise={
            _E.START: ILLEGAL,
            _E.PLACE_TAKEN: ILLEGAL,
            _E.CLAIMED: ILLEGAL,
            _E.ACTIVATED: ILLEGAL,
            _E.FAILBACK_WANTED: ILLEGAL,
            _E.DEACTIVATED: ILLEGAL,
            _E.QUEUED_AGAIN: ILLEGAL,
            _E.NETWORK_LOST: IGNORED,
            _E.NETWORK_BACK: IGNORED,
        },
    )
