"""The same activity on a real Artemis and on this broker: the notifications with their names and types."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.management_driver import ManagementDriver
from support.targets import PASSWORD, USER, Target, start_target
from understudy.client.sync import Connection, Session, connect
from understudy.errors import BrokerError
from understudy.message import Message

pytestmark = pytest.mark.maven

POWERLESS = "al"
#: Told here without a plugin (``understudy.management.differences``, "notified").
_MORE_HERE = {"ADDRESS_ADDED", "ADDRESS_REMOVED", "CONNECTION_CREATED", "CONNECTION_DESTROYED"}
#: Told by other threads there, so they have no place among the rest, but a number in the whole run.
_ASIDE = {"SESSION_CREATED": 2, "SESSION_CLOSED": 2, "SECURITY_AUTHENTICATION_VIOLATION": 2,
          "SECURITY_PERMISSION_VIOLATION": 2}  # fmt: skip
_BY_NATURE = {"_AMQ_NotifTimestamp", "_AMQ_Binding_ID", "_AMQ_ConnectionName", "_AMQ_SessionName"}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PEER = re.compile(r"127\.0\.0\.1:\d+")

Told = tuple[str, dict[str, tuple[int, object]], tuple[object, ...]]
"""Type, properties with their wire types, and header fields of a notification."""


class Watched:
    """A broker, a consumer of its notifications, and a connection that causes them."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._watching = self.connect("watching")
        self.asking = ManagementDriver(self._watching)
        made = self.asking.operation(
            "broker", "createQueue", "activemq.notifications", "MULTICAST", "told", None, True, -1, False, True
        )
        assert made.succeeded, made.value
        session = self._watching.session()
        self._told = session.consumer("activemq.notifications::told", routing="multicast")
        self._fence = 0
        self.aside: list[Told] = []
        """Notifications that other threads of the broker sent."""
        self.drain()
        self.aside.clear()
        self.acting = self.connect("acting")
        self.session: Session = self.acting.session()

    def connect(self, client_id: str, user: str = USER, password: str = PASSWORD) -> Connection:
        return connect(
            f"{self.target.url}?clientID={client_id}&initialConnectAttempts=1&reconnectAttempts=0",
            user=user,
            password=password,
        )

    def drain(self, count: int = 0) -> list[Told]:
        """Notifications since the last call, up to that of a queue that is created to mark the end, and until there are
        ``count``: a thread that works for an activity may send its notification after that.
        """
        self._fence += 1
        name = f"fence{self._fence}"
        self.asking.operation("broker", "createQueue", name, name)
        found: list[Told] = []
        fenced = False
        while not fenced or len(found) < count:
            received = self._told.receive(60)
            assert received is not None, f"{name} is not told of after {found}" if not fenced else f"only {found}"
            message = received.message
            if message.properties.get("_AMQ_Address") == name:
                fenced = fenced or message.properties["_AMQ_NotifType"] == "BINDING_ADDED"
                continue
            told = _told(message)
            (self.aside if told[0] in _ASIDE else found).append(told)
        return found

    def drain_aside(self, count: int) -> list[Told]:
        """Notifications that other threads sent since the beginning, as soon as there are ``count``."""
        while len(self.aside) < count:
            received = self._told.receive(60)
            assert received is not None, f"only {self.aside}"
            told = _told(received.message)
            if told[0] in _ASIDE:
                self.aside.append(told)
        return sorted(
            self.aside, key=lambda told: (told[0], str(told[1]["_AMQ_User"]), str(told[1].get("_AMQ_CheckType")))
        )

    def end(self) -> None:
        self._watching.close()
        self.target.end()


def _told(message: Message) -> Told:
    properties = message.properties
    shown = {name: (properties.tag(name), _plain(name, value)) for name, value in properties.items()}
    header = (message.type, message.durable, message.priority, message.body)
    return str(properties["_AMQ_NotifType"]), shown, header


def _plain(name: str, value: object) -> object:
    if name in _BY_NATURE:
        return None
    return _PEER.sub("<peer>", _UUID.sub("<uuid>", value)) if isinstance(value, str) else value


def _consume(watched: Watched) -> None:
    plain = watched.session.consumer("q")
    chosen = watched.session.consumer("q", filter="n > 1")
    chosen.close()
    plain.close()


def _look(watched: Watched) -> None:
    assert not list(watched.session.browser("q"))


def _subscribe(watched: Watched) -> None:
    watched.session.subscriber("topic").close()


def _divert(watched: Watched) -> None:
    watched.asking.operation("broker", "createDivert", "d", "r", "q", "elsewhere", False, "n = 1", None)


