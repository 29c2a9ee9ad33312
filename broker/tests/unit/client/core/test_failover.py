"""The reconnection machine: every state x event, the order of connectors, when it gives up."""

from __future__ import annotations

import pytest

from understudy.client.core.connection.failover import DIAL_STAGGER_MS, SHORT_LIVED_MS, Event, Reconnection, State
from understudy.client.core.connection.topology import Topology
from understudy.client.core.url.options import ClientOptions, Connector
from understudy.errors import (
    BrokerError,
    ConnectionLost,
    FailoverTimedOut,
    IncompatibleVersion,
    MachineError,
    Unreachable,
)
from understudy.machine import ILLEGAL, To

A, B, C, D = (Connector(name, 1) for name in "abcd")


class Steps:
    """Records what the machine asks for."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def dial(self, connector: Connector) -> None:
        self.calls.append(("dial", connector.host))

    def stagger(self, delay_ms: int) -> None:
        assert delay_ms == DIAL_STAGGER_MS

    def greet(self, node_id: str | None) -> None:
        self.calls.append(("greet", node_id))

    def restore(self) -> None:
        self.calls.append(("restore",))

    def failover_begins(self, error: BrokerError) -> None:
        self.calls.append(("failover_begins",))

    def connected(self, failed_over: bool) -> None:
        self.calls.append(("connected", failed_over))

    def wait(self, delay_ms: int) -> None:
        self.calls.append(("wait", delay_ms))

    def ended(self, error: BrokerError | None) -> None:
        self.calls.append(("ended", type(error)))

    def take(self) -> list[tuple[object, ...]]:
        taken, self.calls = self.calls, []
        return taken


def machine(
    *initial: Connector, topology: Topology | None = None, start: int = 0, **options: object
) -> tuple[Reconnection, Steps]:
    steps = Steps()
    made = Reconnection(
        initial or (A,),
        ClientOptions(**options),  # type: ignore[arg-type]
        Topology() if topology is None else topology,
        steps,
        start=start,
    )
    return made, steps


LOST = ConnectionLost("gone")


def up(made: Reconnection) -> None:
    """The connector dialled last has answered."""
    made.fire(Event.UP, made.current)


def lose(made: Reconnection) -> None:
    """The dial begun last fails, or the transport is lost."""
    if made.state is State.DIALLING:
        made.fire(Event.DIAL_FAILED, made.current, LOST)
    else:
        made.fire(Event.LOST, LOST)


def connect(made: Reconnection, steps: Steps) -> None:
    """Fire the events that lead from a dial under way to the state ``CONNECTED``."""
    up(made)
    made.fire(Event.GREETED)
    made.fire(Event.RESTORED)
    assert made.state is State.CONNECTED
    steps.take()


def payload_of(event: Event, made: Reconnection) -> tuple[object, ...]:
    if event is Event.UP:
        return (made.current,)
    if event is Event.DIAL_FAILED:
        return (made.current, LOST)
    return (LOST,) if event in (Event.LOST, Event.GIVE_UP) else ()


def in_state(state: State) -> tuple[Reconnection, Steps]:
    made, steps = machine(A, B, reconnect_attempts=-1, initial_connect_attempts=-1)
    path = {
        State.IDLE: [],
        State.DIALLING: [Event.START],
        State.GREETING: [Event.START, Event.UP],
        State.RESTORING: [Event.START, Event.UP, Event.GREETED],
        State.CONNECTED: [Event.START, Event.UP, Event.GREETED, Event.RESTORED],
        # a is dialled still
        State.WAITING: [Event.START, Event.STAGGER_DUE, Event.DIAL_FAILED, Event.STAGGER_DUE],
        State.CLOSED: [Event.CLOSE],
    }[state]
    for event in path:
        made.fire(event, *payload_of(event, made))
    assert made.state is state
    steps.take()
    if state is State.WAITING:
        made.current = A
    return made, steps


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_state_and_event(state: State, event: Event) -> None:
    """Goal: each pair does what the table says and nothing else. Method: fire it, compare."""
    made, steps = in_state(state)
    entry = Reconnection.TABLE[state, event]
    payload = payload_of(event, made)
    if entry is ILLEGAL:
        with pytest.raises(MachineError):
            made.fire(event, *payload)
        assert made.state is state
        assert steps.calls == []
        return
    made.fire(event, *payload)
    if isinstance(entry, To):
        # An action may go on by itself: a lost dial with nothing left to dial waits.
        assert made.state is entry.target or made.state is State.WAITING
        assert steps.calls or (state, event) == (State.WAITING, Event.DIAL_FAILED)
    else:
        assert made.state is state
        assert steps.calls == []


@pytest.mark.parameter("client/(tcp://A,tcp://B)", "client/initialConnectAttempts")
def test_first_connection_goes_round_the_list_from_its_start() -> None:
    made, steps = machine(A, B, C, start=1, initial_connect_attempts=2)
    made.fire(Event.START)
    for _ in range(3):
        lose(made)
    assert steps.take() == [("dial", "b"), ("dial", "c"), ("dial", "a"), ("wait", 2000)]
    made.fire(Event.RETRY_DUE)
    for _ in range(3):
        lose(made)
    assert steps.take() == [("dial", "b"), ("dial", "c"), ("dial", "a"), ("ended", Unreachable)]


def test_first_connection_tells_an_error_that_no_retry_helps() -> None:
    made, steps = machine(A)
    made.fire(Event.START)
    up(made)
    made.fire(Event.LOST, IncompatibleVersion("too old"))
    assert steps.take()[-1] == ("ended", IncompatibleVersion)


@pytest.mark.parameter("client/reconnectAttempts")
def test_without_reconnect_attempts_a_failure_is_the_end() -> None:
    made, steps = machine(A, B)
    made.fire(Event.START)
    connect(made, steps)
    lose(made)
    assert steps.take() == [("ended", ConnectionLost)]
    assert made.state is State.CLOSED


def test_order_after_a_failure_is_backup_previous_initial_and_last_the_failed_one() -> None:
    topology = Topology()
    made, steps = machine(A, D, topology=topology, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    topology.node_up("n", 1, A, B)
    made.learn()
    assert made.node_id == "n"
    made.lived(SHORT_LIVED_MS)
    lose(made)
    assert steps.take() == [("failover_begins",), ("dial", "b")]
    up(made)
    assert steps.take() == [("greet", "n")], "the node must carry on ours"
    made.fire(Event.GREETED)
    made.fire(Event.RESTORED)
    assert steps.take() == [("restore",), ("connected", True)]
    # On the backup now: the place we came from is the previous one.
    topology.node_up("n", 2, C, B)
    made.learn()
    made.lived(SHORT_LIVED_MS)
    lose(made)
    for _ in range(3):
        lose(made)
    assert [call[1] for call in steps.take() if call[0] == "dial"] == ["c", "a", "d", "b"]


def test_backup_is_remembered_when_its_node_leaves_the_topology() -> None:
    topology = Topology()
    made, steps = machine(A, topology=topology, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    topology.node_up("n", 1, A, B)
    made.learn()
    topology.forget("n")
    made.lived(SHORT_LIVED_MS)
    lose(made)
    lose(made)
    assert ("dial", "b") in steps.take()


def test_redirect_goes_first_and_once() -> None:
    made, steps = machine(A, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    made.redirect(C, another_node=False)
    made.lived(SHORT_LIVED_MS)
    lose(made)
    assert ("dial", "c") in steps.take()
    connect(made, steps)
    made.lived(SHORT_LIVED_MS)
    lose(made)
    assert ("dial", "a") in steps.take(), "the connector that failed comes last"
    lose(made)
    assert steps.take() == [("dial", "c")]


@pytest.mark.parameter("client/reconnectAttempts")
def test_rounds_wait_longer_and_end() -> None:
    made, steps = machine(
        A, reconnect_attempts=4, retry_interval_ms=100, retry_interval_multiplier=3.0, max_retry_interval_ms=500
    )
    made.fire(Event.START)
    connect(made, steps)
    made.lived(SHORT_LIVED_MS)
    lose(made)
    lose(made)
    for _ in range(3):
        made.fire(Event.RETRY_DUE)
        lose(made)
    calls = steps.take()
    assert [call[1] for call in calls if call[0] == "wait"] == [100, 300, 500]
    assert calls[-1] == ("ended", FailoverTimedOut)


def test_failover_attempts_go_to_other_nodes() -> None:
    topology = Topology()
    made, steps = machine(A, topology=topology, reconnect_attempts=1, failover_attempts=1)
    made.fire(Event.START)
    connect(made, steps)
    topology.node_up("n", 1, A, None)
    topology.node_up("m", 1, C, D)
    made.learn()
    made.lived(SHORT_LIVED_MS)
    lose(made)
    lose(made)
    steps.take()
    made.fire(Event.RETRY_DUE)
    up(made)
    assert steps.take() == [("dial", "c"), ("greet", None)], "any node will do"


def test_a_server_that_drops_us_at_once_is_not_hammered() -> None:
    made, steps = machine(A, reconnect_attempts=-1)
    made.fire(Event.START)
    waits = 0
    for _ in range(4):
        connect(made, steps)
        made.lived(SHORT_LIVED_MS - 1)
        lose(made)
        if made.state is State.WAITING:
            waits += 1
            made.fire(Event.RETRY_DUE)
    assert waits == 3


def test_diagram_draws_every_state() -> None:
    drawing = Reconnection.diagram()
    assert all(state.name in drawing for state in State)


def test_redirects_to_another_node_need_no_attempts() -> None:
    """A connection router sends us away: that is no failure, and the target does not carry on our node."""
    topology = Topology()
    made, steps = machine(A, topology=topology)
    made.fire(Event.START)
    connect(made, steps)
    topology.own_node_id = "n"
    made.redirect(C, another_node=True)
    made.lived(SHORT_LIVED_MS)
    lose(made)
    assert ("dial", "c") in steps.take()
    up(made)
    assert ("greet", None) in steps.take()
    made.fire(Event.GREETED)
    made.fire(Event.RESTORED)
    lose(made)
    assert made.state is State.CLOSED, "the next failure is one"


def test_a_backup_is_dialled_at_our_own_connector_of_its_name_first() -> None:
    own, topology = Connector("seen-from-here", 1, name="backup"), Topology()
    steps = Steps()
    made = Reconnection((A, own), ClientOptions(reconnect_attempts=-1), topology, steps)
    made.fire(Event.START)
    topology.node_up("n", 1, A, Connector("seen-from-there", 1, name="backup"))
    connect(made, steps)
    made.lived(SHORT_LIVED_MS)
    steps.take()
    lose(made)
    dialled = [steps.take()[-1][1]]
    for _ in range(2):
        lose(made)
        dialled.append(steps.take()[-1][1])
    assert dialled == ["seen-from-here", "seen-from-there", "a"]


# --- dials beside each other ------------------------------------------------------------------------


def failed_over(*initial: Connector, **options: object) -> tuple[Reconnection, Steps]:
    """A connection to the first connector that has just been lost."""
    made, steps = machine(*initial, **({"reconnect_attempts": -1} | options))
    made.fire(Event.START)
    connect(made, steps)
    made.lived(SHORT_LIVED_MS)
    made.fire(Event.LOST, LOST)
    return made, steps


def dialled(steps: Steps) -> list[object]:
    return [call[1] for call in steps.take() if call[0] == "dial"]


def test_a_dial_without_an_answer_is_followed_by_the_next_beside_it() -> None:
    made, steps = failed_over(A, B, C)
    assert dialled(steps) == ["b"]
    made.fire(Event.STAGGER_DUE)
    made.fire(Event.STAGGER_DUE)
    assert dialled(steps) == ["c", "a"]
    made.fire(Event.UP, B)
    assert (made.state, made.current) == (State.GREETING, B)


def test_the_dials_that_were_cancelled_come_next_when_the_winner_does_not_do() -> None:
    made, steps = failed_over(A, B, C)
    made.fire(Event.STAGGER_DUE)
    made.fire(Event.UP, C)
    steps.take()
    made.fire(Event.LOST, LOST)
    assert dialled(steps) == ["b"]
    made.fire(Event.DIAL_FAILED, B, LOST)
    assert dialled(steps) == ["a"]


def test_a_dial_that_hangs_does_not_hold_up_the_rounds() -> None:
    """The host of a has vanished; the backup b refuses until it serves."""
    made, steps = failed_over(A, B)
    for _ in range(5):
        assert "b" in dialled(steps)
        made.fire(Event.DIAL_FAILED, B, LOST)
        made.fire(Event.STAGGER_DUE)
        assert made.state is State.WAITING
        made.fire(Event.RETRY_DUE)
    assert steps.take()[-1] == ("dial", "b"), "a is not dialled a second time while its dial hangs"
    made.fire(Event.UP, B)
    assert steps.take() == [("greet", None)]


def test_a_dial_may_be_answered_or_fail_during_the_wait() -> None:
    made, steps = failed_over(A, B)
    lose(made)
    made.fire(Event.STAGGER_DUE)
    made.fire(Event.DIAL_FAILED, A, LOST)
    assert made.state is State.WAITING
    made.fire(Event.RETRY_DUE)
    lose(made)
    made.fire(Event.STAGGER_DUE)
    assert (made.state, dialled(steps)) == (State.WAITING, ["b", "a", "b", "a"])
    made.fire(Event.UP, A)
    assert (made.state, made.current) == (State.GREETING, A)


def test_the_announced_address_of_the_server_we_use_comes_after_our_own() -> None:
    """Behind a proxy the announced address may not be reachable."""
    topology = Topology()
    made, steps = machine(A, B, topology=topology, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    topology.own_node_id = "n"
    topology.node_up("n", 1, C, None)
    made.learn()
    made.lived(SHORT_LIVED_MS)
    made.fire(Event.LOST, LOST)
    made.fire(Event.STAGGER_DUE)
    made.fire(Event.STAGGER_DUE)
    assert dialled(steps) == ["b", "a", "c"]


def test_the_last_round_waits_for_every_dial() -> None:
    made, steps = failed_over(A, B, reconnect_attempts=1, failover_attempts=0)
    lose(made)
    made.fire(Event.STAGGER_DUE)
    assert made.state is State.DIALLING
    lose(made)
    assert steps.take()[-1] == ("ended", FailoverTimedOut)


def test_a_round_in_which_nothing_answers_goes_on_until_a_dial_fails() -> None:
    made, _ = machine(A, B, initial_connect_attempts=-1)
    made.fire(Event.START)
    for _ in range(4):
        made.fire(Event.STAGGER_DUE)
    assert made.state is State.DIALLING
    made.fire(Event.DIAL_FAILED, A, LOST)
    made.fire(Event.STAGGER_DUE)
    assert made.state is State.WAITING


def test_the_place_a_broker_sent_us_to_is_dialled_first_even_if_it_failed() -> None:
    made, steps = machine(A, B, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    made.lived(SHORT_LIVED_MS)
    made.redirect(A, another_node=False)
    made.fire(Event.LOST, LOST)
    assert dialled(steps) == ["a"]


def test_a_node_that_has_taken_over_by_scale_down_is_ours_from_then_on() -> None:
    topology = Topology()
    topology.node_up("first", 1, A, None)
    topology.node_up("second", 1, B, None)
    made, steps = machine(A, B, topology=topology, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    made.learn()
    assert made.node_id == "first"
    made.redirect(B, another_node=False)
    topology.forget("first")
    made.lived(SHORT_LIVED_MS)
    lose(made)
    assert ("dial", "b") in steps.take()
    up(made)
    assert steps.take() == [("greet", "first")]
    assert not made.at_another_node, "our node has named it"
    made.fire(Event.GREETED)
    assert made.node_id == "second"


def test_another_member_of_the_cluster_is_not_ours_while_our_node_fails_over() -> None:
    """The other member accepts every client unless it has scale-down itself."""
    topology = Topology()
    topology.node_up("ours", 1, A, B)
    topology.node_up("other", 1, C, None)
    made, steps = machine(A, C, topology=topology, reconnect_attempts=-1)
    made.fire(Event.START)
    connect(made, steps)
    made.learn()
    made.lived(SHORT_LIVED_MS)
    lose(made)
    made.fire(Event.DIAL_FAILED, B, LOST)
    assert made.current == C
    made.fire(Event.UP, C)
    assert made.at_another_node
