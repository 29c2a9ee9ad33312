"""The rows of the table of faults and rolls: what each does to both pairs while their clients send and consume."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.bed import CLIENT, NAMES, PLAYBOOKS, STORE, WITNESS, Bed
from understudy_lab.errors import LabError
from understudy_lab.hosts import number_of
from understudy_lab.pair import await_that
from understudy_lab.rolls import NODES, PAIRS, PHASES, UNITS, crash_new_release, end_crashes

Strike = Callable[[Bed, Sequence[str]], None]
"""Is given the hosts of the active nodes that it concerns."""
FULL_S = 30.0
"""How long disks are full."""
PARTNERS = {host: other for one, two in PAIRS.values() for host, other in ((one, two), (two, one))}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    key: str
    """Names the row on the command line."""
    name: str
    act: Callable[[Bed], Mapping[str, object]]
    """Happens under load; returns further cells of the row."""
    prepare: Callable[[Bed], None] = lambda bed: None
    """Happens before the load begins."""


def _nothing(bed: Bed, victims: Sequence[str]) -> None:
    """No repair: the hosts come back by themselves."""


def _struck(
    strike: Strike, lasts_s: float, repair: Strike = _nothing, pairs: Sequence[str] = tuple(PAIRS), *, taken_over: bool
) -> Callable[[Bed], Mapping[str, object]]:
    """A fault that hits the active nodes of some pairs at once.

    Args:
        strike: begins it.
        lasts_s: time until its repair.
        repair: ends it.
        pairs: whose active nodes it concerns.
        taken_over: whether the partner of each must serve while it lasts.
    """

    def act(bed: Bed) -> Mapping[str, object]:
        victims = [bed.active(pair) for pair in pairs]
        struck = time.monotonic()
        strike(bed, victims)
        time.sleep(max(0.0, struck + lasts_s - time.monotonic()))
        serving = bed.serving()
        repair(bed, victims)
        if taken_over:
            waiting = [NAMES[PARTNERS[host]] for host in victims if NAMES[PARTNERS[host]] not in serving]
            if waiting:
                raise LabError(f"{', '.join(waiting)} did not take over within {lasts_s:g} s")
        return {"serving": serving}

    return act


def _on_each(script: str) -> Strike:
    """A shell script on each host; ``UNIT`` in it is the unit of the broker."""

    def strike(bed: Bed, victims: Sequence[str]) -> None:
        for host in victims:
            bed.lab.output(host, script.replace("UNIT", UNITS[host]))

    return strike


def _cut_power(bed: Bed, victims: Sequence[str]) -> None:
    for host in victims:
        bed.lab.cut_power(host)


def _power_on(bed: Bed, victims: Sequence[str]) -> None:
    bed.lab.start(victims)


def _cut_from(*others: str) -> Strike:
    """Cuts hosts from others, both ways; an empty name is the partner of each."""

    def strike(bed: Bed, victims: Sequence[str]) -> None:
        for host in victims:
            for other in others:
                bed.lab.network.cut(number_of(host), number_of(other or PARTNERS[host]))

    return strike


def _heal(bed: Bed, victims: Sequence[str]) -> None:
    bed.lab.network.heal()


def _fill_disks(bed: Bed, victims: Sequence[str]) -> None:
    """No block is left where the active node of each pair has its store."""
    fill = """
        fallocate -l $(df --output=avail -B1 PLACE | tail -n 1) PLACE/filler
        cat /dev/zero >>PLACE/filler 2>/dev/null || true
    """
    for host, place in _stores(victims):
        bed.lab.output(host, fill.replace("PLACE", place))


def _free_disks(bed: Bed, victims: Sequence[str]) -> None:
    for host, place in _stores(victims):
        bed.lab.output(host, f"rm {place}/filler")


def _full_disks(bed: Bed) -> Mapping[str, object]:
    """Both disks are full for a while; producers that were refused are started again after it, as an operator would.

    The gaps are those from the fault to the next confirmation.
    """
    victims = [bed.active(pair) for pair in PAIRS]
    struck = time.monotonic()
    _fill_disks(bed, victims)
    time.sleep(max(0.0, struck + FULL_S - time.monotonic()))
    before = {pair: bed.load.confirmed(pair) for pair in PAIRS}
    _free_disks(bed, victims)
    refused = bed.load.start_refused_again()
    gaps: dict[str, float] = {}

    def serves_all() -> bool:
        for pair in PAIRS:
            if pair not in gaps and bed.load.confirmed(pair) > before[pair]:
                gaps[pair] = round(time.monotonic() - struck, 1)
        return len(gaps) == len(PAIRS)

    await_that(serves_all, "messages of both pairs are confirmed")
    return {"gaps_s": gaps, "refused_producers": refused}


def _stores(victims: Sequence[str]) -> list[tuple[str, str]]:
    """Host and file system of each active node's store."""
    return [(STORE, "/export") if host in PAIRS["east"] else (host, "/opt") for host in victims]


