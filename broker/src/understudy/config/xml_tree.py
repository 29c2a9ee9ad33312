"""XML documents as trees of elements with their lines, read by expat.

expat is part of Python and is loaded in each node anyway; lxml takes 4 MiB of memory for one document (ADR 0213).
A DOCTYPE is refused, so there are no entities but those of XML itself and nothing outside of the document is read.
Comments and processing instructions are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final, NamedTuple
from xml.parsers import expat

from understudy.dataclass import dataclass
from understudy.errors import ConfigError

#: Elements within each other, as with libxml2: the tree is read and freed by functions that call themselves.
DEPTH_MAX: Final = 256
#: Between namespace and name: in neither of the two.
_SEPARATOR: Final = " "
_ENCODING: Final = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")


class QualifiedName(NamedTuple):
    """The name of an element or attribute."""

    namespace: str
    """Empty for a name in no namespace."""
    local: str


@dataclass(slots=True)
class XmlElement:
    """One element of a document."""

    name: QualifiedName
    line: int
    """Line of the start tag."""
    attributes: dict[QualifiedName, str]
    children: list[XmlElement] = field(default_factory=list)
    texts: list[str] = field(default_factory=lambda: [""])
    """Text directly in the element: before the first child, and after each."""

    def get(self, name: str) -> str | None:
        """Value of an attribute in no namespace."""
        return self.attributes.get(QualifiedName("", name))

    def everything(self) -> Iterator[XmlElement]:
        """The element and all in it, in the order of the document."""
        yield self
        for child in self.children:
            yield from child.everything()


def parse_xml(data: bytes, file: str) -> XmlElement:
    """The root element of a document.

    Raises:
        ConfigError: the bytes are not well-formed XML, or have a DOCTYPE.
    """
    try:
        return _parse(data, file, None)
    except (ValueError, LookupError) as error:  # an encoding that expat does not have
        found = _ENCODING.match(data)
        try:
            text = data.decode(found[1].decode() if found else "utf-8")
        except (UnicodeError, LookupError):
            raise ConfigError(f"not well-formed XML: {error}", file=file) from None
    return _parse(text.encode(), file, "utf-8")


def _parse(data: bytes, file: str, encoding: str | None) -> XmlElement:
    parsing = _Parsing(file, encoding)
    try:
        parsing.parser.Parse(data, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise ConfigError(f"not well-formed XML: {message}", file=file, line=error.lineno) from None
    finally:
        parsing.end()
    (root,) = parsing.document.children
    return root


class _Parsing:
    """Takes the events of expat."""

    def __init__(self, file: str, encoding: str | None) -> None:
        self.file = file
        self.document = XmlElement(QualifiedName("", ""), 1, {})
        """An element around the root."""
        self._open = [self.document]
        self.parser = parser = expat.ParserCreate(encoding, _SEPARATOR)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype

    def end(self) -> None:
        """Break the circle of parser and handlers: nodes collect garbage rarely."""
        self.parser.StartElementHandler = self.parser.EndElementHandler = None
        self.parser.CharacterDataHandler = self.parser.StartDoctypeDeclHandler = None

    def _doctype(self, *_: object) -> None:
        raise ConfigError("a DOCTYPE is not allowed", file=self.file, line=1, hint="entities and DTDs are never read")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self._open) > DEPTH_MAX:
            message = f"not well-formed XML: more than {DEPTH_MAX} elements within each other"
            raise ConfigError(message, file=self.file, line=line)
        element = XmlElement(_qualified(name), line, {_qualified(key): text for key, text in attributes.items()})
        self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, name: str) -> None:
        self._open.pop()
        self._open[-1].texts.append("")

    def _text(self, text: str) -> None:
        # a comment divides a text
        self._open[-1].texts[-1] += text


def _qualified(name: str) -> QualifiedName:
    namespace, _, local = name.rpartition(_SEPARATOR)
    return QualifiedName(namespace, local)
