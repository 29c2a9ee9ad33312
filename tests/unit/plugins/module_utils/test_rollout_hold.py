"""Goal: one run of Ansible carries out a roll at a time; a run that has ended keeps no other one waiting for long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessIdentity, ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.rollout_facts import judge_holds
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    LEASE_S,
    HeldByAnother,
    Hold,
    Holder,
    HoldFile,
)
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import Refused

NOW_MS = 1_800_000_000_000
TABLE = ProcessTable()


def present() -> Holder:
    return Holder.present(TABLE, os.getpid())


def elsewhere() -> Holder:
    return Holder("other", ProcessIdentity(77, 1, "another boot"), "pid:[1]")


def ended() -> Holder:
    """A run of this machine that has ended."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:  # waits for input: alive when identified
        identity = TABLE.identify(process.pid)
        assert identity is not None
    return replace(present(), process=identity)


def node(hold: Hold, age_s: int = 5) -> dict[str, object]:
    return {"name": "a1", "live": {"rollout": {"hold": hold.as_dict(), "hold_age_s": age_s}}}


def test_a_run_takes_renews_and_releases(tmp_path: Path) -> None:
    own = present()
    HoldFile(tmp_path, NOW_MS).take("a1", {"roll": "r1"}, own, [])
    HoldFile(tmp_path, NOW_MS + 1).take("a1", {"roll": "r1"}, own, [])
    HoldFile(tmp_path, NOW_MS + 5_000).renew("a1", own)
    found = HoldFile(tmp_path, NOW_MS).read()
    assert found == Hold("r1", own, NOW_MS + 5_000)
    assert not HoldFile(tmp_path, NOW_MS).release(elsewhere())
    assert HoldFile(tmp_path, NOW_MS).release(own)
    assert HoldFile(tmp_path, NOW_MS).read() is None


def test_another_run_waits_for_the_end_or_for_the_lease(tmp_path: Path) -> None:
    HoldFile(tmp_path, NOW_MS).take("a1", {"roll": "r1"}, elsewhere(), [])
    with pytest.raises(HeldByAnother, match=r"a1 is in the roll r1, which process 77 on other carries out .* 899 s"):
        HoldFile(tmp_path, NOW_MS + (LEASE_S - 1) * 1000).take("a1", {"roll": "r2"}, present(), [])
    # a clock that was set back does not make a hold old
    with pytest.raises(HeldByAnother):
        HoldFile(tmp_path, NOW_MS - 10_000_000).take("a1", {"roll": "r2"}, present(), [])
    HoldFile(tmp_path, NOW_MS + LEASE_S * 1000).take("a1", {"roll": "r2"}, present(), [])


def test_a_run_that_was_replaced_takes_no_further_step(tmp_path: Path) -> None:
    own, hold = present(), HoldFile(tmp_path, NOW_MS)
    hold.take("a1", {"roll": "r1"}, own, [])
    seen = hold.read()
    assert seen is not None
    hold.take("a1", {"roll": "r2"}, elsewhere(), [seen])
    with pytest.raises(HeldByAnother, match="not held by this run any more but by process 77 on other"):
        hold.renew("a1", own)
    assert not hold.release(own)


def test_a_hold_that_was_renewed_after_the_plan_is_not_over(tmp_path: Path) -> None:
    hold = HoldFile(tmp_path, NOW_MS)
    hold.take("a1", {"roll": "r1"}, elsewhere(), [])
    seen = hold.read()
    assert seen is not None
    HoldFile(tmp_path, NOW_MS + 1).renew("a1", elsewhere())
    with pytest.raises(HeldByAnother):
        HoldFile(tmp_path, NOW_MS + 2).take("a1", {"roll": "r2"}, present(), [seen])


def test_a_damaged_hold_is_named(tmp_path: Path) -> None:
    (tmp_path / "rollout").mkdir()
    (tmp_path / "rollout/hold.json").touch()
    with pytest.raises(ValueError, match=r"rollout/hold.json is no hold .* then remove it"):
        HoldFile(tmp_path, NOW_MS).take("a1", {"roll": "r1"}, present(), [])


def test_of_two_runs_at_once_one_gets_the_node(tmp_path: Path) -> None:
    won: list[int] = []

    def take(number: int) -> None:
        holder = replace(elsewhere(), process=ProcessIdentity(100 + number, 1, "b"))
        try:
            HoldFile(tmp_path, NOW_MS).take("a1", {"roll": f"r{number}"}, holder, [])
            won.append(number)
        except HeldByAnother:
            pass

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_the_plan_refuses_a_roll_that_is_under_way_and_names_it() -> None:
    with pytest.raises(Refused, match="a1 is in the roll r1"):
        judge_holds([node(Hold("r1", elsewhere(), NOW_MS))], present(), TABLE, take_over=False)


@pytest.mark.parametrize(("age_s", "take_over"), [(LEASE_S, False), (0, True)])
def test_the_plan_goes_on_after_the_lease_or_when_it_is_told_to(age_s: int, take_over: bool) -> None:
    hold = Hold("r1", elsewhere(), NOW_MS)
    assert judge_holds([node(hold, age_s)], present(), TABLE, take_over=take_over) == [hold]


def test_a_run_of_this_machine_that_has_ended_is_over_at_once() -> None:
    hold = Hold("r1", ended(), NOW_MS)
    assert judge_holds([node(hold)], present(), TABLE, take_over=False) == [hold]
    # in another container the same number is another process
    other = replace(hold, holder=replace(hold.holder, namespace="pid:[1]"))
    with pytest.raises(Refused):
        judge_holds([node(other)], present(), TABLE, take_over=False)


def test_a_node_without_a_hold_and_one_of_this_run_are_free() -> None:
    nodes: list[dict[str, object]] = [
        {"name": "a"},
        {"name": "b", "live": {"unreachable": True}},
        {"name": "c", "live": {"rollout": {}}},
    ]
    assert judge_holds([*nodes, node(Hold("r", present(), NOW_MS))], present(), TABLE, take_over=False) == []


def test_the_holder_is_the_uppermost_program_of_ansible(tmp_path: Path) -> None:
    """A module runs below a worker, which is a child of the playbook's process."""
    script = tmp_path / "ansible-playbook"
    script.write_text(
        "import subprocess, sys\n"
        "if sys.argv[1:]: subprocess.run([sys.executable, __file__])\n"
        "else: print(subprocess.run(['sh', '-c', 'echo $PPID; echo $$; read x'], input=b'').stdout)\n"
    )
    command = [sys.executable, str(script), "worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        found = Holder.present(TABLE, worker)
        run.communicate(b"")
    assert found.process.pid == run.pid
