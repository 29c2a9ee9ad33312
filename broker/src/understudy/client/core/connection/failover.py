"""Which server to dial next, and when to give up: the life of one client connection.

A declared machine (``docs/build/machines/``): dialling, greeting (ping, CHECK_FOR_FAILOVER, topology),
restoring sessions, connected, waiting for the next round, closed. The first connection and every
failover run through the same states.

A round is one attempt of ``reconnectAttempts``. It dials, in this order, where the broker sent us,
our own connector with the name of the known backup of our node, that backup, the previous
connector, the list of the URL, and last the connector that failed and the address under which the
same server announces itself (artemis-core s. 8.3, artemis-ha s. 8). A dial that fails is
followed by the next at once; one that is not answered within ``DIAL_STAGGER_MS`` goes on while the
next begins beside it, as in RFC 8305. The first transport that opens is used and the other dials are
cancelled; they are tried again if its node turns out to be the wrong one.

A host that has vanished answers nothing, so a dial to it lasts until its ``connect-timeout-millis``.
Such a dial does not hold up a round: the round is over when its other connectors have failed. The
dial goes on during the wait, ``retryInterval`` times the multiplier, capped, and during later rounds,
which do not dial that connector a second time. Thus a backup that begins to serve is found within
the wait and the stagger, whatever the connect timeout is. The last round waits for every dial.

Bytes, sessions and clocks are elsewhere. Actions are calls of ``Steps``; occurrences are
reported by events.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final, Protocol

from understudy.client.core.connection.topology import Topology
from understudy.client.core.url.options import ClientOptions, Connector
from understudy.errors import BrokerError, ConnectionLost, FailoverTimedOut, Unreachable
from understudy.machine import IGNORED, ILLEGAL, Machine, To, table
from understudy.texts import counted

#: Time after which the next connector is dialled beside one that has not answered. The value RFC 8305
#: recommends; longer than the round trip of most networks, so that one dial is the usual case.
DIAL_STAGGER_MS: Final = 250
#: A connection that lived shorter than this was not worth counting as a recovery.
SHORT_LIVED_MS: Final = 1000
#: Short-lived connections in a row that are followed by an immediate dial; then we wait first.
_SHORT_LIVED_MAX: Final = 2


class State(Enum):
    IDLE = "idle"
    DIALLING = "dialling"
    GREETING = "greeting"
    RESTORING = "restoring"
    CONNECTED = "connected"
    WAITING = "waiting"
    CLOSED = "closed"


class Event(Enum):
    START = "start"
    UP = "up"
    """A transport is open. Payload: its connector."""
    DIAL_FAILED = "dial failed"
    """A dial was refused or took too long. Payload: its connector and the error."""
    STAGGER_DUE = "stagger due"
    """No dial has been answered for DIAL_STAGGER_MS."""
    GREETED = "greeted"
    """The expected node has answered and has sent its topology."""
    RESTORED = "restored"
    """Every session works again."""
    LOST = "lost"
    """Transport lost, node refused us, or its answer took too long. Payload: the error."""
    ROUND_OVER = "round over"
    """Every connector of the round was dialled, and at least one of them failed."""
    RETRY_DUE = "retry due"
    GIVE_UP = "give up"
    CLOSE = "close"


class Steps(Protocol):
    """Actions that the machine requires of its connection."""

    def dial(self, connector: Connector) -> None:
        """Open a further transport; the answer is the event UP or DIAL_FAILED."""
        ...

    def stagger(self, delay_ms: int) -> None:
        """Fire STAGGER_DUE after the delay, counted from now; replaces an earlier one."""
        ...

    def greet(self, node_id: str | None) -> None:
        """Start the conversation, checking for ``node_id`` if there is one; GREETED or LOST."""
        ...

    def restore(self) -> None:
        """Reattach or re-create the sessions; RESTORED or LOST."""
        ...

    def failover_begins(self, error: BrokerError) -> None:
        """Called when a working connection was lost and a new one is being looked for."""
        ...

    def connected(self, failed_over: bool) -> None:
        """The connection works, after a failover or for the first time."""
        ...

    def wait(self, delay_ms: int) -> None:
        """Fire RETRY_DUE after the delay."""
        ...

    def ended(self, error: BrokerError | None) -> None:
        """The end: None when asked for, else why no connection is left."""
        ...


class Reconnection(Machine[State, Event]):
    """The machine that dials, greets and restores until a connection works or the attempts are exhausted."""

    STATES: ClassVar[type[Enum]] = State
    EVENTS: ClassVar[type[Enum]] = Event
    INITIAL: ClassVar[Enum] = State.IDLE

    def __init__(
        self,
        initial: tuple[Connector, ...],
        options: ClientOptions,
        topology: Topology,
        steps: Steps,
        *,
        start: int = 0,
    ) -> None:
        """Args:
        initial: Connectors of the URL, at least one.
        start: Which of them to dial first; the others follow in turn.
        """
        super().__init__()
        turn = start % len(initial)
        self._initial = initial[turn:] + initial[:turn]
        self.options = options
        """How many rounds are allowed, and the pauses between them."""
        self._topology = topology
        self._steps = steps
        self._candidates: list[Connector] = []
        self._dialling: list[Connector] = []
        #: Whether a connector has failed in this round.
        self._some_failed = False
        self._rounds = 0
        self._error: BrokerError | None = None
        self._short_lived = 0
        self._ever_connected = False
        self.current: Connector | None = None
        """The connector of the transport, or the one dialled last."""
        self._settled: Connector | None = None
        self._previous: Connector | None = None
        self._backup: Connector | None = None
        self._alias: Connector | None = None
        self._redirect: Connector | None = None
        self._another_node = False

    @property
    def node_id(self) -> str | None:
        """The node our sessions live on; both servers of its pair carry it."""
        return self._topology.own_node_id

    @property
    def failing_over(self) -> bool:
        """Whether a connection that once worked is being replaced."""
        return self._ever_connected and self.state not in (State.CONNECTED, State.CLOSED)

    @property
    def backup(self) -> Connector | None:
        """The other server of our node, as far as the topology has named it."""
        return self._backup

    @property
    def attempts(self) -> int:
        """Rounds begun since the last working connection."""
        return self._rounds

    def learn(self) -> None:
        """Note which node is ours and where its backup is; called when the topology changed.

        Kept here because a node that announces its own shutdown leaves the topology just when
        its backup is needed.
        """
        if self.current is None:
            return
        node = self._topology.get(self.node_id) if self.node_id else self._topology.node_at(self.current)
        if node is None:
            return
        self._topology.own_node_id = node.node_id
        if node.backup is None:
            # announced alone under another address than ours (a proxy, NAT): the server we are connected to
            if node.primary is not None and node.primary.place != self.current.place:
                self._alias = node.primary
            return
        for each in (node.backup, node.primary):
            if each is not None and each.place != self.current.place:
                self._backup = each
                return

    def redirect(self, connector: Connector, *, another_node: bool) -> None:
        """The broker named the place to go to next.

        Args:
            another_node: Whether it is not a successor of our node: a connection router wants us there, even
                if nothing else is to be tried after a failure (artemis-core s. 7.2).
        """
        self._redirect = connector
        self._another_node = another_node
        if self.state is not State.CONNECTED:
            self._candidates.insert(0, connector)

    @property
    def at_another_node(self) -> bool:
        """Whether the node that has accepted us is another member of the cluster, and ours has not sent us there.

        A node without scale-down accepts the clients of all others (artemis-ha s. 6); ours may be failing over.
        """
        if self.node_id is None or self.current is None:
            return False
        if self._redirect is not None and self._redirect.place == self.current.place:
            return False
        here = self._topology.node_at(self.current)
        return here is not None and here.node_id != self.node_id

    def lived(self, lifetime_ms: int) -> None:
        """Note how long the connection had been working; called before the event LOST."""
        self._short_lived = self._short_lived + 1 if lifetime_ms < SHORT_LIVED_MS else 0

    # actions of the table

    def _begin_round(self) -> None:
        self._rounds += 1
        self._some_failed = False
        busy = {each.place for each in self._dialling}
        self._candidates = [each for each in self._round() if each.place not in busy]
        self._dial_next(None)

    def _round(self) -> list[Connector]:
        wanted: list[Connector | None]
        if not self._ever_connected:
            wanted = [*self._initial]
        elif self._beyond_own_node():
            wanted = [self._redirect]
            wanted += [each for node in self._topology for each in (node.primary, node.backup)]
            wanted += self._initial
        else:
            wanted = [self._redirect, self._own_backup(), self._backup, self._previous, *self._initial, self._settled]
        found: dict[tuple[str | int, ...], Connector] = {}
        for connector in wanted:
            if connector is not None:
                found.setdefault(connector.place, connector)
        failed = self._settled
        if failed is not None and (self._redirect is None or failed.place != self._redirect.place):
            last = found.pop(failed.place, None)
            if last is not None:
                found[failed.place] = last
        if self._alias is not None and not self._beyond_own_node():
            found.setdefault(self._alias.place, self._alias)
        return list(found.values())

    def _own_backup(self) -> Connector | None:
        """Our own way to the backup: the connector of the URL that has its name (artemis-ha s. 8)."""
        backup = self._backup
        if backup is None or not backup.name:
            return None
        return next((each for each in self._initial if each.name == backup.name), None)

    def _beyond_own_node(self) -> bool:
        """Whether the rounds for our own node are spent and any node of the cluster will do."""
        return self._ever_connected and 0 <= self.options.reconnect_attempts < self._rounds

    def _dial_next(self, error: BrokerError | None) -> None:
        """Dial the next connector, after a failure or at the begin of a round."""
        if error is not None:
            self._error = error
            self._some_failed = True
        if self._candidates:
            self.current = self._candidates.pop(0)
            self._dialling.append(self.current)
            self._steps.dial(self.current)
        if self._dialling:
            self._steps.stagger(DIAL_STAGGER_MS)
            return
        allowed = self._allowed_rounds()
        if 0 <= allowed <= self._rounds:
            self.fire(Event.GIVE_UP, self._final_error())
        else:
            self.fire(Event.ROUND_OVER)

    def _dial_beside(self) -> None:
        """Called when the dials under way have not been answered for a while."""
        if self._candidates:
            self._dial_next(None)
        elif self._some_failed and not 0 <= self._allowed_rounds() <= self._rounds:
            self.fire(Event.ROUND_OVER)

    def _dial_failed(self, connector: Connector, error: BrokerError) -> None:
        self._forget_dial(connector, error)
        self._dial_next(error)

    def _forget_dial(self, connector: Connector, error: BrokerError) -> None:
        self._error = error
        self._dialling.remove(connector)

    def _allowed_rounds(self) -> int:
        rounds = self._configured_rounds()
        return 1 if rounds == 0 and self._another_node else rounds

    def _configured_rounds(self) -> int:
        if not self._ever_connected:
            return self.options.initial_connect_attempts
        if self.options.reconnect_attempts < 0:
            return -1
        if self.options.failover_attempts < 0:
            return -1
        return self.options.reconnect_attempts + self.options.failover_attempts

    def _final_error(self) -> BrokerError:
        last = f"; last: {self._error}" if self._error else ""
        places = ", ".join(str(each) for each in self._initial)
        tried = f"{places} after {counted(self._rounds, 'round')}"
        if not self._ever_connected:
            if self._error is not None and not self._error.retryable:
                return self._error
            # an error with a hint of its own is one of a node that answers
            known = self._error is not None and self._error.hint is not None
            hint = None if known else "does it run? a passive node opens no port, so name both nodes of a pair"
            return Unreachable(f"no broker at {tried}{last}", hint=hint)
        return FailoverTimedOut(f"no active broker at {tried}{last}")

    def without_a_broker(self, lasted_s: float) -> str:
        """The sentence for the log about a search that lasts so long."""
        places = ", ".join(str(each) for each in self._initial)
        last = f": {self._error}" if self._error is not None else ""
        return f"no broker at {places} for {lasted_s:.0f} s{last}; trying again"

    def _wait(self) -> None:
        options = self.options
        factor = options.retry_interval_multiplier ** min(max(self._rounds - 1, 0), 64)
        longest_ms = max(options.max_retry_interval_ms, options.retry_interval_ms)
        self._steps.wait(int(min(options.retry_interval_ms * factor, longest_ms)))

    def _use(self, connector: Connector) -> None:
        """A transport is open: the other dials are cancelled, and come next if this node does not do."""
        self._dialling.remove(connector)
        self._candidates = [*self._dialling, *self._candidates]
        self._dialling.clear()
        self.current = connector
        redirected = self._another_node and self.current == self._redirect
        if redirected or self._beyond_own_node():
            self._topology.own_node_id = None
        self._steps.greet(self.node_id)

    def _restore(self) -> None:
        assert self.current is not None
        here = self._topology.node_at(self.current)
        if here is not None and here.node_id != self.node_id:
            # another node has accepted us: our own was scaled down to it (artemis-ha s. 6)
            self._topology.own_node_id = here.node_id
            self._backup = None
            self.learn()
        self._steps.restore()

    def _connected(self) -> None:
        failed_over, self._ever_connected = self._ever_connected, True
        if self._settled is not None and self.current is not None and self.current.place != self._settled.place:
            self._previous, self._backup, self._alias = self._settled, None, None
        self._settled = self.current
        self._redirect = None
        self._another_node = False
        self._rounds = 0
        self._error = None
        self.learn()
        self._steps.connected(failed_over)

    def _fail_over(self, error: BrokerError) -> None:
        self._error = error
        if self._allowed_rounds() == 0:
            self.fire(Event.GIVE_UP, error if isinstance(error, ConnectionLost) else ConnectionLost(str(error)))
            return
        self._steps.failover_begins(error)
        if self._short_lived >= _SHORT_LIVED_MAX:
            # The broker accepts connections and closes them at once: wait before the next attempt.
            self._candidates = []
            self.fire(Event.ROUND_OVER)
        else:
            self._begin_round()

    def _end(self, error: BrokerError | None = None) -> None:
        self._steps.ended(error)

    # The table comes last: it names the functions above.
    TABLE = table(
        State,
        Event,
        {
            (State.IDLE, Event.START): To(State.DIALLING, _begin_round),
            (State.IDLE, Event.LOST): ILLEGAL,
            (State.DIALLING, Event.UP): To(State.GREETING, _use),
            (State.DIALLING, Event.DIAL_FAILED): To(State.DIALLING, _dial_failed),
            (State.DIALLING, Event.STAGGER_DUE): To(State.DIALLING, _dial_beside),
            (State.DIALLING, Event.ROUND_OVER): To(State.WAITING, _wait),
            (State.DIALLING, Event.GIVE_UP): To(State.CLOSED, _end),
            (State.GREETING, Event.GREETED): To(State.RESTORING, _restore),
            (State.GREETING, Event.LOST): To(State.DIALLING, _dial_next),
            (State.GREETING, Event.GIVE_UP): To(State.CLOSED, _end),
            (State.RESTORING, Event.RESTORED): To(State.CONNECTED, _connected),
            (State.RESTORING, Event.LOST): To(State.DIALLING, _dial_next),
            (State.RESTORING, Event.GIVE_UP): To(State.CLOSED, _end),
            (State.CONNECTED, Event.LOST): To(State.DIALLING, _fail_over),
            (State.CONNECTED, Event.GIVE_UP): To(State.CLOSED, _end),
            (State.WAITING, Event.UP): To(State.GREETING, _use),
            (State.WAITING, Event.DIAL_FAILED): To(State.WAITING, _forget_dial),
            (State.WAITING, Event.RETRY_DUE): To(State.DIALLING, _begin_round),
            (State.IDLE, Event.CLOSE): To(State.CLOSED, _end),
            (State.DIALLING, Event.CLOSE): To(State.CLOSED, _end),
            (State.GREETING, Event.CLOSE): To(State.CLOSED, _end),
            (State.RESTORING, Event.CLOSE): To(State.CLOSED, _end),
            (State.CONNECTED, Event.CLOSE): To(State.CLOSED, _end),
            (State.WAITING, Event.CLOSE): To(State.CLOSED, _end),
        },
        otherwise={
            Event.START: ILLEGAL,
            # A transport that opens, answers or dies after we turned away from it changes nothing.
            Event.UP: IGNORED,
            Event.DIAL_FAILED: IGNORED,
            Event.STAGGER_DUE: IGNORED,
            Event.GREETED: IGNORED,
            Event.RESTORED: IGNORED,
            Event.LOST: IGNORED,
            Event.RETRY_DUE: IGNORED,
            Event.CLOSE: IGNORED,
            Event.ROUND_OVER: ILLEGAL,
            Event.GIVE_UP: ILLEGAL,
        },
    )
