"""Stores of a real replicated pair are copied while it serves, and put back.

Goal: a copy has every message that was confirmed before it began; a restore over newer data is refused; after one with
the explicit option both nodes have the messages of the copy, and the newer ones are in ``oldreplica.N``.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import forked
from support.processes import COMMAND, Node
from support.replicated import ReplicatedPair, consume, produce, property_of, wait_in_sync, wait_logged
from support.witnesses import WitnessProcess

LARGE_BYTES = 300_000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ReplicatedPair]:
    """A pair in sync, with a witness that notes the position of its store."""
    witness = WitnessProcess(tmp_path)
    witness.start("--lease-max-ms", "2000")
    properties = (("addresses", witness.address), ("secret-file", witness.secret), ("lease-ms", 2_000))
    values = "".join(property_of(key, value) for key, value in properties)
    made = ReplicatedPair(tmp_path, manager=f"<class-name>witness</class-name><properties>{values}</properties>")
    try:
        made.start()
        yield made
    finally:
        made.end()
        witness.end(signal.SIGKILL)


def data(*arguments: object, code: int = 0) -> Any:
    """``understudy data``; its JSON, or its error output if it is to fail."""
    words = [str(each) for each in (COMMAND, "data", *arguments, "--json")]
    done = forked.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else json.loads(done.stdout)


def verified(directory: Path) -> int:
    """Messages in the journal of a copy, all of whose bytes are right."""
    found = data("verify", directory)
    assert found["problems"] == []
    return int(found["live_messages"])


def stop(*nodes: Node) -> None:
    for node in nodes:
        node.terminate()


def test_a_store_is_copied_while_it_serves_and_restored(pair: ReplicatedPair, tmp_path: Path) -> None:
    primary, backup, copy = pair.primary, pair.backup, tmp_path / "copies" / "monday"
    produce(pair.url, 150)
    produce(pair.url, 5, size=LARGE_BYTES)
    made = data("backup", "--instance", primary.directory, "--to", copy)
    assert (made["messages"], made["reader"], made["bodies"]) == (155, "backup", 5)
    assert verified(copy / "journal") == 155
    # the passive node has the same, and needs no reader
    other = data("backup", "--instance", backup.directory, "--to", tmp_path / "copies" / "of-the-backup")
    assert (other["messages"], other["reader"], other["node_id"]) == (155, None, made["node_id"])
    produce(pair.url, 100)

    assert "the instance runs already: process" in data(
        "restore", "--instance", primary.directory, "--from", copy, "--over-newer", code=1
    )
    stop(backup, primary)
    refused = data("restore", "--instance", primary.directory, "--from", copy, code=1)
    assert "the present store is newer" in refused
    assert "100 messages" in refused
    done = data("restore", "--instance", primary.directory, "--from", copy, "--over-newer")
    assert (done["sequence"], done["set_aside"]) == (made["sequence"], 1)
    assert data("set-aside", "--instance", backup.directory)["set_aside"] == 1

    primary.start().wait_ready("active")
    backup.start()
    wait_in_sync(primary, backup)
    consume(pair.url, 155)
    assert verified(primary.directory / "data" / "journal" / "oldreplica.1") == 255


def test_a_lost_store_is_restored_without_an_option(pair: ReplicatedPair, tmp_path: Path) -> None:
    """The copy was made of the stopped node, so neither the note of the node nor that of the witness is newer."""
    primary, backup, copy = pair.primary, pair.backup, tmp_path / "copy"
    produce(pair.url, 50)
    stop(backup, primary)
    made = data("backup", "--instance", primary.directory, "--to", copy)
    assert (made["messages"], made["reader"]) == (50, None)
    for path in (primary.directory / "data" / "journal").glob("s*-*"):
        path.unlink()
    data("restore", "--instance", primary.directory, "--from", copy)
    primary.start().wait_ready("active")
    backup.start()
    wait_logged(primary, "replica in sync", 2)
    consume(pair.url, 50)


def test_a_primary_that_has_lost_all_its_files_copies_them_before_it_activates(pair: ReplicatedPair) -> None:
    """A primary without a store would begin a new node beside the backup that serves."""
    primary, backup = pair.primary, pair.backup
    produce(pair.url, 100)
    node_id = primary.facts()["node_id"]
    primary.kill()
    backup.wait_ready("active")
    shutil.rmtree(primary.directory / "data")
    done = data("set-aside", "--instance", primary.directory, "--copy-of", node_id)
    assert done == {"set_aside": None, "copy_of": node_id}
    primary.start()
    wait_in_sync(backup, primary)
    primary.wait_ready("passive")
    assert primary.facts()["node_id"] == backup.facts()["node_id"] == node_id
    backup.kill()
    primary.wait_ready("active")
    consume(pair.url, 100)


def test_a_node_id_that_is_none_is_refused(pair: ReplicatedPair) -> None:
    assert "'east' is no UUID" in data("set-aside", "--instance", pair.primary.directory, "--copy-of", "east", code=2)


def test_an_older_copy_is_refused_where_only_the_note_of_the_node_is_newer(
    pair: ReplicatedPair, tmp_path: Path
) -> None:
    primary, backup, copy = pair.primary, pair.backup, tmp_path / "copy"
    produce(pair.url, 50)
    data("backup", "--instance", primary.directory, "--to", copy)
    produce(pair.url, 50)
    stop(backup, primary)
    for path in (primary.directory / "data" / "journal").glob("s*-*"):
        path.unlink()
    assert "has used a newer store" in data("restore", "--instance", primary.directory, "--from", copy, code=1)


def test_a_backup_that_was_killed_leaves_a_reader_that_is_named(pair: ReplicatedPair, tmp_path: Path) -> None:
    primary = pair.primary
    words = [str(COMMAND), "reader", "register", "backup", "--instance", str(primary.directory)]
    forked.run(words, check=True, capture_output=True, timeout=60)
    produce(pair.url, 10)
    refused = data("backup", "--instance", primary.directory, "--to", tmp_path / "copy", code=1)
    assert "understudy reader drop backup" in refused
    made = data("backup", "--instance", primary.directory, "--to", tmp_path / "copy", "--reader", "second")
    assert made["messages"] == 10
    listed = forked.run(
        [str(COMMAND), "reader", "list", "--instance", str(primary.directory), "--json"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert [each["name"] for each in json.loads(listed.stdout)["readers"]] == ["backup"]


def test_an_incomplete_copy_and_a_used_directory_are_refused(pair: ReplicatedPair, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    produce(pair.url, 10)
    data("backup", "--instance", pair.primary.directory, "--to", copy)
    assert "is not empty" in data("backup", "--instance", pair.primary.directory, "--to", copy, code=2)
    (copy / "backup.json").unlink()
    assert "no complete copy" in data("restore", "--instance", pair.primary.directory, "--from", copy, code=1)
