"""Directories relative to named paths (ADR 0190).

A name leads to a directory that may itself start at another name. Not here: the elements that refer to names
(``reader``), and the rows (``schema.path_rows``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from understudy.config.reading.document import Document, Node, nearest
from understudy.config.schema.path_rows import DATA_DIRECTORY, NAMED_PATH
from understudy.errors import ConfigError

#: Names that every instance has. Both are the instance directory: it has no directory of data apart from it.
OWN_NAMES: Final = (DATA_DIRECTORY, "jboss.server.base.dir")


class NoSuchPathError(ConfigError):
    """A name of a path that does not exist."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no path {name!r}", hint=nearest(name, (*OWN_NAMES, *known)))
        self.name = name


def named_paths(nodes: Iterable[Node]) -> dict[str, Node]:
    """The elements ``path`` among the elements beside ``core``, by their names."""
    return {str(each.attributes["name"]): each for each in nodes if each.element is NAMED_PATH}


def resolved(path: str, relative_to: str | None, named: Mapping[str, Node]) -> str:
    """A path as it is relative to the instance directory; an absolute one stays.

    Args:
        path: Absolute, or relative to the directory of the name.
        relative_to: Name of the path where it starts; None: the instance directory.
        named: The elements ``path`` by their names.

    Raises:
        NoSuchPathError: a name does not exist.
        ConfigError: a named path starts at itself.
    """
    followed = list[str]()
    while relative_to is not None and relative_to not in OWN_NAMES:
        node = named.get(relative_to)
        if node is None:
            raise NoSuchPathError(relative_to, named)
        if relative_to in followed:
            raise ConfigError(f"path {relative_to!r} starts at itself: {' -> '.join((*followed, relative_to))}")
        followed.append(relative_to)
        path = posixpath.join(str(node.attributes["path"]), path)
        start = node.attributes.get("relative-to")
        relative_to = None if start is None else str(start)
    return path


class NamedPaths:
    """The named paths of one document, with the instance directory that they start at."""

    def __init__(self, document: Document, nodes: Iterable[Node], base_directory: str) -> None:
        """Args:
        document: Makes errors.
        nodes: The elements beside ``core``. Errors of paths among them are added to the document.
        base_directory: The instance directory; empty leaves directories relative.
        """
        self._document = document
        self._base_directory = base_directory
        self._named = {
            name: node for node, name in document.entries(each for each in nodes if each.element is NAMED_PATH)
        }
        for name, node in self._named.items():
            document.attempt(partial(self._check, node, name), None)

    def _check(self, node: Node, name: str) -> None:
        if name in OWN_NAMES:
            raise self._document.error_at(
                node, f"{name!r} is the instance directory", hint="give the path another name"
            )
        self._resolved(node, str(node.attributes["path"]))

    def directory(self, node: Node) -> str:
        """The directory of an element with a path and perhaps the name where it starts. Raises ConfigError."""
        text = str(node.value)
        if not text and "relative-to" in node.attributes:
            # only the start differs from the default
            text = str(node.element.default or "")
        return self.absolute(self._resolved(node, text))

    def absolute(self, path: str) -> str:
        """A path, relative to the instance directory, as an absolute one."""
        return posixpath.normpath(posixpath.join(self._base_directory, path))

    def _resolved(self, node: Node, text: str) -> str:
        if not text or "\0" in text:
            raise self._document.error_at(node, f"{text!r} is no directory")
        start = node.attributes.get("relative-to")
        try:
            return resolved(text, None if start is None else str(start), self._named)
        except NoSuchPathError as error:
            missing = self._document.error_at(node, str(error.args[0]), hint=error.hint)
            raise self._document.consequence("path", missing, error.name) from None
        except ConfigError as error:
            raise self._document.error_at(node, str(error.args[0])) from None
