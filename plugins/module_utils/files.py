# SPDX-License-Identifier: Apache-2.0
"""Files and directories as they are on a host, and whether they are as they are wanted.

So that a step whose result is there already need not run on the host. Only for files without secrets: a digest of one
would tell a short secret.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.generations import STAGED_SUFFIX


def describe(path: Path) -> dict[str, object] | None:
    """A file or a directory; None if there is none, or it is something else or cannot be read.

    Returns:
        ``sha256`` of the content, empty for a directory; ``mode``, four octal digits; ``owner`` and ``group``, their
        names, or their numbers if they have none; ``staged``: whether another content waits beside it.
    """
    try:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            digest = ""
        elif stat.S_ISREG(status.st_mode):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            return None
    except OSError:
        return None
    return {
        "sha256": digest,
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "owner": _name(status.st_uid, lambda number: pwd.getpwuid(number).pw_name),
        "group": _name(status.st_gid, lambda number: grp.getgrgid(number).gr_name),
        "staged": os.path.lexists(f"{path}{STAGED_SUFFIX}"),
    }


def in_place(wanted: Iterable[Mapping[str, object]], found: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether all files and directories are as wanted.

    Args:
        wanted: Each with ``path`` and ``mode``, ``content`` if it is a file, and ``owner`` and ``group`` unless they do
            not matter.
        found: What ``describe`` returned, by path.
    """
    return all(_is_as_wanted(each, found.get(str(each["path"]), {})) for each in wanted)


def _is_as_wanted(wanted: Mapping[str, object], found: Mapping[str, object]) -> bool:
    if not found or found["staged"] or int(str(wanted["mode"]), 8) != int(str(found["mode"]), 8):
        return False
    content = wanted.get("content")
    digest = "" if content is None else hashlib.sha256(str(content).encode()).hexdigest()
    return found["sha256"] == digest and all(
        str(wanted.get(key) or found[key]) == found[key] for key in ("owner", "group")
    )


def _name(number: int, find: Callable[[int], str]) -> str:
    try:
        return find(number)
    except KeyError:
        return str(number)
