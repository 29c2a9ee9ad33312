"""A pair on lab hosts, with clients that keep ledgers: state, faults and judgement."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.errors import LabError
from understudy_lab.hosts import Lab, number_of
from understudy_lab.image import PYTHONS
from understudy_lab.network import address

ROOT = Path(__file__).resolve().parents[3]
STORE, PRIMARY, BACKUP, CLIENT = "h1", "h2", "h3", "h4"
UNITS = {PRIMARY: "understudy-a1", BACKUP: "understudy-a2"}
INSTANCE = "/opt/understudy/instance"
UNDERSTUDY = "/opt/understudy/current/bin/understudy"
SINGLE: Mapping[str, Sequence[str]] = {"pair": (PRIMARY, BACKUP)}
QUEUE = "drill"
PASSWORDS = {
    "BROKER_CLUSTER_PASSWORD": "cluster-password-of-a-test",
    "BROKER_DRILL_PASSWORD": "drill-password-of-a-test",
    "BROKER_WITNESS_SECRET": "witness-secret-of-a-test-0123456789",
}
CLIENT_PARAMETERS = (
    "ha=true&reconnectAttempts=-1&connectionTTL=5000&clientFailureCheckPeriod=1500&callTimeout=5000&retryInterval=500"
)
"""URL parameters that the playbook ``site`` shows: a host that vanishes is noticed within 5 seconds."""
READY_TIMEOUT_S = 120.0
UNLIMITED_DELIVERIES = {"broker_address_settings": [{"match": "#", "settings": {"max-delivery-attempts": -1}}]}
"""Variables of a pair whose store may hang. With ``callTimeout`` 5 s a consumer is given the same messages about twelve
times in a minute, and after ten times a message leaves its queue, as documented.
"""
POLL_S = 0.5
AGAIN = "-again"
"""End of the name of a producer that was started in the place of another one."""
PLAY_TIMEOUT_S = 1800.0
LOAD_TIMEOUT_S = 10800.0
"""After which clients of a test that was given up end. A roll that is killed before each phase takes an hour at a load
average of 20 on two processors; the next test ends clients that are left.
"""
CHECK_TIMEOUT_S = 1200.0
"""Time limit of the judgement of the ledgers, in seconds: 1.8 million lines took 180 s at a load average of 25."""
START = f"""
run() {{ timeout {LOAD_TIMEOUT_S:g} "$@" >$name.out 2>&1; echo $? >$name.code; }}
start() {{ name=$1; shift; run "$@" </dev/null >/dev/null 2>&1 & }}
"""
"""Shell functions: ``start NAME COMMAND...`` in the background, with its output and exit code in files."""


@dataclass(frozen=True, slots=True)
class Played:
    """How a playbook ended."""

    code: int
    output: str
    seconds: float


CALLBACKS = ROOT / "tests/callbacks"
RESULTS = ROOT / ".scratch" / "lab-results"
BUILD_PYTHON = "UNDERSTUDY_LAB_PYTHON"
"""Interpreter of this machine with pip, of the minor version that the hosts have, if it is not this program's."""


def environment(lab: Lab, notes: Path, hold: str = "") -> dict[str, str]:
    """Environment of ansible-playbook for the hosts of a lab.

    Args:
        lab: the hosts.
        notes: directory where the run notes when each task began; made anew.
        hold: task before which the run waits (tests/callbacks/phases.py).
    """
    scratch = ROOT / ".scratch"
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir(parents=True)
    return {
        **os.environ,
        **PASSWORDS,
        "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "ANSIBLE_SSH_COMMON_ARGS": f"-F {lab.ssh_config}",
        "ANSIBLE_COLLECTIONS_PATH": str(scratch / "collections"),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(lab.directory / "control"),
        "ANSIBLE_FORCE_COLOR": "false",
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "phases",
        "PHASES_DIRECTORY": str(notes),
        "PHASES_HOLD": hold,
    }


