# SPDX-License-Identifier: Apache-2.0
"""Which releases can be the nodes of a pair at the same time, as in a switchover; the other order does not need it.

Pure. The table of docs/operate/rolling-update.md ("From a release before 0.2.0") says the same.
"""

from __future__ import annotations

import re

LINKS: tuple[tuple[int, ...], ...] = ((0, 2, 0),)
"""First version of each generation of links after the first one; nodes link only with their own generation."""
_VERSION = re.compile(r"(\d+(?:\.\d+)*)")


def version_of(release: str) -> tuple[int, ...] | None:
    """The version in the name of a release, such as C(0.2.0-54be54c6ec03-x86_64); None if it has none."""
    found = _VERSION.match(release)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def generation_of(release: str) -> int | None:
    """The generation of links of a release; None if its version is not known."""
    version = version_of(release)
    return None if version is None else sum(version >= first for first in LINKS)


def why_not_together(present: str, wanted: str) -> str:
    """Why nodes with these releases do not link with each other; empty if they do."""
    if present == wanted:
        return ""
    generations = generation_of(present), generation_of(wanted)
    if None in generations:
        return f"it is not known whether {present or 'a release without a name'} links with {wanted or 'another one'}"
    if generations[0] != generations[1]:
        border = ".".join(map(str, LINKS[max(g for g in generations if g is not None) - 1]))
        return f"nodes of {present} and {wanted} do not link: those of {border} and later link only with each other"
    return ""
