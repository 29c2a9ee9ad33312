"""Insertion and replacement of bytes of a document, with their indentation.

A new element stands after its last like, or else at the place of the schema, on a line of its own with the indentation
of its siblings. A removed element takes its line with it. Comments stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from understudy.config.edit.spans import Span, Text, texts

#: Indentation of a child of the root where the document shows none.
_INDENT: Final = b"   "
_SAME_LINE: Final = re.compile(rb"(?:[ \t]*<!--(?:[^-\r\n]|-(?!->)[^\r\n])*-->)*[ \t]*(?=\r?\n)")
_LINE_END: Final = re.compile(rb"[ \t]*(?=\r?\n)|(?=[ \t]*</)")
_LINE_START: Final = re.compile(rb"(\r?\n)([ \t]*)$")


def with_value(text: Text, span: Span, value: str) -> bytes:
    """The document with another text in an element without children. White space and comments in it stay."""
    new = text.encoded(_escaped(value))
    if span.is_empty_tag:
        tag = text.data[span.start : span.inner - 2].rstrip()
        closing = text.encoded(f"</{span.name}>")
        return _spliced(text.data, span.start, span.end, tag + b">" + new + closing)
    content, written = list[bytes](), False
    position = span.inner
    ranges = list(texts(text, span))
    spoken = [each for each in ranges if text.data[slice(*each)].strip()]
    first = (spoken or ranges)[0]
    for start, end in ranges:
        content.append(text.data[position:start])
        raw = text.data[start:end]
        if (start, end) == first and not written:
            written = True
            lead = len(raw) - len(raw.lstrip()) if raw.strip() else 0
            tail = len(raw.rstrip()) if raw.strip() else 0
            content.append(raw[:lead] + new + raw[tail:] if raw.strip() else new)
        elif raw.strip():
            content.append(raw[: len(raw) - len(raw.lstrip())] + raw[len(raw.rstrip()) :])
        else:
            content.append(raw)
        position = end
    content.append(text.data[position : span.outer])
    return _spliced(text.data, span.inner, span.outer, b"".join(content))


def with_attribute(text: Text, span: Span, name: str, value: str | None) -> bytes:
    """The document after one attribute got another value or was removed."""
    found = text.attribute(span, name)
    if found is None:
        assert value is not None
        place = span.inner - (2 if text.data[span.inner - 2 : span.inner] == b"/>" else 1)
        place -= len(text.data[span.start : place]) - len(text.data[span.start : place].rstrip())
        return _spliced(text.data, place, place, text.encoded(f' {name}="{_attribute(value, chr(34))}"'))
    before, quoted, end = found
    if value is None:
        return _spliced(text.data, before, end, b"")
    quote = text.data[quoted : quoted + 1].decode("ascii")
    return _spliced(text.data, quoted + 1, end - 1, text.encoded(_attribute(value, quote)))


def without(text: Text, span: Span) -> bytes:
    """The document without an element; its line goes if nothing else is on it."""
    data, start, end = text.data, span.start, span.end
    before = _LINE_START.search(data, 0, start)
    after = _LINE_END.match(data, end)
    if before is not None and after is not None:
        start, end = before.start(), after.end()
    return _spliced(data, start, end, b"")


def element_bytes(text: Text, name: str, attributes: Mapping[str, str], value: str | None) -> bytes:
    """A new element with a text, or an empty one."""
    tag = name + "".join(f' {key}="{_attribute(each, chr(34))}"' for key, each in attributes.items())
    return text.encoded(f"<{tag}/>" if value is None else f"<{tag}>{_escaped(value)}</{name}>")


def with_element(text: Text, parent: Span, name: str, new: bytes, names: Mapping[str, int]) -> bytes:
    """The document with a new element in another one.

    Args:
        text: The document.
        parent: The element around it.
        name: Name of the new element.
        new: Bytes of it, from the first to the last tag.
        names: Places of the elements of the parent in the schema, by all their names.
    """
    own = _indent(text.data, parent.start)
    if parent.is_empty_tag:
        tag = text.data[parent.start : parent.inner - 2].rstrip() + b">"
        inside = text.newline + _deeper(text, parent) + new + text.newline + (own or b"")
        return _spliced(text.data, parent.start, parent.end, tag + inside + text.encoded(f"</{parent.name}>"))
    place = names[name]
    # entries of a list keep their order, and an element that is written twice is the first one
    before = [each for each in parent.children if names.get(each.local, -1) >= 0 and names[each.local] <= place]
    if before:
        like = [each for each in before if names[each.local] == place]
        sibling = (like or [max(before, key=lambda each: (names[each.local], each.start))])[-1]
        indent = _indent(text.data, sibling.start)
        after = _SAME_LINE.match(text.data, sibling.end)
        at = sibling.end if after is None or indent is None else after.end()
        return _spliced(text.data, at, at, (b"" if indent is None else text.newline + indent) + new)
    if parent.children:
        indent = _indent(text.data, parent.children[0].start)
        return _spliced(text.data, parent.inner, parent.inner, (b"" if indent is None else text.newline + indent) + new)
    content = text.data[parent.inner : parent.outer]
    at = parent.inner + len(content.rstrip())
    tail = text.data[at : parent.outer]
    closing = b"" if b"\n" in tail else text.newline + (own or b"")
    rest = tail if b"\n" in tail else b""
    return _spliced(text.data, at, parent.outer, text.newline + _deeper(text, parent) + new + closing + rest)


def _escaped(value: str) -> str:
    # xml.sax.saxutils would import the HTTP client of Python at each start
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")


def _attribute(value: str, quote: str) -> str:
    named = {'"': "&quot;", "'": "&apos;"}[quote]
    return _escaped(value).replace(quote, named).replace("\n", "&#10;").replace("\t", "&#9;")


def _deeper(text: Text, span: Span) -> bytes:
    """Indentation of the children of an element that has none."""
    own = _indent(text.data, span.start) or b""
    step = next((each for each in _steps(text, text.root) if each), _INDENT)
    return own + step


def _steps(text: Text, span: Span) -> list[bytes]:
    """The further indentation of children against their parents, along the first children."""
    found = list[bytes]()
    while span.children:
        outer, inner = _indent(text.data, span.start), _indent(text.data, span.children[0].start)
        if inner is not None and outer is not None and inner.startswith(outer):
            found.append(inner[len(outer) :])
        span = span.children[0]
    return found


def _indent(data: bytes, start: int) -> bytes | None:
    """White space before an element on its line; None if something else is before it."""
    line = data.rfind(b"\n", 0, start) + 1
    before = data[line:start]
    return before if not before.strip() else None


def _spliced(data: bytes, start: int, end: int, new: bytes) -> bytes:
    return data[:start] + new + data[end:]
