"""Texts for people: names of clients without control characters, URLs without their secrets.

A name of a queue, message property, client or host can hold any character. On a terminal a control character moves the
cursor, changes the title or hides a line; a character that changes the direction of writing makes a name look like
another one.
"""

from __future__ import annotations

import re
from typing import Final

_REPLACEMENT: Final = "\ufffd"
#: From ``://`` to the last ``@`` before the path or query of one URL. A question mark belongs to a password if no ``=``
#: follows it before the ``@``.
_LOGIN: Final = re.compile(r"://(?:(?!://)[^\s?])*(?:\?[^\s=?&;@]*)?@")
#: A parameter that holds a password, and its value: to the next parameter (a part without ``=`` is none), to the end
#: of a list of connectors, or to the next connector of such a list.
_PASSWORD: Final = re.compile(
    r"(\w*(?:password|passphrase|secret)=)\S*?(?=[&;][\w.-]+=|\s|$|\)(?:\?|$)|,\s*\w+://)", re.IGNORECASE
)


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 queue``, ``2,000 queues``.

    Args:
        noun: Noun in the singular; its plural has an s.
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def reason_of(error: object) -> str:
    """The reason in an error, without the number and the path that the text of an OSError has around it."""
    return str(getattr(error, "strerror", None) or error)


def printable(text: str) -> str:
    """The text on one line, with a replacement for each character that a terminal would not show as one."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _REPLACEMENT for each in text)


def printable_lines(text: str) -> str:
    """Make a text of several lines printable: line ends and tabs stay.

    Args:
        text: Lines of our own, with parts of any origin. A part that could hold a line end goes through ``printable``.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _REPLACEMENT for each in text)


def has_login(url: str) -> bool:
    """Whether a user, perhaps with a password, stands in front of a host of the URL, or of URLs in a list.

    Args:
        url: One or more URLs.
    """
    return _LOGIN.search(url) is not None


def masked_url(url: str) -> str:
    """The URL as errors, logs and reports show it: without a login in front of a host and the values of passwords.

    Args:
        url: One or more URLs, well-formed or not.
    """
    return _PASSWORD.sub(r"\1***", _LOGIN.sub("://***@", url))
