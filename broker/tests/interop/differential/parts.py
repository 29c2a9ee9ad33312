"""Parts of programs: each adds a step or a few to a program, about what the program has made so far.

Not here: what a selector may look like (``selectors``), which parts make a program (``generator``), the exclusions
and why (``exclusions``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from interop.differential import selectors, steps
from interop.differential.normaliser import GROUP_FIRST_KEY
from understudy.properties import BYTE, BYTES, INT, STRING

MULTICAST, ANYCAST = 0, 1
_STEPS_MIN, _STEPS_MAX = 6, 22
#: Addresses with wildcards and without (``exclusions.WORDS_AFTER_ANY``, ``SETTINGS_OF_WILDCARDS``).
_WILD = ("plain.*", "plain.#", "plain.*.b", "plain.a.#", "plain.a", "plain.a.b", "plain")
_TAME = ("plain.a", "plain.b", "plain.a.b", "plain.b.b", "plain.a.b.c", "plain")


@dataclass(slots=True)
class World:
    """The resources that the program may refer to."""

    draw: random.Random
    sessions: list[str] = field(default_factory=list)
    queues: list[tuple[str, str]] = field(default_factory=list)
    """Address and name."""
    consumers: list[tuple[str, int]] = field(default_factory=list)
    steps: list[steps.Step] = field(default_factory=list)
    sent: int = 0
    numbered: int = 0
    kind: bool = False
    """Whether the queues of the program are last-value queues or rings."""
    transacted: bool = False
    """Something is sent in transactions."""
    large: float = 0.0
    """How many of the messages are large, of one."""
    restarting: bool = False
    """There will be a restart."""
    deep: bool = False
    """Messages are so large that a few of them fill their address, which pages."""
    expiring: bool = False
    """Messages may have expired; then a consumer can always take them."""

    def add(self, step: steps.Step) -> None:
        self.steps.append(step)

    def session(self) -> str:
        return self.draw.choice(self.sessions)

    def queue(self) -> tuple[str, str]:
        return self.draw.choice(self.queues) if self.queues else ("plain.none", "plain.none")

    def chance(self, of_one: float) -> bool:
        return self.draw.random() < of_one

    def open(self, **options: Any) -> str:
        name = f"s{len(self.sessions)}"
        if self.large:
            options["pieces"] = self.draw.choice((2_000, 5_000, 102_400))
        self.sessions.append(name)
        self.transacted = self.transacted or not options.get("auto_commit_sends", True)
        self.add(steps.OpenSession(name, **options))
        return name

    def consume(self, session: str, queue: str, **options: object) -> tuple[str, int]:
        consumer = self.numbered
        self.numbered += 1
        self.consumers.append((session, consumer))
        self.add(steps.Consume(session, consumer, queue, **options))  # type: ignore[arg-type]
        return session, consumer


def make_queue(world: World, session: str, number: int, options: dict[str, object], address: str = "") -> None:
    name = f"plain.q{number}"
    address = address or name
    world.queues.append((address, name))
    if world.chance(0.5):
        world.add(steps.MakeAddress(session, address, (MULTICAST, ANYCAST)))
    world.add(steps.MakeQueue(session, address, name, tuple(options.items())))


def queue_options(world: World) -> dict[str, object]:
    """Attributes of an ordinary queue."""
    draw = world.draw
    options: dict[str, object] = {"routing_type": draw.choice((ANYCAST, ANYCAST, ANYCAST, MULTICAST, -1))}
    if world.chance(0.2):
        options["durable"] = False
    if world.chance(0.1):
        options.update(temporary=True, durable=False)
    if world.chance(0.15):
        options["filter"] = selectors.sound_selector(draw)
    if world.chance(0.2):
        options["max_consumers"] = draw.choice((0, 1, 2))
    if world.chance(0.15):
        options["purge_on_no_consumers"] = True
    if world.chance(0.15):
        options["exclusive"] = True
    return options


def kind_options(world: World) -> dict[str, object]:
    """Attributes that change what a queue keeps and to whom it gives."""
    draw = world.draw
    options = queue_options(world) if world.chance(0.3) else {"routing_type": ANYCAST}
    for name, chance, values in (
        ("last_value", 0.3, (True, False)),
        ("last_value_key", 0.2, ("k",)),
        ("non_destructive", 0.3, (True,)),
        ("ring_size", 0.3, (1, 2, 3)),
        ("group_rebalance", 0.15, (True,)),
        ("group_buckets", 0.15, (0, 1, 4)),
        ("group_first_key", 0.15, (GROUP_FIRST_KEY,)),
        ("consumers_before_dispatch", 0.15, (1, 2)),
        ("delay_before_dispatch", 0.05, (-1,)),
        ("enabled", 0.1, (False, True)),
        ("group_rebalance_pause_dispatch", 0.1, (True,)),
    ):
        if world.chance(chance):
            options[name] = draw.choice(values)
    if "last_value_key" in options:
        options["last_value"] = True
    if options.get("last_value"):
        options.pop("consumers_before_dispatch", None)
        options.pop("ring_size", None)
    if "ring_size" in options:
        options.pop("non_destructive", None)
    if "non_destructive" in options:
        options.pop("group_first_key", None)  # exclusions.GROUPS_OF_LOANS
    return options


#: Where a message may go that no queue of the program waits for.
_ELSEWHERE: Final = (
    "plain.missing",
    "closed.missing",
    "closed.a",
    "plain.missing::plain.other",
    "closed.m::closed.o",
    "plain.a::plain.other",
    "closed.a::plain.other",
)


def send(world: World, **options: object) -> None:
    draw = world.draw
    address = world.queue()[0]
    chosen: dict[str, tuple[int, object]] = {}
    if world.chance(0.25):
        chosen["_AMQ_GROUP_ID"] = (STRING, draw.choice(("g1", "g2")))
    if world.chance(0.1):
        chosen["_AMQ_GROUP_SEQUENCE"] = (INT, draw.choice((-1, 1)))
    if world.chance(0.35):
        chosen["_AMQ_LVQ_NAME"] = (STRING, draw.choice(("v1", "v2")))
    if world.chance(0.25):
        chosen["k"] = draw.choice(((STRING, "v1"), (STRING, "v2"), (INT, 1)))
    if world.chance(0.08):
        chosen["_AMQ_DUPL_ID"] = draw.choice(((STRING, "d1"), (BYTES, b"d2")))
    if world.chance(0.2):
        chosen["_AMQ_ROUTING_TYPE"] = (BYTE, draw.choice((MULTICAST, ANYCAST)))
    if world.chance(0.2):
        chosen.update(selectors.properties(draw))
    said: dict[str, object] = {"properties": tuple(chosen.items())}
    if world.chance(0.25) and not world.transacted:
        said["priority"] = draw.choice((0, 1, 5, 9))
    if world.chance(0.2):
        said["durable"] = False
    if world.chance(0.12):
        said["expires"] = "past" if world.expiring else "far"
    if world.chance(0.08):
        said["scheduled"] = "far"
    if world.chance(0.1):
        said["answered"] = False
    if world.chance(0.1) and world.queues:
        there, name = world.queue()
        address = f"{there}::{name}"
    if world.chance(0.06) and not world.restarting:
        address = draw.choice(_ELSEWHERE)
    if world.chance(world.large):
        make_large(world, said)
    if world.deep:
        said.pop("scheduled", None)  # exclusions.PAGED_AND_SCHEDULED
        if world.restarting:
            said.pop("durable", None)  # exclusions.PAGED_NOT_DURABLE
        said.setdefault("size", draw.choice((1_000, 3_000, 6_000)))
    said.update(options)
    if world.kind:
        said.pop("expires", None)  # exclusions.EXPIRED_IN_KINDS
    world.sent += 1
    world.add(steps.Send(world.session(), address, f"m{world.sent}", **said))  # type: ignore[arg-type]


def make_large(world: World, said: dict[str, object]) -> None:
    """Draw the size of a large message and the sizes of its pieces, of which the last one may be empty."""
    draw = world.draw
    said["size"] = size = draw.choice((0, 1, 1_000, 2_000, 7_000, 12_000, 300_000))
    count = draw.choice((1, 1, 2, 3))
    said["large"] = tuple(draw.choice((size // count, 1_000, size)) for _ in range(count))
    if world.chance(0.15):
        said.update(unfinished=True)
    if world.chance(0.2):
        said.update(compressed=True)


def consume(world: World) -> None:
    draw = world.draw
    options: dict[str, object] = {}
    if world.chance(0.2):
        options["selector"] = selectors.selector(draw, 1)
    if world.chance(0.15):
        options["browse"] = True
    if world.chance(0.15):
        options["priority"] = draw.choice((-1, 1, 5))
    if world.chance(0.25) and not world.expiring:
        options["credits"] = draw.choice((None, 0, 1, 100, 250, 1000, -2))
    address, name = world.queue()
    if world.chance(0.06):
        name = draw.choice(("plain.nothing", f"{address}::{name}", f"::{name}"))
    world.consume(world.session(), name, **options)


def acknowledge(world: World) -> None:
    if not world.consumers:
        return
    draw = world.draw
    session, consumer = draw.choice(world.consumers)
    delivery = draw.choice((0, 0, 0, 1, 1, 2, 3, -1))
    world.add(
        steps.Acknowledge(session, consumer, delivery, individual=world.chance(0.4), answered=not world.chance(0.1))
    )


def leave(world: World) -> None:
    if world.consumers:
        world.add(steps.Leave(*world.draw.choice(world.consumers)))


def flow(world: World) -> None:
    if world.consumers:
        world.add(steps.Flow(*world.draw.choice(world.consumers), world.draw.choice((-1, 0, 100, 300, 1000))))


def expire(world: World) -> None:
    if world.consumers:
        world.add(steps.Expire(*world.draw.choice(world.consumers), world.draw.choice((0, 1, -1))))


def commit(world: World) -> None:
    world.add(steps.Commit(world.session()))


def rollback(world: World) -> None:
    world.add(steps.Rollback(world.session(), world.chance(0.5)))


def stop(world: World) -> None:
    if world.expiring:
        return
    world.add(steps.Stop(world.session()))


def start(world: World) -> None:
    world.add(steps.Start(world.session()))


def close(world: World) -> None:
    kind = steps.Cut if world.chance(0.15) else steps.CloseSession
    world.add(kind(world.session()))


def remove(world: World) -> None:
    name = world.queue()[1]
    if world.chance(0.2) or name == "plain.none":
        name = world.draw.choice(("plain.nothing", f"::{name}"))
    world.add(steps.RemoveQueue(world.session(), name))


def ask_anything(world: World) -> None:
    address, name = world.queue()
    other = world.draw.choice(("plain.nothing", "closed.nothing", f"{address}::{name}", f"::{name}"))
    if world.chance(0.5):
        world.add(steps.AskQueue(world.session(), other if world.chance(0.3) else name))
    else:
        world.add(steps.AskAddress(world.session(), other if world.chance(0.3) else address))


def ask_credits(world: World) -> None:
    world.add(steps.Credits(world.session(), world.queue()[0], world.draw.choice((1, 1000, 0))))


def metadata(world: World) -> None:
    world.add(steps.Metadata(world.session(), world.draw.choice("ab"), "v", unique=world.chance(0.6)))


def make_any(world: World) -> None:
    """A queue or address, perhaps one that is there."""
    draw = world.draw
    session = world.session()
    number = draw.randrange(3)
    name = f"plain.q{number}"
    address = draw.choice((name, name, "plain.a", "closed.a"))
    choice = draw.random()
    if choice < 0.25:
        types = draw.choice(((ANYCAST,), (MULTICAST,), (MULTICAST, ANYCAST)))
        world.add(steps.MakeAddress(session, address, types, world.chance(0.2)))
        return
    options = queue_options(world)
    world.queues.append((address, name))
    if world.chance(0.1):
        name = f"{address}::{name}"
    if choice < 0.55 and address != "closed.a":
        options.pop("temporary", None)
        world.add(steps.ShareQueue(session, address, name, tuple(options.items())))
    else:
        if world.chance(0.1):
            options["auto_created"] = True
        world.add(steps.MakeQueue(session, address, name, tuple(options.items())))


def make_divert(world: World) -> None:
    """Add a divert to a later place than its own, so that none form a circle (``exclusions.DIVERTS_IN_CIRCLES``)."""
    draw = world.draw
    places = ("plain.a", "plain.b", "plain.q0", "plain.q1", "plain.q2", "plain.missing", "closed.missing")
    first, second = sorted(draw.sample(range(len(places)), 2))
    first = min(first, 4)
    world.add(
        steps.MakeDivert(
            f"d{draw.randrange(4)}",
            places[first],
            places[second],
            exclusive=world.chance(0.4),
            selector=selectors.sound_selector(draw) if world.chance(0.3) else None,
            routing_name=draw.choice((None, None, "r0")),
            routing_type=draw.choice(("STRIP", "STRIP", "PASS", "ANYCAST", "MULTICAST")),
        )
    )


def remove_divert(world: World) -> None:
    world.add(steps.RemoveDivert(f"d{world.draw.randrange(4)}"))


def make_wild(world: World) -> None:
    """A queue of an address, mostly a wildcard address."""
    draw = world.draw
    session = world.session()
    address = draw.choice(_WILD)
    name = f"plain.w{draw.randrange(4)}"
    options: dict[str, object] = {"routing_type": draw.choice((MULTICAST, MULTICAST, MULTICAST, ANYCAST))}
    if world.chance(0.15):
        options["filter"] = selectors.sound_selector(draw)
    if world.chance(0.15):
        options.update(temporary=True, durable=False)
    if world.chance(0.3):
        world.add(steps.MakeAddress(session, address, (MULTICAST, ANYCAST)))
    world.queues.append((draw.choice(_TAME), name))
    world.add(steps.MakeQueue(session, address, name, tuple(options.items())))


def ask_wild(world: World) -> None:
    world.add(steps.AskAddress(world.session(), world.draw.choice((*_WILD, *_TAME))))


def send_many(world: World) -> None:
    for _ in range(world.draw.randint(4, 10)):
        send(world)


def paged(step: steps.Step) -> steps.Step:
    """The same about addresses that page."""
    names = {
        entry.name: value.replace("plain.", "paged.")
        for entry in fields(step)  # type: ignore[arg-type]  # every step is a dataclass
        if isinstance(value := getattr(step, entry.name), str)
    }
    return replace(step, **names)  # type: ignore[type-var]


def fill(world: World, **weights: int) -> None:
    """Some of these parts, by name, each as often as its weight says."""
    count = world.draw.randint(_STEPS_MIN, _STEPS_MAX)
    for part in world.draw.choices([PARTS[name] for name in weights], [*weights.values()], k=count):
        part(world)


#: Those that need nothing but a program to be added to.
PARTS: dict[str, Callable[[World], None]] = {
    part.__name__: part
    for part in (
        *(send, send_many, consume, acknowledge, leave, flow, expire, commit, rollback, stop, start, close, remove),
        *(ask_anything, ask_credits, ask_wild, metadata, make_any, make_wild, make_divert, remove_divert),
    )
}
