"""Processes of this machine that use a store, also without its lock: nodes of a replicated pair with a lock manager.

Read from ``/proc``, which shows the files of the processes of the own user, or of all to root.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from understudy.errors import DiskFailed

_PROCESSES: Final = Path("/proc")
_ACCESS_MODE: Final = os.O_ACCMODE


def refuse_running(directory: str, processes: Path = _PROCESSES) -> None:
    """Refuse a store that another process uses.

    Args:
        directory: Of the log.
        processes: The directory ``/proc``.

    Raises:
        DiskFailed: a process has a file of it open for writing, or runs an instance whose broker.xml names it.
    """
    for entry in processes.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            for target in _written(entry):
                if _is_below(target, directory):
                    raise DiskFailed(
                        f"{directory}: process {entry.name} writes {Path(target).name} of this store",
                        hint="stop the node first, and do not start it before the command has ended",
                    )
                if _runs(target, directory):
                    instance = Path(target).parent.parent
                    raise DiskFailed(
                        f"{directory}: process {entry.name} runs the instance {instance} with this store",
                        hint="stop the node first, and do not start it before the command has ended",
                    )


def _written(process: Path) -> Iterator[str]:
    """Files that a process has open for writing; none if it has ended or belongs to another user."""
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return
    for descriptor in descriptors:
        try:
            information = (process / "fdinfo" / descriptor.name).read_text(encoding="ascii")
            target = str(descriptor.readlink())
        except OSError:
            continue
        flags = next((line.split()[1] for line in information.splitlines() if line.startswith("flags:")), "0")
        if int(flags, 8) & _ACCESS_MODE != os.O_RDONLY:
            yield target


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(f"{directory.rstrip('/')}/")


def _runs(target: str, directory: str) -> bool:
    """Whether the file is the lock of an instance (``runtime/instance_lock.py``) that is configured with the store."""
    lock = Path(target)
    if (lock.parent.name, lock.name) != ("run", "lock"):
        return False
    try:
        text = (lock.parent.parent / "etc" / "broker.xml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return f">{directory}<" in text
