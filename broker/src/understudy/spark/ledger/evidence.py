"""A report that shows changes: JSON lines, each with the hash of the line before.

The first line names the inputs with their sizes and SHA-256, the last one the verdict and the number of lines. The hash
of the last line identifies the whole report: written down elsewhere (a ticket, a message), it proves that nothing was
changed, left out or put in. It is no signature: it does not show who made the report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from understudy.errors import ConfigError

#: Written in the first line.
FORMAT: Final = "understudy audit 1"
_READ_BYTES: Final = 1024 * 1024


def describe_input(path: Path) -> dict[str, object]:
    """Name, size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return {"file": str(path), "size": path.stat().st_size, "sha256": digest.hexdigest()}


def sections_of(report: Mapping[str, Any]) -> list[tuple[str, object]]:
    """A report as sections: one for each finding, and the rest by name."""
    found: list[tuple[str, object]] = []
    for name, value in report.items():
        if isinstance(value, list):
            found += [(name, each) for each in value] or [(name, None)]
        else:
            found.append((name, value))
    return found


def chain(inputs: Sequence[Mapping[str, object]], sections: Iterable[tuple[str, object]], verdict: str) -> list[str]:
    """The lines of a report."""
    entries: list[tuple[str, object]] = [("report", {"format": FORMAT, "inputs": list(inputs)}), *sections]
    entries.append(("verdict", {"verdict": verdict, "lines": len(entries) + 1}))
    lines, before = [], ""
    for number, (section, content) in enumerate(entries, 1):
        body = {"line": number, "section": section, "content": content, "previous": before}
        before = _hash(body)
        lines.append(json.dumps(body | {"hash": before}, sort_keys=True))
    return lines


def _hash(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def verify(path: Path) -> str:
    """Check a report; the hash of its last line.

    Raises:
        ConfigError: a line was changed, left out or put in, or the end is missing; names the line.
    """
    before, number, last = "", 0, {}
    with path.open(encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            try:
                last = json.loads(text)
                claimed = last.pop("hash")
            except (ValueError, KeyError, AttributeError, TypeError):
                raise ConfigError("no line of a report", file=str(path), line=number) from None
            if last.get("line") != number or last.get("previous") != before or _hash(last) != claimed:
                raise ConfigError("the report was changed in or before this line", file=str(path), line=number)
            before = claimed
    content = last.get("content")
    if last.get("section") != "verdict" or not isinstance(content, dict) or content.get("lines") != number:
        raise ConfigError("the end of the report is missing", file=str(path), line=number or 1)
    return before