def _change(watched: Watched) -> None:
    watched.asking.operation("broker", "updateQueue", "q", "ANYCAST", 3, False)
    watched.asking.operation("broker", "updateAddress", "q", "ANYCAST,MULTICAST")


def _expire(watched: Watched) -> None:
    producer = watched.session.producer("q")
    producer.send("x")
    producer.close()
    watched.asking.operation("queue.q", "expireMessages", None)
    watched.asking.operation("queue.expired", "removeAllMessages")


def _fail_to_log_in(watched: Watched) -> None:
    for user in (USER, "nobody"):
        with suppress(BrokerError), watched.connect("refused", user, "wrong") as connection:
            connection.session()


def _be_refused(watched: Watched) -> None:
    with watched.connect("powerless", POWERLESS) as connection, connection.session() as session:
        # not a send: the client asks first, and who may do nothing is refused that here (session/queue_requests.py)
        for forbidden in (lambda: session.create_queue("forbidden"), lambda: session.consumer("expired")):
            with pytest.raises(BrokerError):
                forbidden()


def _leave(watched: Watched) -> None:
    """Until its temporary queues are gone: another thread deletes them there."""
    watched.session.close()
    watched.acting.close()
    deadline = time.monotonic() + 60
    while sum(map(bool, map(_UUID.fullmatch, watched.asking.operation("broker", "getQueueNames").value))) > 1:
        assert time.monotonic() < deadline, "the client's temporary queues are still there"
        time.sleep(0.02)


ACTIVITIES: tuple[tuple[str, Callable[[Watched], object]], ...] = (
    ("a session is there", lambda watched: None),
    ("an address is made", lambda watched: watched.session.create_address("topic", "multicast")),
    ("a queue is made", lambda watched: watched.session.create_queue("q")),
    ("a queue with a filter is made", lambda watched: watched.session.create_queue("f", filter="n = 1")),
    ("a send makes a queue", lambda watched: watched.session.producer("made").send("x")),
    ("a temporary queue is made", lambda watched: watched.session.create_temporary_queue()),
    ("consumers come and go", _consume),
    ("a queue is browsed", _look),
    ("a subscriber comes and goes", _subscribe),
    ("a message expires", _expire),
    ("a divert is made", _divert),
    ("a queue and an address are changed", _change),
    ("logins are refused", _fail_to_log_in),
    ("requests are refused", _be_refused),
    ("a queue is deleted", lambda watched: watched.asking.operation("broker", "destroyQueue", "f")),
    ("a queue is destroyed", lambda watched: watched.asking.operation("broker", "destroyQueue", "made", True, True)),
    ("a client leaves", _leave),
)


#: Notifications of activities that other threads of Artemis carry on with: the two temporary queues of a client.
_LATE = {"a client leaves": 2}


@pytest.fixture
def both(artemis: Path, instances: Path) -> Iterator[tuple[Watched, Watched]]:
    """Artemis and ours."""
    made: list[Watched] = []
    try:
        for name in ("artemis", "understudy"):
            directory = instances / f"watched-{name}"
            made.append(Watched(start_target(name, directory, artemis, security=True, powerless=POWERLESS)))
        yield made[0], made[1]
    finally:
        for watched in made:
            watched.end()


def unlike(activity: str, theirs: list[Told], ours: list[Told]) -> list[str]:
    """One line for each difference."""
    if [kind for kind, *_ in theirs] != [kind for kind, *_ in ours]:
        return [f"{activity}: {[kind for kind, *_ in theirs]} there, {[kind for kind, *_ in ours]} here"]
    found = []
    for (kind, properties, header), (_, other_properties, other_header) in zip(theirs, ours, strict=True):
        found += [
            f"{activity}: {kind} {name}: {properties.get(name)} there, {other_properties.get(name)} here"
            for name in sorted(properties.keys() | other_properties.keys())
            if properties.get(name) != other_properties.get(name)
        ]
        if header != other_header:
            found.append(f"{activity}: {kind}: {header} there, {other_header} here")
    return found


@pytest.mark.feature("notifications")
def test_the_same_activity_gives_the_same_notifications(both: tuple[Watched, Watched]) -> None:
    found: list[str] = []
    for activity, act in ACTIVITIES:
        told: list[list[Told]] = []
        for watched in both:
            act(watched)
            told.append(watched.drain())
        found += unlike(activity, told[0], [each for each in told[1] if each[0] not in _MORE_HERE])
    there, here = (watched.drain_aside(sum(_ASIDE.values())) for watched in both)
    found += unlike("sessions and refusals", there, here)
    assert not found, "\n".join(found)
