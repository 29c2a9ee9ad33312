"""The process that a recorded pid stands for, and signals that reach that process only.

A pid alone is recycled by the kernel; a pid with its start time and the boot it was started in is not. Every signal
goes through a pidfd opened *before* the start time is compared, so the process cannot be exchanged in between.
Processes are never looked up by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """Identity of one process: its pid, its start in clock ticks since boot, and the boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def from_record(cls, record: object) -> ProcessIdentity | None:
        """The identity written by the supervisor, or None if the record holds none."""
        if not isinstance(record, Mapping):
            return None
        pid, start_ticks, boot_id = record.get("pid"), record.get("start_ticks"), record.get("boot_id")
        if isinstance(pid, int) and isinstance(start_ticks, int) and isinstance(boot_id, str) and pid > 1:
            return cls(pid, start_ticks, boot_id)
        return None


@dataclass(frozen=True)
class ProcessTable:
    """The processes of this machine, read from ``/proc`` (another directory in tests)."""

    root: Path = Path("/proc")

    def boot_id(self) -> str:
        return (self.root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def identify(self, pid: int) -> ProcessIdentity | None:
        """The process with this pid now; None if there is none, or only a zombie."""
        try:
            start_ticks, state = parse_stat((self.root / str(pid) / "stat").read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if state in ("Z", "X") else ProcessIdentity(pid, start_ticks, self.boot_id())

    def is_alive(self, identity: ProcessIdentity | None) -> bool:
        return identity is not None and self.identify(identity.pid) == identity

    def is_owned_by(self, identity: ProcessIdentity, user_id: int) -> bool:
        """Whether the process runs as this user; False if it is gone."""
        try:
            return (self.root / str(identity.pid)).stat().st_uid == user_id
        except FileNotFoundError:
            return False

    def send(self, identity: ProcessIdentity, signal_number: signal.Signals) -> bool:
        """Signal exactly this process; False if it is gone."""
        try:
            descriptor = os.pidfd_open(identity.pid)
        except ProcessLookupError:
            return False
        try:
            if not self.is_alive(identity):
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal_number)
                return True
            return False
        finally:
            os.close(descriptor)


def parse_stat(data: bytes) -> tuple[int, str]:
    """Start time in ticks and the state letter of a ``/proc/PID/stat`` line.

    The command name stands in parentheses and may itself hold spaces and parentheses, so counting starts after the
    last one (proc(5), fields 3 and 22).
    """
    fields = data[data.rindex(b")") + 1 :].split()
    return int(fields[19]), fields[0].decode("ascii")


def read_record(path: Path) -> dict[str, object]:
    """A small JSON object of ours, or an empty one if the file is missing or cut short."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Replace a small JSON object of ours in one step, and have it on the disk before this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "w", encoding="utf-8") as target:
        json.dump(record, target, indent=1, sort_keys=True)
        target.write("\n")
        target.flush()
        os.fsync(target.fileno())
    os.replace(fresh, path)
    # With the files of the directory that were moved before, if they are on the same file system.
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
