"""Takes secrets out of configuration text before it is shown, in a diff or anywhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import quote
from xml.sax.saxutils import escape

MASK = "********"
_NAME = r"[A-Za-z_.-]*(?:password|passwd|passphrase|secret|token)[A-Za-z_.-]*"
SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
"""Names of elements, attributes and URL parameters whose value is a secret."""
SECRET_PARAMETER = re.compile(rf"([?&;])({_NAME})=([^&;\"'<>\s]+)", re.IGNORECASE)
"""A parameter with a secret in a URL: separator, name, value."""
_SECRET_ELEMENT = re.compile(rf"<({_NAME})(\s[^<>]*)?>[^<]*</\1>", re.IGNORECASE)
_HASH = re.compile(r"ENC\([^()<>\"]*\)")
"""A hashed or masked password, in a user store or in a configuration."""
_SECRET_ATTRIBUTE = re.compile(rf"(\s{_NAME})=\"[^\"<>]*\"", re.IGNORECASE)
_SECRET_PROPERTY = re.compile(rf'(<property\s+key="(?:{_NAME}|auth)"\s+value=)"[^"<>]*"', re.IGNORECASE)


def spellings(secrets: Iterable[str]) -> set[str]:
    """Each secret as it is, and as it looks inside XML, JSON and URLs."""
    found: set[str] = set()
    for secret in secrets:
        if secret:
            found |= {secret, escape(secret), escape(secret, {'"': "&quot;"}), json.dumps(secret)[1:-1]}
            found |= {quote(secret), quote(secret, safe="/,:${}")}
    return found


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the given secrets, and without the value of every element, attribute and URL parameter named
    like one.

    The second covers the secrets of a former file, which the caller does not know.
    """
    for spelling in sorted(spellings(secrets), key=len, reverse=True):
        text = text.replace(spelling, MASK)
    text = _SECRET_ELEMENT.sub(lambda match: f"<{match[1]}{match[2] or ''}>{MASK}</{match[1]}>", text)
    text = _SECRET_ATTRIBUTE.sub(lambda match: f'{match[1]}="{MASK}"', text)
    text = _HASH.sub(f"ENC({MASK})", text)
    text = _SECRET_PROPERTY.sub(lambda match: f'{match[1]}"{MASK}"', text)
    # In XML the separator may be spelt &amp;, of which the last character is matched.
    return SECRET_PARAMETER.sub(lambda match: f"{match[1]}{match[2]}={MASK}", text)
