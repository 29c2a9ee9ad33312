"""Programs from a seed: the same seed, the same program, in every process.

A seed first chooses a profile, so that related things meet in one small program, then its steps. Steps may well be
senseless (a consumer of a queue that is gone, an acknowledgement of something given back): refusals are compared too.

Not here: what a selector may look like (``selectors``), what is left out and why (``exclusions``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from interop.differential import selectors, steps
from interop.differential.normaliser import GROUP_FIRST_KEY
from understudy.properties import BYTE, BYTES, INT, STRING

MULTICAST, ANYCAST = 0, 1
_STEPS_MIN, _STEPS_MAX = 6, 22


@dataclass(slots=True)
class _World:
    """What the program may refer to."""

    draw: random.Random
    sessions: list[str] = field(default_factory=list)
    queues: list[tuple[str, str]] = field(default_factory=list)
    """Address and name."""
    consumers: list[tuple[str, int]] = field(default_factory=list)
    steps: list[steps.Step] = field(default_factory=list)
    sent: int = 0
    numbered: int = 0
    kind: bool = False
    """Its queues are last-value queues or rings."""
    transacted: bool = False
    """Something is sent in transactions."""
    large: float = 0.0
    """How many of the messages are large, of one."""
    restarting: bool = False
    """There will be a restart: addresses are made before their queues (``exclusions.MADE_ON_THE_WAY``)."""
    deep: bool = False
    """Messages are so large that a few of them fill their address, which pages."""
    expiring: bool = False
    """Messages may have expired; then whoever consumes can always take them."""

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


def program(seed: int) -> steps.Program:
    """The program of a seed."""
    draw = random.Random(seed)
    world = _World(draw)
    PROFILES[seed % len(PROFILES)](world)
    return tuple(world.steps)


# --- parts ------------------------------------------------------------------------------------------


def _make_queue(world: _World, session: str, number: int, options: dict[str, object], address: str = "") -> None:
    name = f"plain.q{number}"
    address = address or name
    world.queues.append((address, name))
    if world.restarting or world.chance(0.5):
        world.add(steps.MakeAddress(session, address, (MULTICAST, ANYCAST)))
    world.add(steps.MakeQueue(session, address, name, tuple(options.items())))


def _options(world: _World) -> dict[str, object]:
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


def _kind_options(world: _World) -> dict[str, object]:
    """Attributes that change what a queue keeps and to whom it gives."""
    draw = world.draw
    options = _options(world) if world.chance(0.3) else {"routing_type": ANYCAST}
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


def _send(world: _World, **options: object) -> None:
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
        address = draw.choice(("plain.missing", "closed.missing", "plain.missing::plain.other", "closed.m::closed.o"))
    if world.chance(world.large):
        _make_large(world, said)
    if world.deep:
        said.pop("scheduled", None)  # exclusions.PAGED_AND_SCHEDULED
        said.setdefault("size", draw.choice((1_000, 3_000, 6_000)))
    said.update(options)
    if world.kind:
        said.pop("expires", None)  # exclusions.EXPIRED_IN_KINDS
    world.sent += 1
    world.add(steps.Send(world.session(), address, f"m{world.sent}", **said))  # type: ignore[arg-type]


def _make_large(world: _World, said: dict[str, object]) -> None:
    """In pieces: as many as it takes, of sizes of their own, the last one perhaps empty."""
    draw = world.draw
    said["size"] = size = draw.choice((0, 1, 1_000, 2_000, 7_000, 12_000, 300_000))
    count = draw.choice((1, 1, 2, 3))
    said["large"] = tuple(draw.choice((size // count, 1_000, size)) for _ in range(count))
    if world.chance(0.15):
        said.update(unfinished=True)
    if world.chance(0.2):
        said.update(compressed=True)


def _consume(world: _World) -> None:
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
        name = draw.choice(("plain.nothing", f"{address}::{name}"))
    world.consume(world.session(), name, **options)


def _acknowledge(world: _World) -> None:
    if not world.consumers:
        return
    draw = world.draw
    session, consumer = draw.choice(world.consumers)
    delivery = draw.choice((0, 0, 0, 1, 1, 2, 3, -1))
    world.add(
        steps.Acknowledge(session, consumer, delivery, individual=world.chance(0.4), answered=not world.chance(0.1))
    )


def _leave(world: _World) -> None:
    if world.consumers:
        world.add(steps.Leave(*world.draw.choice(world.consumers)))


def _flow(world: _World) -> None:
    if world.consumers:
        world.add(steps.Flow(*world.draw.choice(world.consumers), world.draw.choice((-1, 0, 100, 300, 1000))))


def _expire(world: _World) -> None:
    if world.consumers:
        world.add(steps.Expire(*world.draw.choice(world.consumers), world.draw.choice((0, 1, -1))))


def _commit(world: _World) -> None:
    world.add(steps.Commit(world.session()))


def _rollback(world: _World) -> None:
    world.add(steps.Rollback(world.session(), world.chance(0.5)))


def _stop(world: _World) -> None:
    if world.expiring:
        return
    world.add(steps.Stop(world.session()))


def _start(world: _World) -> None:
    world.add(steps.Start(world.session()))


def _close(world: _World) -> None:
    kind = steps.Cut if world.chance(0.15) else steps.CloseSession
    world.add(kind(world.session()))


def _remove(world: _World) -> None:
    name = world.queue()[1]
    if world.chance(0.2) or name == "plain.none":
        name = "plain.nothing"
    world.add(steps.RemoveQueue(world.session(), name))


def _ask(world: _World) -> None:
    address, name = world.queue()
    other = world.draw.choice(("plain.nothing", "closed.nothing", f"{address}::{name}"))
    if world.chance(0.5):
        world.add(steps.AskQueue(world.session(), other if world.chance(0.3) else name))
    else:
        world.add(steps.AskAddress(world.session(), other if world.chance(0.3) else address))


def _credits(world: _World) -> None:
    world.add(steps.Credits(world.session(), world.queue()[0], world.draw.choice((1, 1000, 0))))


def _metadata(world: _World) -> None:
    world.add(steps.Metadata(world.session(), world.draw.choice("ab"), "v", unique=world.chance(0.6)))


def _make_any(world: _World) -> None:
    """A queue or address, perhaps one that is there."""
    draw = world.draw
    session = world.session()
    number = draw.randrange(3)
    name = f"plain.q{number}"
    address = draw.choice((name, name, "plain.a", "closed.a"))
    choice = draw.random()
    if choice < 0.25 and address != "closed.a" and not world.restarting:
        types = draw.choice(((ANYCAST,), (MULTICAST,), (MULTICAST, ANYCAST)))
        world.add(steps.MakeAddress(session, address, types, world.chance(0.2)))
        return
    if world.restarting and address != "closed.a":
        world.add(steps.MakeAddress(session, address, (MULTICAST, ANYCAST)))
    options = _options(world)
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


def _fill(world: _World, parts: dict[Callable[[_World], None], int]) -> None:
    count = world.draw.randint(_STEPS_MIN, _STEPS_MAX)
    for part in world.draw.choices([*parts], [*parts.values()], k=count):
        part(world)


# --- profiles ---------------------------------------------------------------------------------------


def _selecting(world: _World) -> None:
    """Many messages, many browsers, each with a selector."""
    session = world.open()
    _make_queue(world, session, 0, {"routing_type": ANYCAST})
    for _ in range(8):
        _send(world, properties=selectors.properties(world.draw), expires="", scheduled="", answered=True)
    for _ in range(10):
        world.consume(session, "plain.q0", selector=selectors.selector(world.draw, 2), browse=True)


def _consuming(world: _World) -> None:
    """Deliveries, acknowledgements and what gives messages back."""
    world.expiring = world.chance(0.4)
    for _ in range(world.draw.randint(1, 2)):
        world.open(
            auto_commit_sends=world.chance(0.7),
            auto_commit_acks=world.chance(0.5),
            pre_acknowledge=world.chance(0.1),
            started=world.expiring or not world.chance(0.1),
        )
    for number in range(world.draw.randint(1, 2)):
        _make_queue(world, world.session(), number, _options(world) if world.chance(0.4) else {"routing_type": ANYCAST})
    for _ in range(3):
        _send(world)
    _consume(world)
    _fill(
        world,
        {_send: 5, _consume: 3, _acknowledge: 6, _leave: 2, _flow: 2, _expire: 1, _commit: 2, _rollback: 3}
        | {_stop: 1, _start: 1, _close: 1, _remove: 1, _ask: 1},
    )


def _kinds(world: _World) -> None:
    """Queues that keep and give in ways of their own."""
    transacted = world.chance(0.4)
    world.kind = True
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=not transacted, auto_commit_acks=not transacted)
    _make_queue(world, world.session(), 0, _kind_options(world))
    _fill(
        world,
        {_send: 9, _consume: 4, _acknowledge: 5, _leave: 2, _flow: 1, _expire: 1, _commit: 2, _rollback: 2, _ask: 1}
        | {_close: 1, _remove: 1},
    )


def _arranging(world: _World) -> None:
    """Addresses, queues, questions about them, and refusals."""
    for _ in range(world.draw.randint(1, 2)):
        world.open()
    _fill(
        world,
        {_make_any: 8, _ask: 5, _send: 3, _consume: 3, _remove: 2, _metadata: 1, _credits: 1, _leave: 1, _close: 1},
    )


def _failing(world: _World) -> None:
    """Rolled back until they are dead letters."""
    world.expiring = world.chance(0.4)
    world.open(auto_commit_sends=True, auto_commit_acks=False)
    world.open(auto_commit_sends=world.chance(0.5), auto_commit_acks=world.chance(0.5))
    _make_queue(world, "s0", 0, {"routing_type": ANYCAST})
    for _ in range(world.draw.randint(1, 4)):
        _send(world, scheduled="", answered=True)
    world.consume("s0", "plain.q0")
    _fill(
        world,
        {_rollback: 6, _acknowledge: 4, _leave: 1, _consume: 2, _commit: 1, _send: 2, _expire: 1, _close: 1, _stop: 1}
        | {_start: 1},
    )


def _xa_branch(world: _World, branch: str, session: str) -> None:
    """The life of a branch, with requests in between that the branch cannot take."""
    draw = world.draw

    def ask(request: str, *, by: str = session, flag: bool = False) -> None:
        world.add(steps.Xa(by, request, branch, flag=flag))

    def work() -> None:
        for _ in range(draw.randint(0, 2)):
            draw.choice((_send, _acknowledge, _consume))(world)

    ask("Start")
    work()
    if world.chance(0.3):
        ask("Suspend")
        if world.chance(0.4):
            ask(draw.choice(("Prepare", "Commit", "Suspend", "Join")), flag=True)
        work()
        ask("Resume")
    if world.chance(0.2):
        ask(draw.choice(("Prepare", "Commit", "Rollback", "Resume")), flag=True)
    if world.chance(0.1):
        return
    ask("End")
    if world.chance(0.15):
        ask("End")
    if world.chance(0.2):
        ask("Join")
        work()
        ask("End")
    if world.chance(0.15):
        ask("Resume")
    _undecided(world)
    outcome = draw.random()
    if outcome < 0.25:
        ask("Commit", flag=True)
    elif outcome < 0.4:
        ask("Rollback")
    else:
        ask("Prepare")
        if world.chance(0.15):
            ask("Prepare")
        if world.chance(0.2):
            ask("Resume")
        _undecided(world)
        if world.chance(0.4):
            world.add(steps.Xa(world.draw.choice(world.sessions), "InDoubt"))
        if world.chance(0.8):
            ask(draw.choice(("Commit", "Rollback")), by=draw.choice(world.sessions[:-1]))


def _undecided(world: _World) -> None:
    """Something else meanwhile."""
    draw = world.draw
    if world.chance(0.4):
        draw.choice((_send, _acknowledge, _consume, _leave, _ask, _close, _xa_nowhere))(world)


def _xa_nowhere(world: _World) -> None:
    """A request about a branch that nobody started, or about none."""
    draw = world.draw
    session = draw.choice(world.sessions[:-1])
    request = draw.choice(
        ("End", "Prepare", "Commit", "Rollback", "Join", "Resume", "Forget", "SetTimeout", "GetTimeout")
    )
    if request == "SetTimeout":
        world.add(steps.Xa(session, request, timeout_s=draw.choice((60, 1000))))
    else:
        world.add(steps.Xa(session, request, "" if request == "GetTimeout" else "nobody's"))


def _distributed(world: _World) -> None:
    """XA: whole lives of branches, one after the other."""
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=False, auto_commit_acks=False, xa=True)
    world.open()
    _make_queue(world, world.sessions[-1], 0, {"routing_type": ANYCAST})
    for _ in range(3):
        world.sent += 1
        world.add(steps.Send(world.sessions[-1], "plain.q0", f"m{world.sent}"))
    world.consume(world.sessions[0], "plain.q0")
    for number in range(world.draw.randint(1, 3)):
        _xa_branch(world, f"b{number}", world.draw.choice(world.sessions[:-1]))
        if world.chance(0.3):
            _xa_nowhere(world)
        if world.chance(0.2):
            _rollback(world)


def _make_divert(world: _World) -> None:
    """From one place to a later one (``exclusions.DIVERTS_IN_CIRCLES``)."""
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


def _remove_divert(world: _World) -> None:
    world.add(steps.RemoveDivert(f"d{world.draw.randrange(4)}"))


def _diverting(world: _World) -> None:
    """Addresses with diverts, chains of them, and all that may happen to a copy."""
    world.large = world.draw.choice((0, 0, 0.3))
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=world.chance(0.6), auto_commit_acks=world.chance(0.6))
    for number in range(world.draw.randint(2, 3)):
        address = world.draw.choice(("", "", "plain.a", "plain.b"))
        _make_queue(world, world.session(), number, {"routing_type": world.draw.choice((ANYCAST, MULTICAST))}, address)
    for address in ("plain.a", "plain.b"):
        if world.chance(0.5):
            world.add(steps.MakeAddress(world.session(), address, (MULTICAST, ANYCAST)))
            world.queues.append((address, "plain.none"))
    for _ in range(world.draw.randint(1, 3)):
        _make_divert(world)
    _fill(
        world,
        {_send: 9, _make_divert: 2, _remove_divert: 1, _consume: 3, _acknowledge: 3, _commit: 3, _rollback: 2, _ask: 1}
        | {_leave: 1, _close: 1, _remove: 1},
    )


def _make_wild(world: _World) -> None:
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
    if world.restarting or world.chance(0.3):
        world.add(steps.MakeAddress(session, address, (MULTICAST, ANYCAST)))
    world.queues.append((draw.choice(_TAME), name))
    world.add(steps.MakeQueue(session, address, name, tuple(options.items())))


def _ask_wild(world: _World) -> None:
    world.add(steps.AskAddress(world.session(), world.draw.choice((*_WILD, *_TAME))))


def _wildcards(world: _World) -> None:
    """Queues of wildcard addresses, and messages to addresses that they cover."""
    world.large = world.draw.choice((0, 0, 0, 0.3))
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=world.chance(0.7), auto_commit_acks=world.chance(0.7))
    for _ in range(world.draw.randint(2, 3)):
        _make_wild(world)
    if world.chance(0.2):
        _make_divert(world)
    _fill(
        world,
        {_send: 10, _make_wild: 4, _ask_wild: 2, _consume: 4, _acknowledge: 4, _commit: 3, _rollback: 2, _leave: 1}
        | {_close: 1, _remove: 2},
    )


#: Addresses with wildcards and without (``exclusions.WORDS_BEHIND_ANY``, ``SETTINGS_OF_WILDCARDS``).
_WILD = ("plain.*", "plain.#", "plain.*.b", "plain.a.#", "plain.a", "plain.a.b", "plain")
_TAME = ("plain.a", "plain.b", "plain.a.b", "plain.b.b", "plain.a.b.c", "plain")


def _large(world: _World) -> None:
    """What others do, with large messages among the messages."""
    world.large = world.draw.choice((0.4, 0.7))
    world.draw.choice((_consuming, _consuming, _kinds, _failing, _distributed))(world)


def _send_many(world: _World) -> None:
    for _ in range(world.draw.randint(4, 10)):
        _send(world)


def _paging(world: _World) -> None:
    """More than an address may hold in memory."""
    world.deep, world.transacted = True, True
    world.large = world.draw.choice((0, 0, 0.2))
    transacted = world.chance(0.4)  # exclusions.PAGED_AND_COMMITTED
    for _ in range(1 if transacted else world.draw.randint(1, 2)):
        world.open(auto_commit_sends=not transacted, auto_commit_acks=world.chance(0.5))
    address = world.draw.choice(("", "plain.a"))
    for number in range(world.draw.randint(1, 3)):
        options: dict[str, object] = {"routing_type": MULTICAST if address else ANYCAST}
        if address and world.chance(0.4):
            options["filter"] = selectors.sound_selector(world.draw)
        if world.chance(0.1):
            options["durable"] = False
        _make_queue(world, world.session(), number, options, address)
    _send_many(world)
    _fill(
        world,
        {_send_many: 3, _send: 2, _consume: 5, _acknowledge: 8, _commit: 3, _rollback: 3, _leave: 2, _ask: 3, _flow: 2}
        | {_close: 1, _remove: 1},
    )
    world.steps = [_paged(step) for step in world.steps]


def _paged(step: steps.Step) -> steps.Step:
    """The same about addresses that page."""
    names = {
        entry.name: value.replace("plain.", "paged.")
        for entry in fields(step)  # type: ignore[arg-type]  # every step is a dataclass
        if isinstance(value := getattr(step, entry.name), str)
    }
    return replace(step, **names)  # type: ignore[type-var]


def restarting(seed: int, *, killed: bool) -> steps.Program:
    """A program with a restart in it: what another profile does, then a restart, then the same sessions again."""
    world = _World(random.Random(f"restart {seed}"), restarting=True)
    RESTARTED[seed % len(RESTARTED)](world)
    world.add(steps.Restart(killed))
    world.consumers.clear()
    transacted = {step.session for step in world.steps if isinstance(step, steps.OpenSession) and step.xa}
    for session in world.sessions:
        if session in transacted:
            world.add(steps.OpenSession(session, auto_commit_sends=False, auto_commit_acks=False, xa=True))
        else:
            world.add(steps.OpenSession(session, auto_commit_acks=world.chance(0.5)))
    if transacted:
        world.add(steps.Xa(world.sessions[0], "InDoubt"))
        for branch in ("b0", "b1", "b2"):
            if world.chance(0.6):
                world.add(steps.Xa(world.sessions[0], world.draw.choice(("Commit", "Rollback")), branch))
    _fill(world, {_send: 4, _consume: 4, _acknowledge: 3, _rollback: 1, _ask: 2, _leave: 1, _remove: 1})
    return tuple(world.steps)


RESTARTED = (_consuming, _kinds, _failing, _distributed, _large, _diverting, _wildcards, _arranging, _paging)
PROFILES = (_selecting, _consuming, _kinds, _arranging, _failing, _distributed, _large, _diverting, _wildcards, _paging)
