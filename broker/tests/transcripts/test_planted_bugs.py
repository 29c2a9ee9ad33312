"""A bug that is planted on purpose changes a transcript: each family can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from transcripts.script import Transcript
from transcripts.test_transcripts import DRIVERS, FILES, HERE
from understudy.ha.shared.lock_proof import LockProof
from understudy.ha.shared.policy import SharedStorePolicy
from understudy.management.doors import listing
from understudy.protocols.amqp091.channel import Amqp091Channel
from understudy.store.log.reading import end
from understudy.store.messages.message_store import MessageStore
from understudy.store.replication.shipping import Shipping

Plant = Callable[[pytest.MonkeyPatch], None]


def _confirms_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    """A node confirms on a proof of any age."""
    patch.setattr(LockProof, "why_not_confirm", lambda self: None)


def _leaves_the_store_owned(patch: pytest.MonkeyPatch) -> None:
    """A clean stop leaves L in the store, as a crash does."""
    patch.setattr(SharedStorePolicy, "_write_stopped", lambda self: None)


def _takes_damage_for_a_torn_tail(patch: pytest.MonkeyPatch) -> None:
    """A start does not look for valid records after the first bad one."""
    patch.setattr(end, "find_later_record", lambda *arguments, **options: None)


def _commits_what_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MessageStore, "store_rollback", MessageStore.store_commit)


def _writes_no_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are answered and are not in the log."""
    patch.setattr(MessageStore, "store_acknowledges", lambda self, *arguments, **options: None)


def _prepares_nothing(patch: pytest.MonkeyPatch) -> None:
    """A branch is answered as prepared, and the log does not say so."""
    patch.setattr(MessageStore, "store_prepare", lambda self, *arguments: self.last_sequence)


def _goes_on_without_asking(patch: pytest.MonkeyPatch) -> None:
    """A message that waits for a lost replica is confirmed before the lock manager has answered."""
    patch.setattr(Shipping, "stop_sending", Shipping.detach)


def _writes_numbers_as_numbers(patch: pytest.MonkeyPatch) -> None:
    """Values of pages keep their types, which consoles of Artemis do not expect."""
    patch.setattr(listing, "as_text", dict)


def _closes_before_the_answers(patch: pytest.MonkeyPatch) -> None:
    """An error of AMQP 0-9-1 closes its channel at once, before the answers that wait for the disk."""
    patch.setattr(Amqp091Channel, "_fail", Amqp091Channel.refuse)


BUGS: list[tuple[str, str, Plant]] = [
    ("amqp091", "errors-after-answers", _closes_before_the_answers),
    ("ha", "split-brain-by-pause", _confirms_without_a_lock),
    ("ha", "clean-stop", _leaves_the_store_owned),
    ("management", "pages-of-queues", _writes_numbers_as_numbers),
    ("replication", "loss-of-the-replica", _goes_on_without_asking),
    ("store", "damage-is-refused", _takes_damage_for_a_torn_tail),
    ("store", "transactions", _commits_what_is_rolled_back),
    ("session", "restart-after-acknowledgements", _writes_no_acknowledgement),
    ("session", "xa-after-a-crash", _prepares_nothing),
]


@pytest.mark.parametrize(("family", "name", "plant"), BUGS, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_bug_changes_a_transcript(
    family: str, name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="expected"):
        Transcript(HERE / family / f"{name}.txt").check(DRIVERS[family], rewrite=False)


@pytest.mark.parametrize("family", DRIVERS)
def test_each_family_has_transcripts_and_a_planted_bug(family: str) -> None:
    assert sum(path.parent.name == family for path in FILES) >= 8
    assert any(each == family for each, _, _ in BUGS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_transcript_states_its_purpose(path: Path) -> None:
    assert len(Transcript(path).purpose) > 60
