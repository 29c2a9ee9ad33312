"""Rolling updates of two pairs on lab hosts: two generations to go between, and runs that are held before a task."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.errors import LabError
from understudy_lab.hosts import Lab
from understudy_lab.pair import (
    FOLLOWING,
    INSTANCE,
    ROOT,
    SERVING,
    Load,
    Played,
    assert_kept,
    await_that,
    environment,
    interpreter_for,
    longest_window_s,
    place_of,
    play,
    record,
    seen,
)

INVENTORY = "two_pairs"
NODES = {"a1": "h2", "a2": "h3", "b1": "h5", "b2": "h6"}
PAIRS = {"east": ("h2", "h3"), "west": ("h5", "h6")}
UNITS = {host: f"understudy-{name}" for name, host in NODES.items()}
FORMER_VERSION = "0.0.9"
PRESENT_VERSION = re.search(r'(?m)^__version__ = "(.*)"$', (ROOT / "broker/src/understudy/__init__.py").read_text())[1]  # type: ignore[index]
ROLL_TIMEOUT_S = 1800.0
GATE_TIMEOUT_S = 60
FORMER_SOURCE = "UNDERSTUDY_LAB_FORMER_SOURCE"
"""Source of the broker that the other generation is built from, if it is not the present one with another version."""
TABLE = "rolling_update"
UPDATE = "playbooks/rolling_update.yml"
PHASES = {
    "Stop backups": ("begun", "begun"),
    "Stop primaries": ("begun", "stopped"),
    "Apply | Put the release and the configuration in place": ("stopped", "stopped"),
    "Start primaries": ("applied", "applied"),
    "Start backups": ("started", "applied"),
    "Finish | Record it, and keep the former release and configuration for a rollback": ("started", "started"),
}
"""Tasks before which a run is killed, and the phases of the nodes of the wave then: of the one that serves, and of the
other one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A release and a configuration that all nodes run before or after a roll."""

    version: str
    options: tuple[str, ...]
    """Options of the playbooks."""


def generations(scratch: Path, other: str = FORMER_VERSION) -> tuple[Generation, Generation]:
    """Another one and the present one; they differ in the release, and in one element of broker.xml.

    Args:
        scratch: directory for the source of the other release.
        other: its version.

    Raises:
        LabError: the directory that ``FORMER_SOURCE`` names is no source of the broker.
    """
    former = scratch / "former"
    source = Path(os.environ.get(FORMER_SOURCE) or ROOT / "broker")
    if not (source / "src/understudy/__init__.py").exists():
        raise LabError(f"{FORMER_SOURCE}={source} has no src/understudy/__init__.py; name a directory broker")
    shutil.rmtree(former, ignore_errors=True)
    former.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "src", "kernel"):
        copy = shutil.copytree if (source / name).is_dir() else shutil.copy2
        copy(source / name, former / name)
    version = former / "src/understudy/__init__.py"
    text, found = re.subn(r'(?m)^__version__ = ".*"$', f'__version__ = "{other}"', version.read_text())
    assert found == 1
    version.write_text(text)
    common = {"broker_gate_timeout_s": GATE_TIMEOUT_S}
    return (
        Generation(other, _options({**common, "broker_install_source": str(former)})),
        Generation(PRESENT_VERSION, _options({**common, "broker_cluster_max_hops": 2})),
    )


def _options(variables: dict[str, object]) -> tuple[str, ...]:
    return ("--extra-vars", json.dumps(variables))


class Run:
    """A playbook that runs in the background and may be held before a task.

    Args:
        lab: the hosts.
        directory: where it notes when each task began; removed first.
        command: the playbook and its options.
        hold: name of the task before which it waits for ``go``.
        inventory: one of ``inventories``, or a path.
    """

    def __init__(self, lab: Lab, directory: Path, *command: str, hold: str = "", inventory: str = INVENTORY) -> None:
        self._directory = directory
        self._begun = time.monotonic()
        variables = environment(lab, directory, hold)
        self._output = directory / "output"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                ["ansible-playbook", "--inventory", place_of(inventory), *command, *interpreter_for(lab)],
                cwd=ROOT,
                env={**variables, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def await_held(self) -> None:
        """Waits until the run has reached the task.

        Raises:
            LabError: it has ended before, or did not within the time.
        """

        def held() -> bool:
            if self._process.poll() is not None:
                raise LabError(f"the run ended before the task: {self._output.read_text()[-3000:]}")
            return (self._directory / "held").exists()

        await_that(held, "the run reaches the task", ROLL_TIMEOUT_S)

    def go(self) -> None:
        """Lets it go on."""
        (self._directory / "go").touch()

    def kill(self) -> None:
        """Ends the run and all its processes at once, as a controller does that loses its power."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> Played:
        """Waits for its end."""
        try:
            code = self._process.wait(ROLL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise LabError(f"the run did not end: {self._output.read_text()[-3000:]}") from None
        return Played(code, self._output.read_text(), time.monotonic() - self._begun)

    def tasks(self) -> int:
        """Tasks that have begun."""
        return len((self._directory / "tasks.jsonl").read_text().splitlines()) - 1


@dataclass
class Cluster:
    """Two pairs, and the generation that they run."""

    lab: Lab
    now: Generation
    next: Generation
    scratch: Path

    def roll(self, hold: str = "") -> Run:
        """A rolling update to the other generation."""
        return Run(self.lab, self.scratch / "run", UPDATE, *self.next.options, hold=hold)

    def look(self) -> None:
        """Takes the generation that the nodes run now, also after a test that has failed between two of them."""
        if {release_of(self.lab, host) for host in NODES.values()} == {self.next.version}:
            self.now, self.next = self.next, self.now

    def rolled(self) -> None:
        """All nodes run the other generation now."""
        assert {host: release_of(self.lab, host) for host in NODES.values()} == dict.fromkeys(
            NODES.values(), self.next.version
        )
        self.now, self.next = self.next, self.now

    def processes(self, *hosts: str) -> list[str]:
        return [process_of(self.lab, host) for host in hosts]


def deploy_cluster(lab: Lab) -> Cluster:
    """Both pairs with the former release, unless the hosts were kept and run one of the two."""
    scratch = ROOT / ".scratch" / "lab-rolls"
    former, present = generations(scratch)
    running = {release_of(lab, host) for host in NODES.values()}
    if len(running) == 1 and running <= {former.version, present.version}:
        return Cluster(lab, *((former, present) if running == {former.version} else (present, former)), scratch)
    for playbook in ("tests/lab/playbooks/nfs_server.yml", "playbooks/clients.yml", "playbooks/site.yml"):
        options = former.options if playbook == "playbooks/site.yml" else ()
        played = play(lab, INVENTORY, playbook, options=options)
        assert played.code == 0, played.output[-3000:]
        record(TABLE, {"play": playbook, "seconds": round(played.seconds, 1)})
    return Cluster(lab, former, present, scratch)


def release_of(lab: Lab, host: str) -> str:
    """Version of the release that the broker's process on a host runs; empty if none runs."""
    script = f"tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value {UNITS[host]})/cmdline | head -n 1"
    found = re.search(r"/releases/([^/-]+)-", lab.execute(host, script).output)
    return found[1] if found else ""


def process_of(lab: Lab, host: str) -> str:
    """Process id of the broker on a host."""
    return lab.output(host, f"systemctl show -p MainPID --value {UNITS[host]}").strip()


def await_service(lab: Lab, pair: str) -> None:
    """Waits until one node of a pair serves and the other one follows."""

    def whole() -> bool:
        found = sorted((seen(lab, host) for host in PAIRS[pair]), key=lambda each: each.state)
        return found == [SERVING, FOLLOWING]

    await_that(whole, f"one node of {pair} serves and the other follows")


def await_one_serving(lab: Lab, pair: str) -> None:
    """Waits until a node of a pair serves."""
    await_that(lambda: SERVING in [seen(lab, host) for host in PAIRS[pair]], f"a node of {pair} serves")


def judge(load: Load, row: dict[str, object]) -> None:
    """Ends a load; records its figures, and proves that nothing was lost."""
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    gaps = {f"{pair}_gap_s": round(longest_window_s(report, pair), 1) for pair in PAIRS}
    kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "unresolved")}
    record(TABLE, {**row, **gaps, **kept})
    assert_kept(report)


def crash_new_release(lab: Lab, victim: str) -> None:
    """Every process of the release that was just put in place is killed, as a release with a defect would end."""
    lab.output(
        victim,
        f"""
        release=$(basename $(readlink -f {INSTANCE}/../current)); touch /run/crash
        crash() {{ while [ -e /run/crash ]; do pkill -KILL -f "releases/$release/.* run " || true; sleep 0.1; done; }}
        crash </dev/null >/dev/null 2>&1 &
        """,
    )


def end_crashes(lab: Lab, victim: str) -> None:
    """Lets processes of the new release live."""
    lab.output(victim, "rm /run/crash")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the primary of the first wave while its roll is held."""

    name: str
    hold: str
    """The task before which it happens."""
    strike: Callable[[Lab, str], object]
    repair: Callable[[Lab, str], object]
    reason: str
    """What the roll says."""
    restored: bool = True
    """Whether the node itself runs its former release again before the repair."""

    def __str__(self) -> str:
        return self.name.replace(" ", "-")
