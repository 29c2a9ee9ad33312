"""A pair on lab hosts, with clients that keep ledgers: state, faults and judgement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.errors import LabError
from understudy_lab.hosts import Lab
from understudy_lab.network import address

ROOT = Path(__file__).resolve().parents[3]
STORE, PRIMARY, BACKUP, CLIENT = "h1", "h2", "h3", "h4"
UNITS = {PRIMARY: "understudy-a1", BACKUP: "understudy-a2"}
INSTANCE = "/opt/understudy/instance"
UNDERSTUDY = "/opt/understudy/current/bin/understudy"
QUEUE = "drill"
PASSWORDS = {
    "BROKER_CLUSTER_PASSWORD": "cluster-password-of-a-test",
    "BROKER_DRILL_PASSWORD": "drill-password-of-a-test",
    "BROKER_WITNESS_SECRET": "witness-secret-of-a-test-0123456789",
}
CLIENT_PARAMETERS = (
    "ha=true&reconnectAttempts=-1&connectionTTL=5000&clientFailureCheckPeriod=1500&callTimeout=5000&retryInterval=500"
)
"""As the playbook ``site`` shows them: a host that vanishes is noticed within 5 seconds."""
READY_TIMEOUT_S = 120.0
POLL_S = 0.5
PLAY_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Played:
    """How a playbook ended."""

    code: int
    output: str
    seconds: float


def play(
    lab: Lab, inventory: str, *playbooks: str, options: Sequence[str] = (), timeout_s: float = PLAY_TIMEOUT_S
) -> Played:
    """Runs playbooks against the hosts of a lab, as an operator does: over ssh, as an unprivileged user with sudo.

    Args:
        lab: the hosts.
        inventory: one of ``inventories``, or a path.
        playbooks: paths.
        options: of ``ansible-playbook``.
        timeout_s: for all playbooks together.
    """
    scratch = ROOT / ".scratch"
    environment = {
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
    }
    place = inventory if "/" in inventory else f"inventories/{inventory}"
    begun = time.monotonic()
    done = subprocess.run(
        ["ansible-playbook", "--inventory", place, *playbooks, *options],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Played(done.returncode, done.stdout, time.monotonic() - begun)


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


def serves(lab: Lab, host: str) -> bool:
    """Whether the broker on a host says that it serves."""
    return seen(lab, host).state == "active"


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
    """A producer and a consumer on the clients' host, from the construction on until ``end``."""

    def __init__(self, lab: Lab, rate: int = 200) -> None:
        self._lab = lab
        places = ",".join(f"tcp://{address(n)}:61616?connect-timeout-millis=3000" for n in (2, 3))
        login = f"--url '({places})?{CLIENT_PARAMETERS}' --user drill --password-file password --queue {QUEUE} --json"
        produce = f"--producer p1 --ledger p.jsonl --count 1000 --rate {rate} --until stop"
        consume = "--consumer c1 --ledger c.jsonl --ack transacted --batch 20 --until stop --idle-timeout 15"
        self._lab.output(
            CLIENT,
            f"""
            # A test that failed may have left clients and messages.
            pkill -KILL -x understudy || true
            rm -rf load; mkdir load; cd load; umask 077; echo {PASSWORDS["BROKER_DRILL_PASSWORD"]} >password
            timeout 50 {UNDERSTUDY} consume {login} --idle-timeout 1 >/dev/null 2>&1 || true
            run() {{ timeout 300 "$@" >$name.out 2>&1; echo $? >$name.code; }}
            start() {{ name=$1; shift; run "$@" </dev/null >/dev/null 2>&1 & }}
            start c {UNDERSTUDY} consume {login} {consume}
            start p {UNDERSTUDY} produce {login} {produce}
            """,
        )

    def confirmed(self) -> int:
        """Messages that the broker has confirmed so far."""
        return int(self._lab.output(CLIENT, "cat load/p.jsonl 2>/dev/null | grep -c CONFIRMED || true"))

    def await_progress(self, messages: int = 100, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits until so many more messages are confirmed."""
        before = self.confirmed()
        await_that(lambda: self.confirmed() >= before + messages, "messages are confirmed", timeout_s)

    def end(self) -> dict[str, object]:
        """Ends both clients when the queue is drained; the report of ``understudy ledger check``.

        Raises:
            LabError: a client failed or did not end.
        """
        self._lab.output(CLIENT, "touch load/stop")

        def done() -> bool:
            return self._lab.output(CLIENT, "cd load; ls p.code c.code 2>/dev/null | wc -l").strip() == "2"

        await_that(done, "both clients ended", 150.0)
        codes = self._lab.output(CLIENT, "cd load; cat p.code c.code; cat p.out c.out")
        if codes.split()[:2] != ["0", "0"]:
            raise LabError(f"a client failed: {codes}")
        checked = self._lab.execute(CLIENT, f"cd load; {UNDERSTUDY} ledger check --json p.jsonl c.jsonl")
        report = json.loads(checked.output)
        assert isinstance(report, dict)
        return report


def longest_window_s(report: dict[str, object]) -> float:
    """The longest time without a confirmation, in seconds."""
    windows = report["windows"]
    assert isinstance(windows, list)
    return max((window["end_ms"] - window["start_ms"] for window in windows), default=0) / 1000


def record(name: str, row: dict[str, object]) -> None:
    """Adds one row of measurements to the file that docs/reliability.md is written from."""
    path = ROOT / ".scratch" / "lab-results" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row), file=sys.stderr)
