# SPDX-License-Identifier: Apache-2.0
"""Release and configuration of one instance as a whole: staged, saved before a roll, and put back.

``rollout/`` in the instance directory belongs to root alone. ``aside`` has the release and configuration from before
the roll that runs now, ``before`` those from before the last roll that ended well. Users and roles come with an update,
and go back when its wave is restored; a rollback leaves them alone, because it must not bring back a password that was
withdrawn. Certificates are no part of it: the playbook ``rotate_tls`` replaces them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.process import read_record
from ansible_collections.understudy.broker.plugins.module_utils.releases import ReleaseError, Releases
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import RESTART, UPDATE, Saved
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Event, Phase, Record, step

STAGED_SUFFIX = ".staged"
"""The module ``configuration`` writes a checked file with this suffix beside one that it may not replace."""
FILES = ("broker.xml", "service.json", "witness-secret", "management.token")
"""Files of ``etc`` that a broker reads at its start only."""
LIVE_FILES = ("artemis-users.properties", "artemis-roles.properties")
"""Files of ``etc`` that a running broker reads at once when they change."""
UNITS = Path("/etc/systemd/system")
FACTS = "generation.json"


class GenerationError(Exception):
    """A release or file cannot be put in place; the message names it."""


@dataclass(frozen=True)
class Generations:
    """The generations of one instance.

    Args:
        instance: its directory.
        releases: the releases of the host.
        unit: path of its systemd unit; None for a supervised process.
    """

    instance: Path
    releases: Releases
    unit: Path | None = None

    @property
    def directory(self) -> Path:
        return self.instance / "rollout"

    @property
    def record_file(self) -> Path:
        return self.directory / "record.json"

    @property
    def aside(self) -> Path:
        return self.directory / "aside"

    @property
    def before(self) -> Path:
        return self.directory / "before"

    def _files(self, *, live: bool = True) -> list[Path]:
        names = (*FILES, *LIVE_FILES) if live else FILES
        return [*(self.instance / "etc" / name for name in names), *([self.unit] if self.unit is not None else [])]

    def staged(self) -> list[Path]:
        """Staged files, by the path that they are for."""
        return [path for path in self._files() if _staged(path).exists()]

    def unstage(self) -> None:
        """Remove staged files."""
        for path in self.staged():
            _staged(path).unlink()

    def save(self, roll: str) -> None:
        """Keep the present release and configuration as ``aside``, in one step."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        fresh = self.directory / ".aside.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        for path in self._files():
            if path.exists():
                _copy(path, fresh / path.name)
        _write_facts(fresh, Saved(roll, self.releases.current(), spent=False))
        shutil.rmtree(self.aside, ignore_errors=True)
        os.replace(fresh, self.aside)

    def keep(self) -> None:
        """``aside`` becomes ``before``, because the roll has ended well."""
        if self.aside.exists():
            shutil.rmtree(self.before, ignore_errors=True)
            os.replace(self.aside, self.before)

    def reopen(self, roll: str) -> None:
        """``before`` of this roll becomes ``aside`` again, because another node of its wave failed after this one."""
        facts = self.facts(self.before)
        if facts is not None and facts.roll == roll and not self.aside.exists():
            os.replace(self.before, self.aside)

    def spend(self, undone: str) -> None:
        """Note that a rollback has undone this roll, so that another rollback does not go further back."""
        facts = self.facts(self.before)
        if facts is not None and facts.roll == undone:
            _write_facts(self.before, replace(facts, spent=True))
        self.discard()

    def discard(self) -> None:
        """Remove ``aside``."""
        shutil.rmtree(self.aside, ignore_errors=True)

    def saved(self) -> Saved | None:
        """The generation that a rollback would put in place: of an unfinished update, else of the last roll."""
        record = Record.read(self.record_file)
        unfinished = record is not None and record.unfinished and record.kind == UPDATE
        return (self.facts(self.aside) if unfinished else None) or self.facts(self.before)

    def to_undo(self, roll: str, undone: str) -> Path | None:
        """The generation that a rollback puts in place on this host; None if the undone roll did not change the host.

        Args:
            roll: the rollback.
            undone: the roll that it undoes.
        """
        aside, before = self.facts(self.aside), self.facts(self.before)
        if aside is not None and aside.roll != roll:
            return self.aside
        return self.before if before is not None and before.roll == undone and not before.spent else None

    def facts(self, generation: Path) -> Saved | None:
        """Roll and release of a saved generation; None if there is none."""
        found = read_record(generation / FACTS)
        if not found:
            return None
        return Saved(str(found.get("roll")), str(found.get("release")), spent=found.get("spent") is True)

    def apply_staged(self, release: str) -> list[Path]:
        """Put the staged files in place and switch to the release; the files replaced.

        Raises:
            GenerationError: the release is not installed.
        """
        self._switch(release)
        replaced = self.staged()
        for path in replaced:
            os.replace(_staged(path), path)
        return replaced

    def put_back(self, generation: Path, *, live: bool) -> list[Path]:
        """Put a saved generation in place; the files replaced.

        Args:
            generation: ``aside`` or ``before``.
            live: Whether users and roles go back as well.

        Raises:
            GenerationError: there is none, or its release is not installed any more.
        """
        facts = self.facts(generation)
        if facts is None:
            raise GenerationError(f"{generation} holds no saved release and configuration")
        self._switch(facts.release)
        replaced = []
        for path in self._files(live=live):
            saved = generation / path.name
            if not saved.exists():
                if path.exists() and path.name not in LIVE_FILES:
                    path.unlink()
                    replaced.append(path)
            elif not path.exists() or path.read_bytes() != saved.read_bytes():
                fresh = path.with_name(f".{path.name}.restored")
                _copy(saved, fresh)
                os.replace(fresh, path)
                replaced.append(path)
            _staged(path).unlink(missing_ok=True)
        return replaced

    def _switch(self, release: str) -> None:
        if not release or self.releases.current() == release:
            return
        try:
            self.releases.switch(release)
        except ReleaseError as error:
            raise GenerationError(str(error)) from error