def _on(host: str, script: str) -> Strike:
    """A shell script on a host that is no node."""
    return lambda bed, victims: bed.lab.output(host, script) and None


def _fault_rows() -> list[Row]:
    taken_over = True
    return [
        Row(
            "kill",
            "SIGKILL of both active brokers",
            _struck(
                _on_each("kill -9 $(systemctl show -p MainPID --value UNIT)"),
                15.0,
                taken_over=False,
            ),
        ),
        Row(
            "power-cut",
            "power cut of both active hosts for 40 s",
            _struck(_cut_power, 40.0, _power_on, taken_over=taken_over),
        ),
        Row(
            "reboot",
            "reboot of both active hosts",
            _struck(_on_each("systemctl reboot --no-block"), 30.0, taken_over=False),
        ),
        Row(
            "clean-stop",
            "clean stop of both active brokers for 20 s",
            _struck(_on_each("systemctl stop UNIT"), 20.0, _on_each("systemctl start UNIT"), taken_over=taken_over),
        ),
        Row(
            "link-cut",
            "link between the nodes of each pair cut both ways for 20 s",
            _struck(_cut_from(""), 20.0, _heal, taken_over=False),
        ),
        Row(
            "isolated",
            "both active hosts cut from all others for 40 s",
            _struck(_cut_from("", STORE, WITNESS, CLIENT), 40.0, _heal, taken_over=taken_over),
        ),
        Row(
            "store-cut",
            "active host of east cut from its store for 40 s",
            _struck(_cut_from(STORE), 40.0, _heal, ["east"], taken_over=taken_over),
        ),
        Row(
            "nfs-stopped",
            "NFS server stopped for 30 s",
            _struck(
                _on(STORE, "systemctl stop nfs-server"),
                30.0,
                _on(STORE, "systemctl start nfs-server"),
                ["east"],
                taken_over=False,
            ),
        ),
        Row(
            "witness-off",
            "power cut of the witness for 30 s",
            _struck(
                lambda bed, victims: bed.lab.cut_power(WITNESS),
                30.0,
                lambda bed, victims: bed.lab.start([WITNESS]),
                ["west"],
                taken_over=False,
            ),
        ),
        Row(
            "disk-full",
            f"disk of both stores full for {FULL_S:g} s; producers that were refused are started again",
            _full_disks,
        ),
        Row(
            "clock-moved",
            "clocks of both active hosts an hour ahead for 20 s, then back",
            _struck(_on_each("date -s '+1 hour'"), 20.0, _on_each("date -s '-1 hour'"), taken_over=False),
        ),
    ]


# --- rolls ---


def _complete(kind: str) -> Callable[[Bed], Mapping[str, object]]:
    def act(bed: Bed) -> Mapping[str, object]:
        done = bed.roll(kind).end()
        if done.code:
            raise LabError(f"the {kind} failed: {done.output[-3000:]}")
        bed.rolled(kind)
        return {"roll_s": round(done.seconds, 1)}

    return act


def _killed(kind: str, canary: str) -> Callable[[Bed], Mapping[str, object]]:
    """A run is killed before each phase of its first wave, resumed, and killed before the next one.

    After each kill ``site`` must refuse and change nothing, and ``health`` must name the roll and each phase.
    """

    def act(bed: Bed) -> Mapping[str, object]:
        leader = ""
        for task, phases in PHASES.items():
            run = bed.roll(kind, canary, hold=task)
            run.await_held()
            # A backup that serves is failed back before the first phase.
            leader = leader or bed.active(canary)
            run.kill()
            _refused_and_reported(bed, kind, dict(zip((leader, PARTNERS[leader]), phases, strict=True)))
        resumed = bed.roll(kind, canary).end()
        if resumed.code:
            raise LabError(f"the {kind} was not resumed: {resumed.output[-3000:]}")
        bed.rolled(kind)
        return {"kills": len(PHASES), "last_run_s": round(resumed.seconds, 1)}

    return act


