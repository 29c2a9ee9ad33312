"""Which mount a path is on, from the text of ``/proc/self/mountinfo`` (proc(5)). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath

MOUNTINFO = "/proc/self/mountinfo"
ROOT = "/"
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system."""

    point: str
    """Where it is mounted."""
    kind: str
    """Type of the file system, such as ``nfs4``."""
    source: str
    """What is mounted: a device, or ``server:/path``."""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> Mount:
        """The inverse of ``as_dict``.

        Raises:
            KeyError: the record is none.
        """
        return cls(str(record["point"]), str(record["kind"]), str(record["source"]))

    def __str__(self) -> str:
        return f"{self.source} ({self.kind}) on {self.point}"


def read_mounts(text: str) -> list[Mount]:
    """Every mount, in the order in which they were made; lines that are none are passed over."""
    mounts = []
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if separator and len(left) >= 6 and len(right) >= 2:
            mounts.append(Mount(_plain(left[4]), right[0], _plain(right[1])))
    return mounts


def _plain(text: str) -> str:
    """Blanks and backslashes stand as three octal digits."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """The mount that an absolute path without links is on; of several on one point, the last one.

    Raises:
        ValueError: no mount contains the path.
    """
    wanted = PurePosixPath(path)
    best: Mount | None = None
    for mount in mounts:
        if wanted.is_relative_to(mount.point) and (best is None or depth(mount.point) >= depth(best.point)):
            best = mount
    if best is None:
        raise ValueError(f"{path} is on no mounted file system")
    return best


def depth(path: str) -> int:
    """Number of parts of an absolute path; 1 for the root."""
    return len(PurePosixPath(path).parts)
