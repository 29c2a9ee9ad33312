"""Goal: an uninstallation leaves a host as it was before the deployment.

Method: the files, users, groups and mounts of hosts are listed before a deployment and after its removal. The pairs of
two inventories, one with a mounted store and one with a witness, are deployed on the same hosts one after the other.
"""

from __future__ import annotations

from understudy_lab.hosts import Lab
from understudy_lab.pair import BACKUP, PRIMARY, STORE, make_ready, play

PURGE = ("--extra-vars", '{"broker_uninstall_purge_data": true}')
LISTING = """
find /etc /opt /srv /usr/local /var/lib /var/spool /root /home -xdev \\
    ! -path '/var/lib/nfs*' ! -path '/var/lib/systemd/*' ! -path '*/.ansible*' ! -path '/var/lib/private*' \\
    ! -name 'passwd*' ! -name 'shadow*' ! -name 'group*' ! -name 'gshadow*' ! -name '.pwd.lock' ! -name 'sub?id*' | sort
cut -d: -f1 /etc/passwd /etc/group | sort
awk '{print $1, $2, $3}' /proc/mounts | grep -v '^systemd-1\\|/run/user' | sort -u
"""
"""The administrative copies of passwd(5) and its relatives (passwd-, shadow-) change with every user of a host."""


def listing(lab: Lab, *hosts: str) -> dict[str, list[str]]:
    """What there is on each host."""
    return {host: lab.output(host, LISTING).splitlines() for host in hosts}


def left(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """Entries that were not there before, by host."""
    return {host: sorted(set(after[host]) - set(before[host])) for host in before}


def succeed(lab: Lab, inventory: str, *playbooks: str, options: tuple[str, ...] = ()) -> str:
    """Output of playbooks, all of which must succeed."""
    played = play(lab, inventory, *playbooks, options=options)
    assert played.code == 0, played.output[-3000:]
    return played.output


def test_nothing_of_a_pair_with_a_mounted_store_is_left(lab: Lab) -> None:
    succeed(lab, "shared_store", "tests/lab/playbooks/nfs_server.yml")
    before = listing(lab, PRIMARY, BACKUP, STORE)
    exported = lab.output(STORE, "find /export | sort")
    planned = play(lab, "shared_store", "playbooks/plan.yml")
    said = " ".join(planned.output.split())
    for node in ("a1", "a2"):
        assert f"nothing is deployed on {node} of pair orders; run site first" in said, planned.output[-3000:]
    succeed(lab, "shared_store", "playbooks/site.yml")
    make_ready(lab)
    kept = succeed(lab, "shared_store", "playbooks/uninstall.yml")
    assert "broker_uninstall_purge_data=true would delete them" in kept
    assert lab.output(STORE, "ls /export/pair/journal").strip()
    succeed(lab, "shared_store", "playbooks/site.yml")
    succeed(lab, "shared_store", "playbooks/uninstall.yml", options=PURGE)
    assert left(before, listing(lab, PRIMARY, BACKUP, STORE)) == {PRIMARY: [], BACKUP: [], STORE: []}
    assert lab.output(STORE, "find /export | sort") == exported
    again = succeed(lab, "shared_store", "playbooks/uninstall.yml", options=PURGE)
    assert again.count("changed=0") == 2, again[-600:]


def test_a_witness_in_use_stays_and_is_removed_after_its_pair(lab: Lab) -> None:
    before = listing(lab, PRIMARY, BACKUP, STORE)
    succeed(lab, "quorum", "playbooks/witness.yml", "playbooks/site.yml")
    make_ready(lab)
    removal = ("--extra-vars", '{"broker_quorum_state": "absent", "broker_quorum_purge_data": true}')
    refused = play(lab, "quorum", "playbooks/witness.yml", options=removal)
    assert refused.code != 0
    assert "holds a lock at this witness" in refused.output, refused.output[-3000:]
    succeed(lab, "quorum", "playbooks/uninstall.yml", options=PURGE)
    succeed(lab, "quorum", "playbooks/witness.yml", options=removal)
    assert left(before, listing(lab, PRIMARY, BACKUP, STORE)) == {PRIMARY: [], BACKUP: [], STORE: []}
