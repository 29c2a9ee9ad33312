"""Three servers with the locks of a pair, each on a host of its own; they are deployed, and restarted by a roll."""

from __future__ import annotations

from dataclasses import dataclass

from understudy_lab.hosts import Lab
from understudy_lab.pair import Load, assert_kept, longest_window_s, make_ready, play, record

SERVERS = ("h1", "h5", "h6")
HOSTS = 6


@dataclass(frozen=True, slots=True)
class Ensemble:
    """One kind of lock manager with three servers."""

    table: str
    """Name of its file of measurements."""
    inventory: str
    addresses: str
    """Inventory that puts the servers on hosts of the lab."""
    unit: str

    def played(self, lab: Lab, playbook: str, *options: str) -> str:
        """Output of a playbook that must succeed."""
        done = play(lab, self.inventory, playbook, options=("--inventory", self.addresses, *options))
        assert done.code == 0, done.output[-3000:]
        record(self.table, {"play": playbook, "seconds": round(done.seconds, 1)})
        return done.output

    def deployed(self, lab: Lab) -> Lab:
        """The hosts with the ensemble and the pair deployed."""
        for playbook in ("playbooks/witness.yml", "playbooks/clients.yml", "playbooks/site.yml"):
            self.played(lab, playbook)
        return lab

    def deploy_again(self, lab: Lab) -> None:
        """A second deployment, which must change nothing."""
        make_ready(lab)
        for playbook in ("playbooks/witness.yml", "playbooks/site.yml"):
            said = self.played(lab, playbook)
            assert said.count("changed=0") == said.count("changed="), said[-600:]

    def restart_under_load(self, lab: Lab) -> None:
        """A rolling restart, which must restart one server after the other, then the pair, and lose nothing."""
        make_ready(lab)
        before = self._started(lab)
        load = Load(lab)
        load.await_progress()
        said = self.played(lab, "playbooks/rolling_restart.yml")
        after = self._started(lab)
        assert all(new > old for new, old in zip(after, before, strict=True)), (before, after)
        assert after == sorted(set(after)), f"servers began at the same time, or in another order: {after}"
        assert said.index("Wait until the quorum is whole again") < said.index("Stop backups")
        make_ready(lab)
        load.await_progress()
        report = load.end()
        counts = report["counts"]
        assert isinstance(counts, dict)
        kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "unresolved")}
        record(self.table, {"roll": "restart", "gap_s": round(longest_window_s(report), 1), **kept})
        assert_kept(report)

    def _started(self, lab: Lab) -> list[int]:
        """The second at which the service of each server was started last."""
        script = f'date -d "$(systemctl show --property=ActiveEnterTimestamp --value {self.unit})" +%s'
        return [int(lab.output(host, script)) for host in SERVERS]