def begin(generations: Generations, wanted: Record, *, running: bool) -> Record:
    """The record of a node at the begin of its wave; saves the present generation unless the roll is resumed.

    Args:
        generations: of the instance.
        wanted: roll, kind, target, wave and role of the node; its phase is not looked at.
        running: whether the broker runs.
    """
    known = Record.read(generations.record_file)
    if known is not None and known.unfinished:
        phase = known.phase
        if known.aim != wanted.aim:
            phase = step(phase, Event.SUPERSEDE)
        phase = step(phase, Event.FOUND_RUNNING if running else Event.FOUND_DOWN)
        return replace(wanted, phase=step(phase, Event.BEGIN))
    if wanted.kind != RESTART:
        generations.save(wanted.roll)
    return replace(wanted, phase=step(Phase.IDLE if known is None else known.phase, Event.BEGIN))


def _staged(path: Path) -> Path:
    return path.with_name(path.name + STAGED_SUFFIX)


def _copy(source: Path, target: Path) -> None:
    """Copy content, mode and owner; at no moment may more users read it than the source."""
    target.unlink(missing_ok=True)
    status = source.stat()
    with open(target, "xb", opener=_private) as copy:
        copy.write(source.read_bytes())
        if os.geteuid() == 0:
            os.fchown(copy.fileno(), status.st_uid, status.st_gid)
        os.fchmod(copy.fileno(), status.st_mode & 0o7777)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_facts(generation: Path, facts: Saved) -> None:
    content = {"roll": facts.roll, "release": facts.release, "spent": facts.spent}
    fresh = generation / f".{FACTS}.new"
    fresh.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(fresh, generation / FACTS)


def needs_daemon_reload(replaced: Iterable[Path]) -> bool:
    """Whether systemd has to read a unit again."""
    return any(path.parent == UNITS for path in replaced)
