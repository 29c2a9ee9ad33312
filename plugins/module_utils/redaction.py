"""Takes secrets out of configuration text before it is shown, in a diff or anywhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from xml.sax.saxutils import escape

MASK = "********"
_SECRET_ELEMENT = re.compile(r"<([A-Za-z-]*(?:password|secret|token)[A-Za-z-]*)(\s[^<>]*)?>[^<]*</\1>")


def spellings(secrets: Iterable[str]) -> set[str]:
    """Each secret as it is, and as it looks inside XML and JSON."""
    found: set[str] = set()
    for secret in secrets:
        if secret:
            found |= {secret, escape(secret), escape(secret, {'"': "&quot;"}), json.dumps(secret)[1:-1]}
    return found


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the given secrets, and without the content of every element named like one.

    The second covers the secrets of a former file, which the caller does not know.
    """
    for spelling in sorted(spellings(secrets), key=len, reverse=True):
        text = text.replace(spelling, MASK)
    return _SECRET_ELEMENT.sub(lambda match: f"<{match[1]}{match[2] or ''}>{MASK}</{match[1]}>", text)
