"""Client URLs by name: the connection factories in the text of a file ``jndi.properties`` (ADR 0192).

Clients of JMS read the same file. Not here: the file itself (``client.profiles``), and the URL (``parsing``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Final

from understudy.errors import ConfigError

#: Prefix of the keys of connection factories.
_FACTORY: Final = "connectionFactory."
#: Prefix of names that only applications inside an application server look up.
_EXPORTED: Final = "java:jboss/exported/"
_COMMENT: Final = ("#", "!")
_PAIR: Final = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*(?:[=:]\s*)?(?P<value>.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<character>.))", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def named_url(text: str, name: str, file: str) -> str:
    """The client URL of a connection factory.

    Args:
        text: Text of a file of properties.
        name: Name of the factory, as in the file, or with the prefix that names have inside an application server.
        file: Name of the file, for messages.

    Raises:
        ConfigError: the text has no connection factory of this name.
    """
    found = dict(_factories(text))
    wanted = name.removeprefix(_EXPORTED)
    if wanted not in found:
        near = difflib.get_close_matches(wanted, found, n=1, cutoff=0.0)
        hint = f"the nearest name is {near[0]!r}" if near else f"it has no key that begins with {_FACTORY}"
        raise ConfigError(f"there is no connection factory {name!r}", file=file, hint=hint)
    return found[wanted]


def _factories(text: str) -> Iterator[tuple[str, str]]:
    """Names of connection factories with their URLs."""
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        assert match is not None, "every part of the pattern may be empty"
        key = _unescaped(match["key"])
        if key.startswith(_FACTORY):
            yield key.removeprefix(_FACTORY), _unescaped(match["value"]).strip()


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; one that ends with an odd number of backslashes goes on in the next one."""
    held = ""
    for each in re.split(r"\r\n|\r|\n", text):
        line = each.lstrip(" \t\f")
        if not held and (not line or line.startswith(_COMMENT)):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held += line[:-1]
            continue
        yield held + line
        held = ""
    if held:
        yield held


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match["code"] is not None:
            return chr(int(match["code"], 16))
        return _CONTROLS.get(match["character"], match["character"])

    return _ESCAPE.sub(character, text)
