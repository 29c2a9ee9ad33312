"""Programs from a seed: the same seed, the same program, in every process.

A seed first chooses a profile, so that related things meet in one small program, then its steps. Steps may well be
senseless (a consumer of a queue that is gone, an acknowledgement of something given back): refusals are compared too.

Not here: the parts that programs are made of (``parts``).
"""

from __future__ import annotations

import random

from interop.differential import parts, selectors, steps
from interop.differential.parts import ANYCAST, MULTICAST, World


def program(seed: int) -> steps.Program:
    """The program of a seed."""
    draw = random.Random(seed)
    world = World(draw)
    PROFILES[seed % len(PROFILES)](world)
    return tuple(world.steps)


def _selecting(world: World) -> None:
    """Many messages, many browsers, each with a selector."""
    session = world.open()
    parts.make_queue(world, session, 0, {"routing_type": ANYCAST})
    for _ in range(8):
        parts.send(world, properties=selectors.properties(world.draw), expires="", scheduled="", answered=True)
    for _ in range(10):
        world.consume(session, "plain.q0", selector=selectors.selector(world.draw, 2), browse=True)


def _consuming(world: World) -> None:
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
        parts.make_queue(
            world,
            world.session(),
            number,
            parts.queue_options(world) if world.chance(0.4) else {"routing_type": ANYCAST},
        )
    for _ in range(3):
        parts.send(world)
    parts.consume(world)
    parts.fill(
        world,
        send=5,
        consume=3,
        acknowledge=6,
        leave=2,
        flow=2,
        expire=1,
        commit=2,
        rollback=3,
        stop=1,
        start=1,
        close=1,
        remove=1,
        ask_anything=1,
    )


def _kinds(world: World) -> None:
    """Queues that keep and give in ways of their own."""
    transacted = world.chance(0.4)
    world.kind = True
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=not transacted, auto_commit_acks=not transacted)
    parts.make_queue(world, world.session(), 0, parts.kind_options(world))
    parts.fill(
        world,
        send=9,
        consume=4,
        acknowledge=5,
        leave=2,
        flow=1,
        expire=1,
        commit=2,
        rollback=2,
        ask_anything=1,
        close=1,
        remove=1,
    )


def _arranging(world: World) -> None:
    """Addresses, queues, questions about them, and refusals."""
    for _ in range(world.draw.randint(1, 2)):
        world.open()
    parts.fill(
        world, make_any=8, ask_anything=5, send=3, consume=3, remove=2, metadata=1, ask_credits=1, leave=1, close=1
    )


def _failing(world: World) -> None:
    """Rolled back until they are dead letters."""
    world.expiring = world.chance(0.4)
    world.open(auto_commit_sends=True, auto_commit_acks=False)
    world.open(auto_commit_sends=world.chance(0.5), auto_commit_acks=world.chance(0.5))
    parts.make_queue(world, "s0", 0, {"routing_type": ANYCAST})
    for _ in range(world.draw.randint(1, 4)):
        parts.send(world, scheduled="", answered=True)
    world.consume("s0", "plain.q0")
    parts.fill(
        world, rollback=6, acknowledge=4, leave=1, consume=2, commit=1, send=2, expire=1, close=1, stop=1, start=1
    )


def _xa_branch(world: World, branch: str, session: str) -> None:
    """The life of a branch, with requests in between that the branch cannot take."""
    draw = world.draw

    def ask(request: str, *, by: str = session, flag: bool = False) -> None:
        world.add(steps.Xa(by, request, branch, flag=flag))

    def work() -> None:
        for _ in range(draw.randint(0, 2)):
            draw.choice((parts.send, parts.acknowledge, parts.consume))(world)

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


def _undecided(world: World) -> None:
    """Something else meanwhile."""
    draw = world.draw
    if world.chance(0.4):
        draw.choice(
            (parts.send, parts.acknowledge, parts.consume, parts.leave, parts.ask_anything, parts.close, _xa_nowhere)
        )(world)


def _xa_nowhere(world: World) -> None:
    """A request about a branch that no session started, or about none."""
    draw = world.draw
    session = draw.choice(world.sessions[:-1])
    request = draw.choice(
        ("End", "Prepare", "Commit", "Rollback", "Join", "Resume", "Forget", "SetTimeout", "GetTimeout")
    )
    if request == "SetTimeout":
        world.add(steps.Xa(session, request, timeout_s=draw.choice((60, 1000))))
    else:
        world.add(steps.Xa(session, request, "" if request == "GetTimeout" else "nobody's"))