def interpreter_for(lab: Lab) -> Sequence[str]:
    """Options of ansible-playbook for hosts whose Python is not the one that runs here: what builds their wheels.

    Raises:
        LabError: none is named.
    """
    wanted = PYTHONS[lab.image.release]
    if wanted == f"{sys.version_info.major}.{sys.version_info.minor}":
        return ()
    path = os.environ.get(BUILD_PYTHON, "")
    if not path:
        raise LabError(f"the hosts have Python {wanted}: set {BUILD_PYTHON} to such an interpreter of this machine")
    return ("--extra-vars", json.dumps({"broker_install_build_python": path}))


def place_of(inventory: str) -> str:
    """Path of an inventory, which is given by its name below ``inventories`` or as a path."""
    return inventory if "/" in inventory else f"inventories/{inventory}"


def play(
    lab: Lab,
    inventory: str,
    *playbooks: str,
    options: Sequence[str] = (),
    timeout_s: float = PLAY_TIMEOUT_S,
    program: str = "ansible-playbook",
) -> Played:
    """Runs playbooks against the hosts of a lab, as an operator does: over ssh, as an unprivileged user with sudo.

    Args:
        lab: the hosts.
        inventory: one of ``inventories``, or a path.
        playbooks: paths; for the program ``ansible`` the pattern of the hosts.
        options: of the program.
        timeout_s: for all playbooks together.
        program: ``ansible-playbook``, or ``ansible`` for one module.
    """
    begun = time.monotonic()
    done = subprocess.run(
        [program, "--inventory", place_of(inventory), *playbooks, *options, *interpreter_for(lab)],
        cwd=ROOT,
        env=environment(lab, RESULTS / "tasks" / Path(playbooks[-1]).stem),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Played(done.returncode, done.stdout, time.monotonic() - begun)


def deploy(lab: Lab, inventory: str, table: str, *playbooks: str, options: Sequence[str] = ()) -> Lab:
    """Runs playbooks one after the other, adds their times to a table of measurements, and returns the hosts.

    Raises:
        AssertionError: a playbook failed.
    """
    for playbook in playbooks:
        played = play(lab, inventory, playbook, options=options)
        assert played.code == 0, played.output[-3000:]
        record(table, {"play": playbook, "seconds": round(played.seconds, 1)})
    return lab


def deploy_again(lab: Lab, inventory: str, table: str, options: Sequence[str] = ()) -> None:
    """Runs the playbook ``site`` on a pair that is deployed, which must change nothing and restart no broker.

    Raises:
        AssertionError: it changed something.
    """
    make_ready(lab)
    before = [lab.output(host, f"systemctl show -p MainPID {unit}") for host, unit in UNITS.items()]
    played = play(lab, inventory, "playbooks/site.yml", options=options)
    assert played.code == 0, played.output[-3000:]
    assert played.output.count("changed=0") == 2, played.output[-600:]
    assert before == [lab.output(host, f"systemctl show -p MainPID {unit}") for host, unit in UNITS.items()]
    record(table, {"play": "site again", "seconds": round(played.seconds, 1)})


@dataclass(frozen=True, slots=True)
class Seen:
    """State of the broker on a host."""

    state: str
    """``active``, ``passive``, ...; empty while it does not answer."""
    caught_up: bool
    """Whether a passive broker has read the whole store."""


SERVING, FOLLOWING = Seen("active", caught_up=False), Seen("passive", caught_up=True)


def seen(lab: Lab, host: str) -> Seen:
    """Asks the broker on a host."""
    try:
        done = lab.execute(host, f"{UNDERSTUDY} status --instance {INSTANCE} --json", 15.0)
        answer = json.loads(done.output)
        return Seen(str(answer["ha"]["state"]), bool((answer.get("following") or {}).get("caught_up")))
    except (LabError, ValueError, KeyError, TypeError):
        return Seen("", caught_up=False)


def earlier_data(lab: Lab, host: str) -> str:
    """Directory of earlier data with records that the active node does not have, as the broker on a host says; empty if
    there is none, or if it does not answer.
    """
    try:
        done = lab.execute(host, f"{UNDERSTUDY} status --instance {INSTANCE} --json", 15.0)
        found = json.loads(done.output).get("earlier_data") or {}
        return str(found["directory"]) if found.get("records") else ""
    except (LabError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def serves(lab: Lab, host: str) -> bool:
    """Whether the broker on a host says that it serves."""
    return seen(lab, host).state == "active"


def messages_at(lab: Lab, host: str) -> int:
    """Messages in the queues of the broker on a host."""
    found = json.loads(lab.output(host, f"{UNDERSTUDY} queue stat --instance {INSTANCE} --json"))
    return sum(int(queue["message_count"]) for queue in found)


def await_that(holds: Callable[[], bool], what: str, timeout_s: float = READY_TIMEOUT_S) -> None:
    """Waits until a condition holds.

    Raises:
        LabError: it did not within the time.
    """
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise LabError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


def make_ready(lab: Lab) -> tuple[str, str]:
    """Waits until one node serves and the other follows; returns both hosts. Only power and cables are repaired.

    Raises:
        LabError: the pair did not come back by itself.
    """
    lab.network.heal()
    for host in lab.hosts():
        if host.state == "paused":
            lab.resume(host.name)
    lab.start(host.name for host in lab.hosts() if host.state == "off")
    found: dict[str, Seen] = {}

    def whole() -> bool:
        found.update({host: seen(lab, host) for host in UNITS})
        return sorted(found.values(), key=lambda each: each.state) == [SERVING, FOLLOWING]

    await_that(whole, "one node serves and the other follows")
    return next(host for host in UNITS if found[host] == SERVING), next(h for h in UNITS if found[h] == FOLLOWING)


class Load:
    """A producer and a consumer for each pair, on the clients' host, from the construction on until ``end``.

    Args:
        lab: the hosts.
        rate: messages of each producer in a second.
        pairs: places of each pair by its name, ``h2`` or ``h2:5445``; None: those of the only pair.
    """

    def __init__(self, lab: Lab, rate: int = 200, pairs: Mapping[str, Sequence[str]] | None = None) -> None:
        self._lab = lab
        pairs = SINGLE if pairs is None else pairs
        self._pairs = tuple(pairs)
        logins = {name: _login(hosts) for name, hosts in pairs.items()}
        drains = [
            f"timeout 50 {UNDERSTUDY} consume {logins[name]} --idle-timeout 1 >/dev/null 2>&1 || true" for name in pairs
        ]
        self._producers = {
            name: f"{UNDERSTUDY} produce {logins[name]} --count 1000 --rate {rate} --until stop" for name in pairs
        }
        starts = [
            f"start c-{name} {UNDERSTUDY} consume {logins[name]} --consumer c-{name} --ledger c-{name}.jsonl"
            f" --ack transacted --batch 20 --until stop --idle-timeout 15\n{self._started(name, f'p-{name}')}"
            for name in pairs
        ]
        self._lab.output(
            CLIENT,
            f"""
            # A test that failed may have left clients and messages.
            pkill -KILL -x understudy || true
            # Their shells still write exit codes: into the directory under its other name.
            [ ! -e load ] || mv load "load.$$"
            rm -rf load.* || true
            mkdir load; cd load; umask 077; echo {PASSWORDS["BROKER_DRILL_PASSWORD"]} >password
            {START}
            """
            + "\n".join([*drains, *starts]),
            60.0 * (1 + len(drains)),
        )

    def _started(self, pair: str, name: str) -> str:
        return f"start {name} {self._producers[pair]} --producer {name} --ledger {name}.jsonl"

    def start_refused_again(self) -> list[str]:
        """Starts another producer in the place of each whose messages were refused because of a full disk.

        Returns:
            The pairs of these producers.
        """
        refused = [
            pair
            for pair in self._pairs
            if self._lab.execute(CLIENT, f"grep -q 'disk of the broker is full' load/p-{pair}.out").code == 0
        ]
        for pair in refused:
            await_that(
                lambda pair=pair: self._lab.execute(CLIENT, f"rm load/p-{pair}.code").code == 0,  # type: ignore[misc]
                f"the refused producer of {pair} ended",
                30.0,
            )
            self._lab.output(CLIENT, f"cd load\n{START}\n{self._started(pair, f'p-{pair}{AGAIN}')}")
        return refused

    def confirmed(self, pair: str = "") -> int:
        """Messages that the brokers have confirmed so far, of one pair or of all."""
        files = " ".join(f"load/p-{name}*.jsonl" for name in ([pair] if pair else self._pairs))
        return int(self._lab.output(CLIENT, f"cat {files} 2>/dev/null | grep -c CONFIRMED || true"))

    def await_progress(self, messages: int = 100, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits until so many more messages are confirmed by each pair."""
        before = {pair: self.confirmed(pair) for pair in self._pairs}
        for pair, already in before.items():
            await_that(
                lambda pair=pair, already=already: self.confirmed(pair) >= already + messages,  # type: ignore[misc]
                f"messages of {pair} are confirmed",
                timeout_s,
            )

    def end(self) -> dict[str, object]:
        """Ends all clients when the queues are drained; the report of ``understudy ledger check``.

        Raises:
            LabError: a client failed or did not end.
        """
        self._lab.output(CLIENT, "touch load/stop")

        def done() -> bool:
            return int(self._lab.output(CLIENT, "cd load; ls *.code 2>/dev/null | wc -l")) == 2 * len(self._pairs)

        await_that(done, "all clients ended", 150.0)
        said = self._lab.output(CLIENT, "cd load; cat *.code; cat *.out")
        if set(said.split()[: 2 * len(self._pairs)]) != {"0"}:
            raise LabError(f"a client failed: {said}")
        moved = "--members" if len(self._pairs) > 1 else ""
        check = f"cd load; {UNDERSTUDY} ledger check --json {moved} *.jsonl"
        checked = self._lab.execute(CLIENT, check, CHECK_TIMEOUT_S)
        report = json.loads(checked.output)
        assert isinstance(report, dict)
        return report


def _login(pair: Sequence[str]) -> str:
    """Options of a client of a pair."""
    found = []
    for place in pair:
        host, *port = place.split(":")
        found.append(f"tcp://{address(number_of(host))}:{port[0] if port else 61616}?connect-timeout-millis=3000")
    places = ",".join(found)
    return f"--url '({places})?{CLIENT_PARAMETERS}' --user drill --password-file password --queue {QUEUE} --json"


def assert_kept(report: dict[str, object]) -> None:
    """Proves that every message was judged and none was lost, and that no two nodes confirmed at the same time.

    Raises:
        AssertionError: a promise was broken, or could not be judged.
    """
    assert report["ok"], report
    nodes = report["confirmed_by"]
    assert isinstance(nodes, dict)
    assert nodes["epochs"], "no confirmation names its node"
    assert nodes["ok"], nodes["findings"]


def served_after_s(report: dict[str, object], from_ms: int, until_ms: int) -> float | None:
    """Seconds from the end of a time, in which no message was confirmed, to the next confirmation; None if one was."""
    windows = report["windows"]
    assert isinstance(windows, list)
    for one in windows:
        if one["start_ms"] <= from_ms and until_ms <= one["end_ms"]:
            return float(one["end_ms"] - until_ms) / 1000
    return None


def longest_window_s(report: dict[str, object], pair: str = "") -> float:
    """The longest time without a confirmation, of one pair or of all, in seconds."""
    windows = report["windows"]
    assert isinstance(windows, list)
    return (
        max(
            (
                one["duration_ms"]
                for one in windows
                if pair in ("", one["producer"].removeprefix("p-").removesuffix(AGAIN))
            ),
            default=0,
        )
        / 1000
    )


def record(name: str, row: dict[str, object]) -> None:
    """Adds one row of measurements to the file that docs/build/reliability.md is written from."""
    path = RESULTS / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), file=sys.stderr)
