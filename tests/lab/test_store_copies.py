"""Goal: a lost machine is replaced and a store is copied under load without the loss of a message, as ledgers prove.

Method: a replicated pair with a witness as in test_quorum.py. The store is copied while clients send; then the host of
the replica, and after that the one of the primary, loses its disks and comes back as a new machine of the same name. At
the end the copy is put back over newer data, which has to be allowed explicitly.
"""

from __future__ import annotations

import json
import re

import pytest
from understudy_lab.hosts import Lab
from understudy_lab.pair import (
    BACKUP,
    CLIENT,
    PASSWORDS,
    PRIMARY,
    UNDERSTUDY,
    UNITS,
    Load,
    assert_kept,
    await_that,
    deploy,
    longest_window_s,
    make_ready,
    messages_at,
    play,
    record,
    serves,
)

TABLE = "store_copies"
INVENTORY = "quorum"
NAMES = {PRIMARY: "a1", BACKUP: "a2"}
COPIES = "/opt/understudy/backups"
PIECE = 100_000
"""Characters of a packed directory in one command."""


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Lab:
    """The hosts with the witness and the pair deployed."""
    return deploy(lab, INVENTORY, TABLE, "playbooks/witness.yml", "playbooks/clients.yml", "playbooks/site.yml")


def judge(load: Load, row: dict[str, object]) -> None:
    """Ends a load, records its figures, and proves that nothing was lost."""
    report = load.end()
    counts = report["counts"]
    assert isinstance(counts, dict)
    kept = {name: counts[name] for name in ("confirmed", "lost", "duplicated", "unresolved")}
    record(TABLE, {**row, "window_s": longest_window_s(report), **kept})
    assert_kept(report)


def test_the_store_is_copied_under_load(pair: Lab) -> None:
    make_ready(pair)
    load = Load(pair)
    load.await_progress(500)
    played = play(pair, INVENTORY, "playbooks/backup_store.yml", options=("-e", "backup_name=monday"))
    assert played.code == 0, played.output[-3000:]
    load.await_progress(200)
    judge(load, {"play": "backup_store", "seconds": round(played.seconds, 1)})
    # the replica in sync was copied, not the active node
    made = json.loads(pair.output(BACKUP, f"cat {COPIES}/monday/a2/backup.json"))
    assert made["reader"] is None
    assert made["sequence"] > 500
    assert pair.execute(PRIMARY, f"ls {COPIES}/monday").code != 0


def test_the_store_of_the_serving_node_is_copied_while_its_replica_is_down(pair: Lab) -> None:
    active, passive = make_ready(pair)
    load = Load(pair)
    load.await_progress(500)
    pair.output(passive, f"systemctl stop {UNITS[passive]}")
    try:
        load.await_progress(200)
        played = play(pair, INVENTORY, "playbooks/backup_store.yml", options=("-e", "backup_name=serving"))
        assert played.code == 0, played.output[-3000:]
        load.await_progress(200)
    finally:
        pair.output(passive, f"systemctl start {UNITS[passive]}")
    make_ready(pair)
    judge(load, {"play": "backup_store of the serving node", "seconds": round(played.seconds, 1)})
    made = json.loads(pair.output(active, f"cat {COPIES}/serving/{NAMES[active]}/backup.json"))
    assert made["reader"], "the active node keeps its log for a named reader while it is copied"
    assert made["sequence"] > 500
    assert pair.execute(passive, f"ls {COPIES}/serving").code != 0


@pytest.mark.parametrize("lost", [BACKUP, PRIMARY], ids=["backup", "primary"])
def test_a_lost_machine_is_replaced_under_load(pair: Lab, lost: str) -> None:
    make_ready(pair)
    other = PRIMARY if lost == BACKUP else BACKUP
    load = Load(pair)
    load.await_progress(500)
    pair.replace(lost)
    await_that(lambda: serves(pair, other), "the other node serves", 60.0)
    load.await_progress(200)
    name = NAMES[lost]
    refused = play(pair, INVENTORY, "playbooks/replace_host.yml", options=("-e", f"replace_node={NAMES[other]}"))
    assert refused.code != 0
    assert "already" in refused.output or "No partner of" in refused.output
    if lost == PRIMARY:
        begun = play(pair, INVENTORY, "playbooks/site.yml")
        assert begun.code != 0
        said = re.sub(r"\\n|\s+", " ", begun.output)
        assert "a1 is a primary without a store, and a2 has a store of node" in said, begun.output[-3000:]
        assert "Run the playbook replace_host with -e replace_node=a1" in said
        assert pair.execute(lost, "ls /opt/understudy").code != 0, "nothing is installed before the refusal"
    played = play(pair, INVENTORY, "playbooks/replace_host.yml", options=("-e", f"replace_node={name}"))
    assert played.code == 0, played.output[-3000:]
    make_ready(pair)
    load.await_progress(200)
    judge(load, {"play": f"replace_host {name}", "seconds": round(played.seconds, 1)})


def carry(lab: Lab, source: str, directory: str, target: str, into: str) -> None:
    """Copies a directory of one host to another, for the user of the broker there.

    In pieces, because Linux takes no argument of a command above 128 KiB.
    """
    parent, _slash, name = directory.rpartition("/")
    packed = lab.output(source, f"cd {parent}; tar cz {name} | base64 -w0")
    lab.output(target, f"mkdir -p {into}; : >{into}/packed")
    for begin in range(0, len(packed), PIECE):
        lab.output(target, f"printf %s {packed[begin : begin + PIECE]} >>{into}/packed")
    reference = "--reference=/opt/understudy/instance/run"
    lab.output(target, f"cd {into}; base64 -d packed | tar xz; rm packed; chown -R {reference} .")


def test_a_copy_is_put_back_only_over_older_data_or_with_the_explicit_option(pair: Lab) -> None:
    active, _passive = make_ready(pair)
    assert active == PRIMARY
    pair.output(CLIENT, f"mkdir -p load; umask 077; echo {PASSWORDS['BROKER_DRILL_PASSWORD']} >load/password")
    produce = f"cd load; {UNDERSTUDY} produce --url tcp://10.77.0.12:61616 --user drill --password-file password"
    pair.output(CLIENT, f"{produce} --queue drill --count 300")
    played = play(pair, INVENTORY, "playbooks/backup_store.yml", options=("-e", "backup_name=full"))
    assert played.code == 0, played.output[-3000:]
    pair.output(CLIENT, f"{produce} --queue drill --count 200")
    assert messages_at(pair, PRIMARY) == 500
    carry(pair, BACKUP, f"{COPIES}/full/a2", PRIMARY, COPIES)
    restore = ("-e", f"restore_from={COPIES}/a2")
    refused = play(pair, INVENTORY, "playbooks/restore_store.yml", options=restore)
    assert refused.code != 0
    assert "runs; stop the pair first" in refused.output
    assert play(pair, INVENTORY, "playbooks/stop.yml").code == 0
    refused = play(pair, INVENTORY, "playbooks/restore_store.yml", options=restore)
    assert refused.code != 0
    assert "the present store is newer" in refused.output, refused.output[-3000:]
    restored = play(pair, INVENTORY, "playbooks/restore_store.yml", options=(*restore, "-e", "restore_over_newer=true"))
    assert restored.code == 0, restored.output[-3000:]
    record(TABLE, {"play": "restore_store", "seconds": round(restored.seconds, 1)})
    make_ready(pair)
    assert messages_at(pair, PRIMARY) == 300
