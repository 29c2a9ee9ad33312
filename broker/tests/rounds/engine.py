"""One round after the other: load, a fault at a random moment, service again, the pair whole again, the verdict."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rounds.disk import Fault
from rounds.load import Load
from rounds.sites import Site
from understudy.store.log.reading.replay import read_frame
from understudy.store.log.segment import seed_of, segment_name

#: Kinds of rounds.
KINDS: Final = ("kill", "power", "disk", "pause")
#: Findings of a ledger that break a promise.
BROKEN: Final = ("lost", "duplicated", "reordered", "unexplained", "corrupted", "refused", "partial")
#: Longest time without service, and until the pair is whole again, after which the run ends with an error. Seconds.
_SERVICE_S: Final = 90.0
_WHOLE_S: Final = 120.0
_FIRST_S: Final = 60.0
#: Confirmations before the fault.
_WARM: Final = 60
_DISK_FAULTS: Final = (Fault.READ, Fault.WRITE, Fault.SYNC, Fault.NO_SPACE, Fault.FLIP)


@dataclass(slots=True)
class Row:
    """The result of one round."""

    number: int
    pair: str
    kind: str
    faults: int = 0
    """Faults of the round."""
    fault: str = ""
    """Node and fault; of several faults the last one."""
    confirmed: int = 0
    findings: dict[str, int] = field(default_factory=dict)
    """Broken promises by kind."""
    quarantined: int = 0
    """Entries that the round added to the quarantine."""
    elsewhere: int = 0
    """Entries of ``quarantined`` whose records are right on the disk of a node."""
    gap_ms: int = 0
    """Longest time without a confirmation after the begin of a fault."""
    replaced: int = 0
    """Clients that ended with an error, in whose place another one went on."""
    error: str = ""
    """Why the run cannot go on; empty: it can."""

    @property
    def ok(self) -> bool:
        """Whether every promise was kept. A damaged message that no disk has any more is no broken promise."""
        broken = {name: count for name, count in self.findings.items() if count}
        unexcused = broken.pop("lost", 0) > self.quarantined - self.elsewhere
        return not (self.error or broken or self.elsewhere or unexcused)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"ok": self.ok}


class Rounds:
    """The rounds of one pair."""

    def __init__(self, site: Site, directory: Path, seed: int, faults: int = 1) -> None:
        """Args:
        site: The pair and its clients, started.
        directory: Directory for the files of the clients.
        seed: Draws nodes, faults and moments.
        faults: Faults of a round, one after the other while its clients go on; the pair is whole before each.
        """
        self._site = site
        self._directory = directory
        self._seed = seed
        self._faults = faults

    def run(self, kind: str, count: int) -> Iterator[Row]:
        """Run so many rounds; ends after one with an error."""
        for number in range(count):
            row = self._round(kind, number)
            yield row
            if row.error:
                return

    def _round(self, kind: str, number: int) -> Row:
        stream = random.Random(f"{self._seed}/{self._site.kind}/{kind}/{number}")
        row = Row(number, self._site.kind, kind)
        site, folder = self._site, self._directory / f"{kind}-{number}"
        before = self._quarantined()
        load = Load(site.url, folder, f"{kind}{number}")
        try:
            if kind != "disk":
                load.consume()
            while not row.error and row.faults < self._faults:
                row.error = self._strike(row, load, stream)
            if not row.error:
                row.error = load.finish(site.wait) or ""
            row.replaced = load.replaced
        finally:
            load.end()
        self._judge(row, load.check(), self._quarantined().items() - before.items())
        if row.ok:
            shutil.rmtree(folder)
        return row

    def _strike(self, row: Row, load: Load, stream: random.Random) -> str:
        """One fault, until the pair is whole again; why the run cannot go on, or nothing."""
        site = self._site
        warm = len(load.confirmed_ms()) + _WARM
        if not site.wait(lambda: len(load.confirmed_ms()) >= warm, _FIRST_S):
            return "no service before the fault"
        time.sleep(stream.uniform(0.0, 1.5))
        began_ms = _now_ms()
        if row.kind == "disk" and not load.consumers:
            # messages wait, and their bodies have left the memory: the node reads them while its disk fails
            load.consume()
        row.fault = getattr(self, f"_{row.kind}")(stream)
        row.faults += 1
        healed_ms = _now_ms()

        def served() -> bool:
            load.supervise()
            times = load.confirmed_ms()
            return bool(times) and times[-1] > healed_ms

        error = ""
        if not site.wait(served, _SERVICE_S):
            error = f"no service {_SERVICE_S} s after the fault"
        elif not site.wait_whole(_WHOLE_S):
            error = f"the pair is not whole {_WHOLE_S} s after the fault"
        row.gap_ms = max(row.gap_ms, load.gap_ms(began_ms))
        return error

    @staticmethod
    def _judge(row: Row, report: dict[str, Any], entries: Collection[tuple[str, bool]]) -> None:
        counts = report.get("counts", {})
        row.confirmed = counts.get("confirmed", 0)
        row.findings = {name: counts.get(name, 0) for name in BROKEN if counts.get(name, 0)}
        if not counts:
            row.error = row.error or f"no verdict: {report.get('verdict')}"
        confirmed_by = report.get("confirmed_by", {})
        if confirmed_by.get("findings"):
            row.findings["two-confirming"] = len(confirmed_by["findings"])
        row.quarantined = len(entries)
        row.elsewhere = sum(right for _, right in entries)

    # --- faults --------------------------------------------------------------------------------------

    def _kill(self, stream: random.Random) -> str:
        site = self._site
        index = _or_first(site.active())
        site.nodes[index].kill()
        return f"{site.node_name(index)}: SIGKILL"

    def _pause(self, stream: random.Random) -> str:
        """Stop the active node while it confirms; it goes on at a random moment, or once the other node serves."""
        site = self._site
        index = _or_first(site.active())
        site.nodes[index].pause()
        site.expire_lock()
        replaced = stream.random() < 0.7
        if replaced:
            site.wait(lambda: site.state(1 - index) == (200, "active"), _SERVICE_S)
        stopped_s = stream.uniform(0.0, 0.5 if replaced else 4.0)
        site.wait(_never, stopped_s)
        serves = site.state(1 - index) == (200, "active")
        site.nodes[index].resume()
        return f"{site.node_name(index)}: SIGSTOP until the other node {'served' if serves else 'did not serve yet'}"

    def _power(self, stream: random.Random) -> str:
        site = self._site
        index = _or_first(site.active())
        indexes = [0, 1] if stream.random() < 0.25 else [index]
        lost = site.lose_power(indexes, stream)
        names = " and ".join(site.node_name(each) for each in indexes)
        changes = sum(each.writes + each.names for each in lost)
        return f"{names}: power, {sum(each.undone for each in lost)} of {changes} unsynced changes undone"

    def _disk(self, stream: random.Random) -> str:
        site = self._site
        active = _or_first(site.active())
        index = active if stream.random() < 0.65 else 1 - active
        fault, permille = stream.choice(_DISK_FAULTS), stream.choice((1_000, 100, 10))
        duration_s = stream.uniform(0.5, 3.0)
        site.disks[index].fail(fault, permille, stream.getrandbits(63))
        site.wait(_never, duration_s)
        hits = site.disks[index].heal()
        role = "active" if index == active else "passive"
        return f"{site.node_name(index)} ({role}): {fault.name} {permille} permille for {duration_s:.1f} s, {hits} hits"

    # --- quarantine ----------------------------------------------------------------------------------

    def _quarantined(self) -> dict[str, bool]:
        """Entries of the quarantine of any node: whether the record is right on the disk of a node."""
        found: dict[str, bool] = {}
        for store in self._site.stores:
            for path in (store / "journal" / "quarantine").glob("*.entry"):
                with suppress(OSError, ValueError), path.open("rb") as file:
                    entry = json.loads(file.readline())
                    if not entry.get("dropped"):
                        found[path.stem] = any(_is_right(each, entry) for each in self._site.stores)
        return found


def _is_right(store: Path, entry: dict[str, Any]) -> bool:
    """Whether a store has the record of an entry undamaged. The body of a large message is there or not: no fault of
    the rounds changes bytes on a disk.
    """
    if entry.get("file_id") and not (store / "large-messages" / f"{entry['file_id']}.large").exists():
        return False
    number, epoch, offset, length = (int(entry.get(key, 0)) for key in ("segment", "epoch", "offset", "length"))
    if not number or not length:
        return False
    try:
        with closing((store / "journal" / segment_name(number, epoch)).open("rb")) as file:
            file.seek(offset)
            return read_frame(file.read(length), 0, offset, seed_of(number, epoch)) is not None
    except FileNotFoundError:
        return False


def _or_first(index: int | None) -> int:
    return index or 0


def _never() -> bool:
    return False


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
