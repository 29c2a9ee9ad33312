"""Real nodes that find another store than the one they used: an older copy, one without its newest epochs, none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from support import forked
from support.processes import COMMAND, Node, Pair, assert_serves


def ends_with(node: Node, *texts: str) -> None:
    node.start()
    assert node.process is not None
    assert node.process.wait(60) == 1
    for text in texts:
        assert text in node.tail()


def test_an_older_copy_and_missing_epochs_are_refused_until_they_are_accepted(pair: Pair, tmp_path: Path) -> None:
    node, copy, right = pair.primary, tmp_path / "copy", tmp_path / "right"
    node.start().wait_ready("active")
    node.terminate()
    shutil.copytree(pair.store, copy)
    node.start().wait_ready("active")
    assert_serves(node)
    node.kill()
    shutil.move(pair.store, right)
    shutil.copytree(copy, pair.store)
    # by the names of the segments, before anything is opened
    ends_with(node, "store-behind", "the newest epoch in", "is 1", "epoch 2, sequence", "understudy accept-store")
    # the newest epochs deleted from the right store are the same
    shutil.rmtree(pair.store)
    shutil.copytree(right, pair.store)
    for segment in (pair.store / "journal").glob("segment-*-0000000002.log"):
        segment.unlink()
    ends_with(node, "store-behind")
    shutil.rmtree(pair.store)
    shutil.copytree(right, pair.store)
    node.start().wait_ready("active")
    node.terminate()
    shutil.rmtree(pair.store)
    shutil.copytree(copy, pair.store)
    accepted = forked.run(
        [str(COMMAND), "accept-store", "--instance", str(node.directory)], capture_output=True, text=True, timeout=60
    )
    assert accepted.returncode == 0, accepted.stderr
    assert "in the store: epoch 1," in accepted.stdout
    assert "noted before: epoch 3," in accepted.stdout
    node.start().wait_ready("active")


def test_a_store_that_is_not_mounted_is_refused_and_nothing_is_made_there(pair: Pair, tmp_path: Path) -> None:
    node = pair.primary
    pair.store.mkdir()
    for path in (pair.store / "store.json", node.config.parent / "store-seen.json"):
        path.write_text(json.dumps({"store_id": "8a6e", "cluster": "c", "pair": "p"}))
    node.start().wait_ready("active")
    node.terminate()
    shutil.move(pair.store, tmp_path / "not mounted")
    pair.store.mkdir()
    ends_with(node, "wrong-store", "store.json is missing", "uses the store 8a6e")
    assert list(pair.store.iterdir()) == []


def test_a_backup_does_not_take_over_a_store_of_another_identity(pair: Pair) -> None:
    pair.store.mkdir()
    note = json.dumps({"store_id": "8a6e", "cluster": "c", "pair": "p"})
    for path in (pair.store / "store.json", pair.backup.config.parent / "store-seen.json"):
        path.write_text(note)
    pair.start()
    (pair.store / "store.json").write_text(note.replace("8a6e", "77bb"))
    pair.primary.kill()
    assert pair.backup.process is not None
    assert pair.backup.process.wait(60) == 1
    assert "names the store 77bb" in pair.backup.tail()
