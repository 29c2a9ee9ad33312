"""The hosts of the table of faults and rolls: a pair with a shared store, a replicated pair, a witness, and clients."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from understudy_lab.errors import LabError
from understudy_lab.hosts import Lab
from understudy_lab.pair import INSTANCE, ROOT, Load, Played, earlier_data, play, serves
from understudy_lab.rolls import (
    NODES,
    PAIRS,
    PRESENT_VERSION,
    UNITS,
    Generation,
    Run,
    await_service,
    generations,
    process_of,
    release_of,
)

INVENTORY = "tests/lab/inventories/faults.yml"
STORE, CLIENT, WITNESS = "h1", "h4", "h7"
HOSTS = 7
EVIDENCE_TIMEOUT_S = 900.0
"""Time limit of the packing of the clients' ledgers, in seconds; they have millions of lines after a long row."""
PLAYBOOKS = {
    "restart": "playbooks/rolling_restart.yml",
    "update": "playbooks/rolling_update.yml",
    "rollback": "playbooks/rollback.yml",
}
"""The playbook of each kind of roll."""
NAMES = {host: name for name, host in NODES.items()}


class Bed:
    """Both pairs, deployed, and the generation that they run.

    Args:
        lab: the hosts; created by ``deploy``.
        scratch: directory for runs and sources of this machine.
    """

    def __init__(self, lab: Lab, scratch: Path) -> None:
        self.lab = lab
        self._scratch = scratch
        self.now, self.next = generations(scratch)
        self._can_roll_back = False
        self.load: Load
        """The clients of the present row."""
        self.report: dict[str, object] = {}
        """What ``understudy ledger check`` said at the end of the last row; empty if it has not come so far."""
        self.damaged = False
        """Whether a row was not ok, so that the next one needs new hosts."""

    def deploy(self) -> float:
        """Boots the hosts and deploys both pairs; returns the seconds of ``site``.

        Raises:
            LabError: a playbook failed.
        """
        self.lab.create(HOSTS)
        for playbook in ("tests/lab/playbooks/nfs_server.yml", "playbooks/clients.yml", "playbooks/witness.yml"):
            self._succeed(playbook)
        seconds = self._succeed("playbooks/site.yml", *self.now.options).seconds
        self.make_ready()
        return seconds

    def make_anew(self) -> None:
        """Destroys the hosts, and deploys both pairs on new ones.

        Raises:
            LabError: a playbook failed.
        """
        self.lab.destroy()
        if self.now.version == PRESENT_VERSION:
            self._swap()
        self._can_roll_back = self.damaged = False
        self.deploy()

    def look(self) -> bool:
        """Takes the generation that the hosts run; whether all nodes of both pairs run one of the two."""
        known = set(self.lab.names())
        if not known.issuperset((STORE, CLIENT, WITNESS, *NODES.values())):
            return False
        self.lab.start(host.name for host in self.lab.hosts() if host.state == "off")
        running = {release_of(self.lab, host) for host in NODES.values()}
        if running == {self.next.version}:
            self._swap()
        return running == {self.now.version}

    def make_ready(self) -> None:
        """Repairs power and cables, and waits until one node of each pair serves and the other follows.

        Raises:
            LabError: a pair did not come back by itself.
        """
        self.lab.network.heal()
        for host in self.lab.hosts():
            if host.state == "paused":
                self.lab.resume(host.name)
        self.lab.start(host.name for host in self.lab.hosts() if host.state == "off")
        for pair in PAIRS:
            await_service(self.lab, pair)

    def active(self, pair: str) -> str:
        """The host whose node serves.

        Raises:
            LabError: no node of the pair does.
        """
        found = next((host for host in PAIRS[pair] if serves(self.lab, host)), None)
        if found is None:
            raise LabError(f"no node of {pair} serves")
        return found

    def process(self, host: str) -> str:
        """Process id of the broker on a host."""
        return process_of(self.lab, host)

    def serving(self) -> str:
        """Names of the nodes that serve now."""
        return ", ".join(NAMES[host] for host in NODES.values() if serves(self.lab, host))

    def earlier_data(self) -> dict[str, str]:
        """Directories of earlier data whose records the active node does not have, by the name of the node."""
        found = {name: earlier_data(self.lab, host) for name, host in NODES.items()}
        return {name: directory for name, directory in found.items() if directory}

    def roll(self, kind: str, canary: str = "", hold: str = "") -> Run:
        """A roll in the background; an update goes to the other generation, and a rollback back to it.

        Args:
            kind: one of ``PLAYBOOKS``.
            canary: pair of the first wave; by default the first by name.
            hold: name of the task before which the run waits.
        """
        chosen = ("--extra-vars", json.dumps({"rolling_canary": canary})) if canary else ()
        command = (PLAYBOOKS[kind], *self._aim(kind).options, *chosen)
        return Run(self.lab, self._scratch / "run", *command, hold=hold, inventory=INVENTORY)

    def rolled(self, kind: str) -> None:
        """Notes that a roll is complete.

        Raises:
            LabError: a node runs another release than the one that the roll brings.
        """
        wanted = self._aim(kind).version
        found = {NAMES[host]: release_of(self.lab, host) for host in NODES.values()}
        if set(found.values()) != {wanted}:
            raise LabError(f"after the {kind} to {wanted} the nodes run {found}")
        if kind != "restart":
            self._swap()
            self._can_roll_back = kind == "update"

    def enable_rollback(self) -> None:
        """Carries out an update, unless the last roll was one.

        Raises:
            LabError: it failed.
        """
        if not self._can_roll_back:
            done = self.roll("update").end()
            if done.code:
                raise LabError(f"the update before a rollback failed: {done.output[-3000:]}")
            self.rolled("update")
            self.make_ready()

    def play(self, playbook: str, kind: str, *options: str) -> Played:
        """Runs a playbook with the variables of a roll."""
        return play(self.lab, INVENTORY, f"playbooks/{playbook}.yml", options=(*self._aim(kind).options, *options))

    def health(self, kind: str) -> dict[str, object]:
        """The report of the playbook health for monitors."""
        path = self._scratch / "health.json"
        path.unlink(missing_ok=True)
        self.play("health", kind, "--extra-vars", json.dumps({"health_output": str(path)}))
        report = json.loads(path.read_text())
        assert isinstance(report, dict)
        return report

    def keep_evidence(self, directory: Path, seconds: float) -> None:
        """Writes what explains a row: journals of the nodes, ledgers of the clients with the report on them, and the
        output of the last roll, as far as possible.

        Args:
            directory: for the files; what it has is removed.
            seconds: how long ago the row began.
        """
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "ledger_check.json").write_text(json.dumps(self.report, indent=2) + "\n")
        with (directory / "clients.tar.gz").open("wb") as archive:
            pack = ["ssh", "-F", str(self.lab.ssh_config), "-l", "root", CLIENT, "tar --create --gzip load"]
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(pack, stdout=archive, timeout=EVIDENCE_TIMEOUT_S, check=False)
        for host, unit in UNITS.items():
            try:
                text = self.lab.output(
                    host, f"journalctl --unit {unit} --no-pager --since=-{seconds:.0f}s; cat {INSTANCE}/rollout/*.json"
                )
            except LabError as error:
                text = f"{error}\n"
            (directory / f"{NAMES[host]}.log").write_text(text)
        try:
            clients = self.lab.output(CLIENT, "cd load; tail -n 20 *.code *.out; tail -n 5 *.jsonl")
        except LabError as error:
            clients = f"{error}\n"
        (directory / "clients.log").write_text(clients)
        output = self._scratch / "run" / "output"
        if output.exists():
            (directory / "roll.log").write_text(output.read_text())

    def _aim(self, kind: str) -> Generation:
        return self.now if kind == "restart" else self.next

    def _swap(self) -> None:
        self.now, self.next = self.next, self.now

    def _succeed(self, playbook: str, *options: str) -> Played:
        played = play(self.lab, INVENTORY, playbook, options=options)
        if played.code:
            raise LabError(f"{playbook} failed: {played.output[-3000:]}")
        return played


def scratch_of(name: str) -> Path:
    """Where the runs of a lab are kept on this machine."""
    return ROOT / ".scratch" / f"lab-faults-{name}"
