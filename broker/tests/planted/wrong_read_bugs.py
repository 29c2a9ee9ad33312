"""Planted bugs of a pair whose disks return wrong bytes: checks that are left out, right bytes that are replaced."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from planted.planting import Patch, planted
from understudy.ports import FileReader
from understudy.store.file_checks import Condition
from understudy.store.repair import Answer
from understudy.store.replication import copy_target
from understudy.store.replication.conditions import FileConditions, Key
from understudy.store.replication.copy_messages import CheckFile, Directory, Piece
from understudy.store.replication.copy_source import CopySource
from understudy.store.replication.copy_target import CopyTarget
from understudy.store.replication.fetching import Asker
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.wrong_reads_pair import CopiedRun, DamagedFilesRun, UnscrubbedRun

_SCENARIO: Final = "wrong-reads"
_EQUAL: Final = "a replica in sync has the files of its active node"
_KEPT: Final = "bytes that fit their checksum are not replaced by bytes that do not"


@planted("file-not-checked-on-send", promise=_KEPT, checks=["copy"], elsewhere={_SCENARIO: range(3)})
def _file_not_checked_on_send(patch: Patch) -> type[ScenarioRun]:
    """An active node sends its files to a replica without a look at their checksums."""

    def look(
        self: FileConditions, file: FileReader, key: Key, *, past_cache: bool
    ) -> Generator[int, None, tuple[Condition, bytes]]:
        _, digest = yield from old(self, file, key, past_cache=past_cache)
        return Condition.FITS, digest

    old = patch.replace(FileConditions, "look", look)
    return CopiedRun


@planted("file-not-checked-on-receipt", promise=_EQUAL, checks=["copy"], elsewhere={_SCENARIO: range(3)})
def _file_not_checked_on_receipt(patch: Patch) -> type[ScenarioRun]:
    """A replica does not compare the files that it has written, and its disk changes a bit of some."""
    count = 0

    def write(self: CopyTarget, message: Piece) -> None:
        nonlocal count
        count += message.directory is Directory.BODIES
        if message.directory is Directory.BODIES and count % 3 == 0:
            message = Piece(message.directory, message.name, message.offset, message.data[:-1] + b"\xff")
        old(self, message)

    execute = copy_target._EXECUTE
    old = execute[Piece]
    unchecked = {**execute, Piece: write, CheckFile: lambda self, message: None}
    patch.replace(copy_target, "_EXECUTE", unchecked)
    return CopiedRun


@planted("wrong-body-replaces-right-one", promise=_KEPT, checks=["quarantine"], elsewhere={_SCENARIO: range(4, 8)})
def _wrong_body_replaces_right_one(patch: Patch) -> type[ScenarioRun]:
    """The active node never takes the bytes of its replica, and sends its own whatever they are."""

    def repair_nothing(self: CopySource, *arguments: Any, **options: Any) -> Generator[int, None, None]:
        yield 0

    patch.replace(CopySource, "_repair", repair_nothing)
    return UnscrubbedRun


@planted("quarantined-without-the-replica", promise="a message that the other node has is delivered",
         checks=["quarantine"], elsewhere={_SCENARIO: range(5, 9)})  # fmt: skip
def _quarantined_without_the_replica(patch: Patch) -> type[ScenarioRun]:
    """A damaged message goes to the quarantine although the replica has it."""
    patch.replace(Asker, "ask", lambda self, wanted, answered: answered(Answer(0, b"")))
    return DamagedFilesRun
