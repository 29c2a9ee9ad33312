# SPDX-License-Identifier: Apache-2.0
"""Files of a host as the playbook ``render`` writes them on the controller, with or without their secrets.

Pure: no Ansible, no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.understudy.broker.plugins.module_utils.redaction import MASK, redact

LISTING = "files.txt"
"""Name of the list of the files, beside them."""
MADE_ON_HOST = "made on the host by the first deployment, and kept there\n"
"""Stands for a random content, which is another one at each evaluation."""
HEAD = "# mode owner:group path; no name stands for the user whom Ansible connects as, or root\n"


@dataclass(frozen=True)
class Rendered:
    """A file below the directory of its host."""

    path: str
    content: str

    @property
    def directory(self) -> str:
        """Empty for the directory of the host itself."""
        return self.path.rpartition("/")[0]


def rendered(files: Iterable[Mapping[str, object]], *, secrets: bool) -> list[Rendered]:
    """The files and a list of them, which has the mode and the owner of each.

    Args:
        files: entries with ``path``, ``content`` and ``mode``, and with ``owner``, ``group``, ``secret``, ``secrets``
            and ``keep`` where they have them.
        secrets: whether passwords, keys and tokens are written.

    Raises:
        ValueError: two files with the same path, or a path that is not absolute.
    """
    found: dict[str, Rendered] = {}
    lines: list[str] = []
    for file in files:
        path = str(file["path"])
        if not path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path} is not an absolute path")
        if path in found:
            raise ValueError(f"{path} is given twice")
        found[path] = Rendered(path.lstrip("/"), _content(file, secrets=secrets))
        lines.append(f"{file['mode']} {file.get('owner') or ''}:{file.get('group') or ''} {path}\n")
    return [*found.values(), Rendered(LISTING, HEAD + "".join(sorted(lines, key=lambda line: line.split(" ", 2)[2])))]


def _content(file: Mapping[str, object], *, secrets: bool) -> str:
    if file.get("keep"):
        return MADE_ON_HOST
    text = str(file["content"])
    if secrets:
        return text
    if file.get("secret"):
        return f"{MASK}\n"
    given = file.get("secrets") or ()
    return redact(text, [str(each) for each in given] if isinstance(given, (list, tuple)) else [])
