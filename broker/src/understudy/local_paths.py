"""Paths of files that users give: plain paths and ``file:`` URLs, and no URL of another scheme.

A path such as ``s3a://bucket/x`` is a valid relative path, so a program that opens it makes a directory ``s3a:``.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from understudy.errors import ConfigError

#: A scheme and a slash. One letter is no scheme.
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE: Final = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)


def local_path(text: str, what: str) -> str:
    """The path that a text names on this machine.

    Args:
        text: A path, or a ``file:`` URL of an absolute path.
        what: The option or argument, for the error.

    Raises:
        ConfigError: the text is a URL of another scheme, or of a file on another host.
    """
    url = _URL.match(text)
    if url is None:
        return text
    file = _FILE.fullmatch(text)
    if file is not None:
        return unquote(file[1])
    scheme = url[1].lower()
    if scheme == "file":
        raise ConfigError(f"{what}: {text} is no file of this host", hint="file:///DIRECTORY/NAME, or the path alone")
    raise ConfigError(
        f"{what}: {text}: files of the scheme {scheme}: are not read or written here",
        hint=f"give a path of a file system of this host; a directory of that name is ./{text}",
    )