def _refused_and_reported(bed: Bed, kind: str, phases: Mapping[str, str]) -> None:
    """After a kill: ``site`` refuses, with the command to resume, and starts nothing; ``health`` says how far it is.

    Args:
        bed: the hosts.
        kind: of the roll.
        phases: phase of each node of the wave, by its host.

    Raises:
        LabError: one of them did not.
    """
    before = [bed.process(host) for host in NODES.values()]
    refused = bed.play("site", kind)
    said = re.sub(r"\\n|\s+", " ", refused.output)
    resume = f"Resume it with ansible-playbook -i INVENTORY understudy.broker.{Path(PLAYBOOKS[kind]).stem}"
    if refused.code == 0 or "has not finished" not in said or resume not in said:
        raise LabError(f"site did not refuse: {refused.output[-3000:]}")
    if before != [bed.process(host) for host in NODES.values()]:
        raise LabError("site started or stopped a broker beside an unfinished roll")
    report = bed.health(kind)
    found = {each["name"]: each["roll_phase"] for each in report["nodes"]}  # type: ignore[attr-defined]
    wanted = {name: phases.get(host, "") for name, host in NODES.items()}
    if report["healthy"] or len(report["roll_unfinished"]) != 1 or found != wanted:  # type: ignore[arg-type]
        raise LabError(f"health does not name the roll; the nodes are {wanted}: {report}")


def _without_alarm(act: Callable[[Bed], Mapping[str, object]]) -> Callable[[Bed], Mapping[str, object]]:
    """A roll after which no node says that records are only in its earlier data: nodes that stop cleanly have none."""

    def checked(bed: Bed) -> Mapping[str, object]:
        before = bed.earlier_data()
        cells = act(bed)
        bed.make_ready()
        found = {name: place for name, place in bed.earlier_data().items() if before.get(name) != place}
        if found:
            raise LabError(
                f"after the roll these nodes report earlier data that their active nodes do not have: {found}"
            )
        return cells

    return checked


def _failing_canary(bed: Bed) -> Mapping[str, object]:
    """Every process of the new release is killed at the primary of the first wave, until the roll has given up."""
    victim = bed.active("east")
    others = [bed.process(host) for host in PAIRS["west"]]
    run = bed.roll("update", hold="Start primaries")
    run.await_held()
    crash_new_release(bed.lab, victim)
    run.go()
    failed = run.end()
    if failed.code == 0 or "The wave east failed" not in failed.output:
        raise LabError(f"the update with a failing canary did not fail: {failed.output[-3000:]}")
    if others != [bed.process(host) for host in PAIRS["west"]]:
        raise LabError("the wave after the failing canary began")
    end_crashes(bed.lab, victim)
    resumed = bed.roll("update").end()
    if resumed.code:
        raise LabError(f"the update was not resumed: {resumed.output[-3000:]}")
    bed.rolled("update")
    return {"roll_s": round(failed.seconds + resumed.seconds, 1)}


def _roll_rows() -> list[Row]:
    killed = "killed before each phase of its first wave"
    answers = "each time site refuses, health names it, and it is resumed"
    return [
        Row("roll-restart", "rolling_restart", _without_alarm(_complete("restart"))),
        Row("roll-update", "rolling_update", _without_alarm(_complete("update"))),
        Row("roll-rollback", "rollback", _without_alarm(_complete("rollback")), Bed.enable_rollback),
        Row(
            "roll-failing-canary",
            "rolling_update with a canary whose new release ends again and again; restored, resumed after the repair",
            _failing_canary,
        ),
        Row(
            "killed-restart", f"rolling_restart {killed} (west); {answers}", _without_alarm(_killed("restart", "west"))
        ),
        Row("killed-update", f"rolling_update {killed} (east); {answers}", _without_alarm(_killed("update", "east"))),
        Row(
            "killed-rollback",
            f"rollback {killed} (west); {answers}",
            _without_alarm(_killed("rollback", "west")),
            Bed.enable_rollback,
        ),
    ]


ROWS: Sequence[Row] = (*_fault_rows(), *_roll_rows())