def _distributed(world: World) -> None:
    """XA: whole lives of branches, one after the other."""
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=False, auto_commit_acks=False, xa=True)
    world.open()
    parts.make_queue(world, world.sessions[-1], 0, {"routing_type": ANYCAST})
    for _ in range(3):
        world.sent += 1
        world.add(steps.Send(world.sessions[-1], "plain.q0", f"m{world.sent}"))
    world.consume(world.sessions[0], "plain.q0")
    for number in range(world.draw.randint(1, 3)):
        _xa_branch(world, f"b{number}", world.draw.choice(world.sessions[:-1]))
        if world.chance(0.3):
            _xa_nowhere(world)
        if world.chance(0.2):
            parts.rollback(world)


def _diverting(world: World) -> None:
    """Addresses with diverts, chains of them, and all that may happen to a copy."""
    world.large = world.draw.choice((0, 0, 0.3))
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=world.chance(0.6), auto_commit_acks=world.chance(0.6))
    for number in range(world.draw.randint(2, 3)):
        address = world.draw.choice(("", "", "plain.a", "plain.b"))
        parts.make_queue(
            world, world.session(), number, {"routing_type": world.draw.choice((ANYCAST, MULTICAST))}, address
        )
    for address in ("plain.a", "plain.b"):
        if world.chance(0.5):
            world.add(steps.MakeAddress(world.session(), address, (MULTICAST, ANYCAST)))
            world.queues.append((address, "plain.none"))
    for _ in range(world.draw.randint(1, 3)):
        parts.make_divert(world)
    parts.fill(
        world,
        send=9,
        make_divert=2,
        remove_divert=1,
        consume=3,
        acknowledge=3,
        commit=3,
        rollback=2,
        ask_anything=1,
        leave=1,
        close=1,
        remove=1,
    )


def _wildcards(world: World) -> None:
    """Queues of wildcard addresses, and messages to addresses that they cover."""
    world.large = world.draw.choice((0, 0, 0, 0.3))
    for _ in range(world.draw.randint(1, 2)):
        world.open(auto_commit_sends=world.chance(0.7), auto_commit_acks=world.chance(0.7))
    for _ in range(world.draw.randint(2, 3)):
        parts.make_wild(world)
    if world.chance(0.2):
        parts.make_divert(world)
    parts.fill(
        world,
        send=10,
        make_wild=4,
        ask_wild=2,
        consume=4,
        acknowledge=4,
        commit=3,
        rollback=2,
        leave=1,
        close=1,
        remove=2,
    )


def _large(world: World) -> None:
    """One of the other programs, with large messages among the messages."""
    world.large = world.draw.choice((0.4, 0.7))
    world.draw.choice((_consuming, _consuming, _kinds, _failing, _distributed))(world)


def _paging(world: World) -> None:
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
        parts.make_queue(world, world.session(), number, options, address)
    parts.send_many(world)
    parts.fill(
        world,
        send_many=3,
        send=2,
        consume=5,
        acknowledge=8,
        commit=3,
        rollback=3,
        leave=2,
        ask_anything=3,
        flow=2,
        close=1,
        remove=1,
    )
    world.steps = [parts.paged(step) for step in world.steps]


def restarting(seed: int, *, killed: bool) -> steps.Program:
    """A program with a restart in it: what another profile does, then a restart, then the same sessions again."""
    world = World(random.Random(f"restart {seed}"), restarting=True)
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
    parts.fill(world, send=4, consume=4, acknowledge=3, rollback=1, ask_anything=2, leave=1, remove=1)
    return (*_first(world.steps), *world.steps)


def _first(program: list[steps.Step]) -> list[steps.Step]:
    """Makes the addresses of a program before it (``exclusions.MADE_ON_THE_WAY``)."""
    named = [step.address for step in program if isinstance(step, steps.MakeQueue | steps.ShareQueue | steps.Send)]
    addresses = dict.fromkeys(address.partition("::")[0] for address in named)
    return [
        steps.OpenSession("first"),
        *(steps.MakeAddress("first", each, (MULTICAST, ANYCAST)) for each in addresses if each[:6] != "closed"),
        steps.CloseSession("first"),
    ]


RESTARTED = (_consuming, _kinds, _failing, _distributed, _large, _diverting, _wildcards, _arranging, _paging)
PROFILES = (_selecting, _consuming, _kinds, _arranging, _failing, _distributed, _large, _diverting, _wildcards, _paging)
