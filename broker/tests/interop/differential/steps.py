"""The steps of a program: one dataclass each, with the same meaning at every broker.

A step names sessions, queues and deliveries as the program does (``s0``, ``q1``, "the third delivery of consumer 2"),
never by what a broker calls them, so steps can be dropped from a program and the rest still makes sense: what
refers to something that is not there is skipped, at both brokers alike. The ``repr`` of a step is how it is printed.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields

#: A property: its wire type (``properties``) and its value.
Typed = tuple[int, object]
Pairs = tuple[tuple[str, object], ...]


class Step:
    """A step of a program."""

    __slots__ = ()

    def __repr__(self) -> str:
        said = []
        for entry in fields(self):  # type: ignore[arg-type]  # every step is a dataclass
            value = getattr(self, entry.name)
            if entry.default is MISSING or value != entry.default:
                said.append(f"{entry.name}={value!r}")
        return f"{type(self).__name__}({', '.join(said)})"


@dataclass(frozen=True, slots=True, repr=False)
class OpenSession(Step):
    """A session, on a connection of its own."""

    session: str
    auto_commit_sends: bool = True
    auto_commit_acks: bool = True
    pre_acknowledge: bool = False
    xa: bool = False
    started: bool = True
    pieces: int = 102_400
    """Most bytes of a piece in which large messages are delivered."""


@dataclass(frozen=True, slots=True, repr=False)
class CloseSession(Step):
    session: str


@dataclass(frozen=True, slots=True, repr=False)
class Cut(Step):
    """The socket is closed without a word."""

    session: str


@dataclass(frozen=True, slots=True, repr=False)
class Start(Step):
    session: str


@dataclass(frozen=True, slots=True, repr=False)
class Stop(Step):
    session: str


@dataclass(frozen=True, slots=True, repr=False)
class MakeAddress(Step):
    session: str
    address: str
    routing_types: tuple[int, ...]
    auto_created: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class MakeQueue(Step):
    session: str
    address: str
    name: str
    options: Pairs = ()
    """Fields of ``packets.CreateQueueV2``."""


@dataclass(frozen=True, slots=True, repr=False)
class ShareQueue(Step):
    session: str
    address: str
    name: str
    options: Pairs = ()
    """Fields of ``packets.CreateSharedQueueV2``."""


@dataclass(frozen=True, slots=True, repr=False)
class RemoveQueue(Step):
    session: str
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class AskQueue(Step):
    session: str
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class AskAddress(Step):
    session: str
    address: str


@dataclass(frozen=True, slots=True, repr=False)
class Send(Step):
    session: str
    address: str
    body: str
    durable: bool = True
    priority: int = 4
    expires: str = ""
    """``past``, ``far`` or never."""
    scheduled: str = ""
    """``past``, ``far`` or at once."""
    properties: tuple[tuple[str, Typed], ...] = ()
    answered: bool = True
    size: int = 0
    """The body is made that long."""
    large: tuple[int, ...] = ()
    """Bytes of each piece of a large message; the rest of the body goes with the last one."""
    unfinished: bool = False
    """The last piece is not sent."""
    compressed: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Consume(Step):
    session: str
    consumer: int
    queue: str
    selector: str | None = None
    browse: bool = False
    priority: int = 0
    credits: int | None = -1
    """Credits of the first FLOWTOKEN; None: no FLOWTOKEN is sent."""


@dataclass(frozen=True, slots=True, repr=False)
class Flow(Step):
    session: str
    consumer: int
    credits: int


@dataclass(frozen=True, slots=True, repr=False)
class Leave(Step):
    """Close a consumer."""

    session: str
    consumer: int


@dataclass(frozen=True, slots=True, repr=False)
class Acknowledge(Step):
    session: str
    consumer: int
    delivery: int
    """Number of the delivery to that consumer, from 0; -1: an unknown message."""
    individual: bool = False
    answered: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class Expire(Step):
    """The client found a delivery expired."""

    session: str
    consumer: int
    delivery: int


@dataclass(frozen=True, slots=True, repr=False)
class Commit(Step):
    session: str


@dataclass(frozen=True, slots=True, repr=False)
class Rollback(Step):
    session: str
    last_delivered: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Metadata(Step):
    session: str
    key: str
    value: str
    unique: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Credits(Step):
    """A producer asks for credits."""

    session: str
    address: str
    credits: int


@dataclass(frozen=True, slots=True, repr=False)
class Xa(Step):
    """A request about a branch: the packet is ``Xa`` and ``request``."""

    session: str
    request: str
    branch: str = ""
    flag: bool = False
    """Flag ``failed`` of the request End, and ``one phase`` of the request Commit."""
    timeout_s: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class MakeDivert(Step):
    """Creation of a divert by a management operation, as is the removal in ``RemoveDivert``."""

    name: str
    address: str
    forwarding_address: str
    exclusive: bool = False
    selector: str | None = None
    routing_name: str | None = None
    routing_type: str = "STRIP"


@dataclass(frozen=True, slots=True, repr=False)
class RemoveDivert(Step):
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class Restart(Step):
    """The broker ends and is started again (``restarts``)."""

    killed: bool = False
    """Whether the broker ends by SIGKILL."""


Program = tuple[Step, ...]
