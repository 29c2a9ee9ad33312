"""The elements of a document as ranges of its bytes.

The tree of the reader has lines only (``xml_tree``). The document is one that the reader accepts: without a DOCTYPE,
and in an encoding whose markup is ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from typing import Final
from xml.parsers import expat

from understudy.dataclass import dataclass
from understudy.errors import ConfigError

_TAG_END: Final = re.compile(rb"""(?:[^"'>]|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE: Final = re.compile(rb"""(\s+)([^\s=/>"']+)\s*=\s*("[^"]*"|'[^']*')""")
#: Encodings whose bytes below 128 are ASCII, and which expat knows.
_ENCODINGS: Final = ("utf-8", "us-ascii", "iso-8859-1")


@dataclass(slots=True)
class Span:
    """Place of one element in the bytes of a document."""

    name: str
    """Name of the element as it is written, perhaps with a prefix."""
    attributes: dict[str, str]
    line: int
    start: int
    """Offset of the element's start tag."""
    inner: int
    """Offset after the element's start tag."""
    children: list[Span] = field(default_factory=list)
    notes: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of the comments and processing instructions directly in it."""
    text: str = ""
    """Text directly in the element."""
    outer: int = 0
    """Offset of the element's end tag; that of ``inner`` if it has none."""
    end: int = 0
    """Offset after the element."""

    @property
    def local(self) -> str:
        """Name of the element without its prefix."""
        return self.name.rpartition(":")[2]

    @property
    def prefix(self) -> str:
        """Prefix of the element's name with the colon, or nothing."""
        return self.name[: len(self.name) - len(self.local)]

    @property
    def is_empty_tag(self) -> bool:
        """Whether the element is written as ``<name/>``."""
        return self.end == self.inner


@dataclass(frozen=True, slots=True)
class Text:
    """Bytes of a document with its root element."""

    data: bytes
    file: str
    root: Span
    encoding: str

    @property
    def newline(self) -> bytes:
        """Line end of the document."""
        return b"\r\n" if b"\r\n" in self.data else b"\n"

    def attribute(self, span: Span, name: str) -> tuple[int, int, int] | None:
        """Offsets of the white space before an attribute, of its quoted value, and after it; None if there is none."""
        for match in _ATTRIBUTE.finditer(self.data, self.name_end(span), span.inner):
            if match[2].decode(self.encoding) == name:
                return match.start(), match.start(3), match.end()
        return None

    def name_end(self, span: Span) -> int:
        """Offset after the name in the start tag."""
        return span.start + 1 + len(span.name.encode(self.encoding))

    def encoded(self, text: str) -> bytes:
        """The bytes of a text; characters that the encoding does not have are references."""
        return text.encode(self.encoding, "xmlcharrefreplace")


class _Parsing:
    """Takes the events of expat."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data, self.file = data, file
        self.root: Span | None = None
        self.encoding = "utf-8"
        self._open: list[Span] = []
        self.parser = parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.CommentHandler = lambda text: self._note(b"-->")
        parser.ProcessingInstructionHandler = lambda target, text: self._note(b"?>")
        parser.StartDoctypeDeclHandler = self._doctype
        parser.XmlDeclHandler = self._declaration

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        self.encoding = (encoding or "utf-8").lower()

    def _doctype(self, *_: object) -> None:
        raise ConfigError("a DOCTYPE is not allowed", file=self.file, line=1)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        start = self.parser.CurrentByteIndex
        inner = _end_of_tag(self.data, start)
        span = Span(name, attributes, self.parser.CurrentLineNumber, start, inner)
        if self._open:
            self._open[-1].children.append(span)
        else:
            self.root = span
        self._open.append(span)

    def _end(self, name: str) -> None:
        span = self._open.pop()
        if self.data[span.inner - 2 : span.inner] == b"/>":
            span.outer = span.end = span.inner
        else:
            span.outer = self.parser.CurrentByteIndex
            span.end = self.data.index(b">", span.outer) + 1

    def _text(self, text: str) -> None:
        if self._open:
            self._open[-1].text += text

    def _note(self, closing: bytes) -> None:
        if self._open:
            start = self.parser.CurrentByteIndex
            self._open[-1].notes.append((start, self.data.index(closing, start + 2) + len(closing)))


def parse(data: bytes, file: str) -> Text:
    """The ranges of a document.

    Raises:
        ConfigError: the bytes are not well-formed, or of an encoding whose markup is not ASCII.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ConfigError("UTF-16 cannot be edited", file=file, hint="save it as UTF-8")
    parsing = _Parsing(data, file)
    try:
        parsing.parser.Parse(data, True)
    except expat.ExpatError as error:
        message = expat.ErrorString(error.code)
        raise ConfigError(f"not well-formed XML: {message}", file=file, line=error.lineno) from None
    if parsing.encoding not in _ENCODINGS:
        raise ConfigError(f"the encoding {parsing.encoding} cannot be edited", file=file, hint="save it as UTF-8")
    assert parsing.root is not None
    return Text(data, file, parsing.root, parsing.encoding)


def texts(text: Text, span: Span) -> Iterator[tuple[int, int]]:
    """Ranges of the text directly in an element without others: all but its comments and processing instructions."""
    position = span.inner
    for start, end in [*span.notes, (span.outer, span.outer)]:
        yield position, start
        position = end


def _end_of_tag(data: bytes, start: int) -> int:
    match = _TAG_END.match(data, start)
    assert match is not None
    return match.end()
