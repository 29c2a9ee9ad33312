"""broker.xml as trees of nodes that are checked against the schema, one per server.

Reads at most ``CONFIG_BYTES_MAX`` bytes with all included files (``xml_tree``). The element ``include`` of XInclude is
replaced by the root element of a file (ADR 0075).
Elements may be in the ``urn:activemq`` namespaces, as Artemis writes them, or in none.
Every error is a ``ConfigError`` with the path of the element, the file and the line; elements that are
known but not supported by this version become one ``ConfigWarning`` each.

The errors of a file are reported together (``ConfigErrors``): an entry of a list, or an element of a server, that has
an error is left out of the tree and the reading goes on. An error that only follows from an entry that was left out,
such as a reference to it, is a ``Consequence`` and is not reported.

Not here: checks that involve several values (``reader``). Invariant: a ``Node`` has only children,
attributes and values that its schema row allows, and all that the row requires.
"""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final, TypeVar

from understudy.config.model import ConfigWarning
from understudy.config.schema.address_rows import JMS
from understudy.config.schema.grammar import Attribute, Element, Kind, Support, Value, parse_value
from understudy.config.schema.schema import BESIDE_CORE, CORE, PLACES, SERVER, is_container
from understudy.config.xml_tree import QualifiedName, XmlElement, parse_xml
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import CONFIG_BYTES_MAX, CONFIG_ERRORS_MAX, NAME_UNITS_MAX

NAMESPACES: Final = ("", "urn:activemq", "urn:activemq:core")
_JMS_NAMESPACE: Final = "urn:activemq:jms"
_XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
_XML: Final = "http://www.w3.org/XML/1998/namespace"
_XINCLUDE: Final = "http://www.w3.org/2001/XInclude"
#: Attributes that identify an entry of a list, in order of preference.
_NAMING: Final = ("name", "match", "type", "key", "from", "class-name")
#: Maximum number of places named for a misplaced element.
_PLACES_NAMED_MAX: Final = 3


_T = TypeVar("_T")


class ConfigErrors(ConfigError):
    """Several errors of one configuration; the text has one line for each."""

    def __init__(self, errors: Sequence[ConfigError], left_out: int = 0) -> None:
        """Args:
        errors: At least one, in the order of their places.
        left_out: Further errors that are counted only.
        """
        lines = [f"  {error}" for error in errors]
        if left_out:
            lines.append(f"  and {left_out} more")
        super().__init__("\n".join((f"{len(errors) + left_out} errors", *lines)), file=errors[0].file)
        self.errors = tuple(errors)
        self.names_missing = not left_out and all(each.names_missing for each in errors)


class Consequence(ConfigError):
    """An error that follows from another one, which is reported."""


@dataclass(slots=True)
class Node:
    """One element of the document, checked against the grammar."""

    element: Element
    path: str
    """Path with the naming attribute: ``core/acceptors/acceptor[@name='artemis']``."""
    line: int
    value: Value | None = None
    """Value of an element that is not a container."""
    attributes: dict[str, Value] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    file: str = ""
    """The file that has the element: broker.xml or an included file."""
    broken: bool = False
    """Whether the element has an error itself, and not only entries in it that were left out."""
    errors_of_entries: int = 0
    """Number of errors of the entries in it that were left out."""

    def child(self, name: str) -> Node | None:
        """The only child of a (canonical) name, or None."""
        for child in self.children:
            if child.element.name == name:
                return child
        return None

    def all(self, name: str) -> Iterator[Node]:
        """The children of a (canonical) name, in file order."""
        return (child for child in self.children if child.element.name == name)

    def text(self, name: str) -> str | None:
        """Text of the only child with a name, or None."""
        child = self.child(name)
        return None if child is None else str(child.value)


class Document:
    """One file being read, with the files that it includes; adds file and line to errors and warnings."""

    def __init__(
        self, file: str, properties: Mapping[str, str], read_file: Callable[[str], bytes] | None = None
    ) -> None:
        """Args:
        properties: Values for ``${name}``.
        read_file: Reads an included file, at most one byte more than ``CONFIG_BYTES_MAX``; raises OSError. None:
            includes are refused.
        """
        self.warnings: list[ConfigWarning] = []
        self.errors: list[ConfigError] = []
        self.jms: Node | None = None
        """The element ``jms`` beside ``core``."""
        self.beside: list[Node] = []
        """The elements beside ``core`` that all servers use: sockets and named paths."""
        self._left_out: set[tuple[str, str]] = set()
        """Entries with an error: name of the element, and its name; empty for elements without one."""
        self.included: list[str] = []
        """Included files, each once."""
        self.properties = properties
        """Values for the texts ``${name}``."""
        self._read_file = read_file
        self._warned: set[tuple[str, str]] = set()
        self._files = [file]
        """The file being read, after those that include it."""
        self._bytes = 0

    @property
    def file(self) -> str:
        """The file being read."""
        return self._files[-1]

    def parse(self, data: bytes) -> list[Node]:
        """The checked ``core`` element of ``data``, and after it the elements ``server``.

        Errors of the schema are added to ``errors``; the elements that have them are left out.

        Raises:
            ConfigError: the bytes are not XML or too many, a file cannot be included, or there is not exactly one core.
        """
        root = self._parse_xml(data)
        name = self._local_name(root, "")
        if name == CORE.name:
            return [self._check(root, CORE, CORE.name, Support.IMPLEMENTED)]
        if name != "configuration":
            raise self.error(f"the root element is {name!r}", name, root.line, hint="configuration, with core in it")
        self._check_text_absent(root, "configuration")
        cores, servers = list[Node](), list[Node]()
        for child in self._elements(root, "configuration"):
            name = self._local_name(child, "configuration")
            if name == SERVER.name:
                path = f"{SERVER.name}{self._naming(child, SERVER)}"
                servers.append(self._check(child, SERVER, path, Support.IMPLEMENTED))
                continue
            if name == JMS.name:
                self.jms = self._check(child, JMS, name, Support.IMPLEMENTED)
                continue
            beside = next((each for each in BESIDE_CORE if each.name == name), None)
            if beside is not None:
                path = f"{name}{self._naming(child, beside)}"
                self.beside.append(self._check(child, beside, path, Support.IMPLEMENTED))
                continue
            if name != CORE.name:
                hint = "it belongs in core" if name in CORE.by_name else None
                raise self.error(f"unknown element {name!r}", f"configuration/{name}", child.line, hint=hint)
            if cores:
                hint = "further servers are elements server, with a name"
                raise self.error("2 core elements, exactly one wanted", "configuration", child.line, hint=hint)
            cores.append(self._check(child, CORE, CORE.name, Support.IMPLEMENTED))
        if not cores:
            raise self.error("0 core elements, exactly one wanted", "configuration", root.line)
        return [*cores, *servers]

    # --- several errors ------------------------------------------------------------------------

    def attempt(self, read: Callable[[], _T], otherwise: _T) -> _T:
        """The result of ``read``, or ``otherwise`` if it raises a ConfigError, which is added to ``errors``."""
        try:
            return read()
        except Consequence:
            return otherwise
        except ConfigError as error:
            # the traceback would keep the open file of an included document
            self.errors.append(error.with_traceback(None))
            return otherwise

    def each(self, entries: Iterable[tuple[Node, str]], read: Callable[[Node, str], _T]) -> Iterator[_T]:
        """The results for entries of a list with their names; an entry with an error is left out."""
        for node, name in entries:
            found = self.attempt(lambda node=node, name=name: (read(node, name),), None)  # type: ignore[misc]
            if found is not None:
                yield found[0]
            else:
                self._left_out.add((node.element.name, name))

    def entries(
        self, nodes: Iterable[Node], attribute: str = "name", *, once: bool = True
    ) -> Iterator[tuple[Node, str]]:
        """The nodes of a list with their naming attribute; others than the first of a name are errors if ``once``."""
        lines: dict[str, int] = {}
        for node in nodes:
            name = str(node.attributes[attribute])
            if len(name) > NAME_UNITS_MAX:
                message = f"a {attribute} of {len(name)} characters, limit {NAME_UNITS_MAX}"
                self.errors.append(self.error_at(node, message))
            elif once and name in lines:
                self.errors.append(self.error_at(node, f"{name!r} stands twice, first on line {lines[name]}"))
            else:
                lines.setdefault(name, node.line)
                yield node, name

    def list(
        self, core: Node, container: str, entry: str, attribute: str = "name", *, counts: str | None = None
    ) -> Iterator[tuple[Node, str]]:
        """The entries of a list of a server with their naming attribute, each name once.

        Args:
            core: The element of the server.
            container: Name of the element with the list.
            entry: Name of its entries.
            attribute: The naming attribute.
            counts: Which of two entries with one name Artemis uses, ``first`` or ``last``: the other one is left aside
                with a warning. None: the second one is an error.
        """
        holder = core.child(container)
        if holder is None:
            return iter(())
        if counts is None:
            return self.entries(holder.all(entry), attribute)
        found: dict[str, Node] = {}
        for node, name in self.entries(holder.all(entry), attribute, once=False):
            before = found.get(name)
            if before is not None:
                message = f"{name!r} stands twice, first on line {before.line}: the {counts} one is used"
                self.warn(f"twice {entry} {name} {node.line}", message, node)
            if before is None or counts == "last":
                found[name] = node
        return iter([(node, name) for name, node in found.items()])

    def left_out(self, element: str, name: str | None = None) -> bool:
        """Whether an entry with this name, or any entry, of a kind of element was left out because of an error."""
        if name is None:
            return any(kind in (element, f"{element}s") for kind, _ in self._left_out)
        return (element, name) in self._left_out or self.left_out(f"{element}s")

    def consequence(self, element: str, error: ConfigError, name: str | None = None) -> ConfigError:
        """The error about a missing entry, or a ``Consequence`` in its place if the entry was left out."""
        error.names_missing = True
        return Consequence(str(error)) if self.left_out(element, name) else error

    def finish(self) -> None:
        """Raise ConfigError if there were errors: the only one, or all of them."""
        errors = sorted(self.errors, key=lambda error: (error.file or "", error.line or 0))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigErrors(errors[:CONFIG_ERRORS_MAX], len(errors[CONFIG_ERRORS_MAX:]))

    def error(self, message: str, path: str, line: int | None, *, hint: str | None = None) -> ConfigError:
        """An error at a place in this file."""
        return ConfigError(message, path=path, file=self.file, line=line, hint=hint)

    def error_at(self, node: Node, message: str, *, hint: str | None = None) -> ConfigError:
        """An error about a checked element."""
        return ConfigError(message, path=node.path, file=node.file, line=node.line, hint=hint)

    def warn(self, key: str, message: str, node: Node, path: str | None = None) -> None:
        """Add a warning about an element unless its server has one with the same key.

        Args:
            node: The element.
            path: Path of an attribute of the element; None: the warning is about the element.
        """
        once = (node.path.partition("/")[0], key)
        if once not in self._warned:
            self._warned.add(once)
            self.warnings.append(ConfigWarning(message, path or node.path, node.file, node.line))

    def _parse_xml(self, data: bytes) -> XmlElement:
        self._bytes += len(data)
        if self._bytes > CONFIG_BYTES_MAX:
            raise self.error(f"{self._bytes} bytes, limit {CONFIG_BYTES_MAX}", "", None)
        return parse_xml(data, self.file)

    def _elements(self, xml: XmlElement, path: str) -> Iterator[XmlElement]:
        """The elements in a container; those of included files while these are the file being read."""
        for child in xml.children:
            if child.name != (_XINCLUDE, "include"):
                yield child
                continue
            file, data = self._include(child, path)
            self._files.append(file)
            try:
                yield self._parse_xml(data)
            finally:
                self._files.pop()

    def _include(self, xml: XmlElement, path: str) -> tuple[str, bytes]:
        """Name and bytes of an included file. A relative name starts at the folder of the including file."""
        here, line = f"{path}/include", xml.line
        unknown = [name.local for name in xml.attributes if name != ("", "href")]
        if unknown or xml.children:
            found = f"attribute {unknown[0]!r}" if unknown else "an element in it"
            raise self.error(f"{found} is not supported", here, line, hint="an include has only href")
        href = self.substitute(xml.get("href") or "", here, line).strip()
        if self._read_file is None:
            raise self.error("includes are not read", here, line)
        if not href or "\0" in href or "://" in href:
            raise self.error(f"{href!r} is no file", here, line)
        file = posixpath.normpath(posixpath.join(posixpath.dirname(self.file), href))
        if file in self._files:
            raise self.error(f"{file} includes itself", here, line)
        try:
            data = self._read_file(file)
        except OSError as error:
            raise self.error(f"{file} cannot be read: {error.strerror}", here, line) from error
        if file not in self.included:
            self.included.append(file)
        return file, data

    def _local_name(self, xml: XmlElement, parent_path: str) -> str:
        namespace, local = xml.name
        if namespace == _XINCLUDE:
            message = f"{local} of XInclude is not possible here"
            raise self.error(message, f"{parent_path}/{local}", xml.line)
        if namespace not in NAMESPACES and not (namespace == _JMS_NAMESPACE and _may_be_jms(parent_path)):
            raise self.error(
                f"element {local!r} in the unknown namespace {namespace!r}",
                f"{parent_path}/{local}" if parent_path else local,
                xml.line,
                hint="urn:activemq:core, or none",
            )
        return local

    # --- one element ---------------------------------------------------------------------------

    def _check(self, xml: XmlElement, element: Element, path: str, inherited: Support) -> Node:
        node = Node(element, path, xml.line, file=self.file)
        before = len(self.errors)
        self._check_attributes(xml, node)
        if is_container(element):
            self.attempt(lambda: self._check_text_absent(xml, path), None)
            self._check_children(xml, node)
        else:
            self.attempt(lambda: self._read_value(xml, node), None)
        if len(self.errors) == before:
            self.attempt(lambda: self._check_support(node, inherited), None)
        node.broken = node.broken or len(self.errors) > before + node.errors_of_entries
        return node

    def _read_value(self, xml: XmlElement, node: Node) -> None:
        element, path = node.element, node.path
        if xml.children:
            name = self._local_name(xml.children[0], path)
            raise self.error(
                f"unknown element {name!r}: {element.name} holds {element.kind.value}",
                f"{path}/{name}",
                xml.children[0].line,
            )
        node.value = self._value(self.substitute(xml.texts[0], path, node.line), element, path, node.line)
        raised_to = element.raised_to
        if raised_to is not None and isinstance(node.value, int) and node.value < raised_to:
            self.warn(f"raised {path}", f"{node.value} is raised to {raised_to}, the least that is used here", node)
            node.value = raised_to

    def _check_support(self, node: Node, inherited: Support) -> None:
        element = node.element
        if inherited is not Support.IMPLEMENTED or element.support is Support.IMPLEMENTED:
            return
        if element.support is Support.REFUSED:
            if not _is_switched_off(node):
                raise self.error_at(node, f"{element.name} is not available in this version", hint=element.note)
            return
        if element.support is Support.NO_EFFECT:
            message = f"{element.name} has no effect: {element.note}"
        else:
            message = f"{element.name} is not implemented in this version and is left aside"
        self.warn(f"element {element.name}", message, node)

    def _check_children(self, xml: XmlElement, node: Node) -> None:
        element, seen = node.element, dict[str, int]()
        for child_xml in self._elements(xml, node.path):
            self.attempt(partial(self._check_child, child_xml, node, seen), None)
        for row in element.children:
            if row.required and row.name not in seen:
                self.errors.append(self.error_at(node, f"{row.name} is missing", hint=row.doc))

    def _check_child(self, xml: XmlElement, node: Node, seen: dict[str, int]) -> None:
        """Add a child to a node, unless it has an error."""
        name = self._local_name(xml, node.path)
        row = node.element.by_name.get(name)
        if row is None:
            self.errors.append(self._unknown_child(name, xml, node))
            node.errors_of_entries += any(each.repeated for each in node.element.children) or _is_server(node)
            return
        path = f"{node.path}/{row.name}{self._naming(xml, row)}"
        if not row.repeated and row.name in seen:
            message = f"{name} stands twice, first on line {seen[row.name]}"
            if is_container(row):
                raise self.error(message, path, xml.line)
            self.warn(
                f"twice {path}", f"{message}, and only that one is used", Node(row, path, xml.line, file=self.file)
            )
            return
        seen[row.name] = xml.line
        before = len(self.errors)
        child = self._check(xml, row, path, node.element.support)
        if not child.broken:
            node.errors_of_entries += child.errors_of_entries
            node.children.append(child)
            return
        naming = next((value for value in map(xml.get, _NAMING) if value is not None), "")
        self._left_out.add((row.name, naming))
        if row.repeated or _is_server(node):
            node.errors_of_entries += len(self.errors) - before

    def _unknown_child(self, name: str, xml: XmlElement, node: Node) -> ConfigError:
        places = PLACES.get(name, ())
        hint = None
        if places:
            named = ", ".join(places[:_PLACES_NAMED_MAX])
            more = f" and {len(places) - _PLACES_NAMED_MAX} more places" if len(places) > _PLACES_NAMED_MAX else ""
            message = f"misplaced element {name!r}"
            hint = f"it belongs in {named}{more}"
        else:
            message = f"unknown element {name!r}"
            hint = nearest(name, node.element.by_name) or nearest(name, PLACES)
        return self.error(message, f"{node.path}/{name}", xml.line, hint=hint)

    def _check_text_absent(self, xml: XmlElement, path: str) -> None:
        for text in xml.texts:
            if text.strip():
                raise self.error(f"unexpected text {_shorten(text.strip())!r} between elements", path, xml.line)

    # --- values --------------------------------------------------------------------------------

    def _naming(self, xml: XmlElement, row: Element) -> str:
        known = {attribute.name for attribute in row.attributes if attribute.required}
        for name in _NAMING:
            value = xml.get(name)
            if name in known and value is not None:
                return f"[@{name}='{_shorten(value)}']"
        return ""

    def _check_attributes(self, xml: XmlElement, node: Node) -> None:
        rows = {attribute.name: attribute for attribute in node.element.attributes}
        failed = set[str]()
        for name, raw in xml.attributes.items():
            if name.namespace in (_XSI, _XML):
                continue
            before = len(self.errors)
            self.attempt(partial(self._check_attribute, name, raw, rows, node), None)
            if len(self.errors) > before:
                failed.add(name.local)
        for row in node.element.attributes:
            if not row.required or row.name in failed:
                continue
            value = node.attributes.get(row.name)
            if value is None or not (row.may_be_empty or str(value).strip()):
                self.errors.append(self.error_at(node, f"attribute {row.name!r} is missing", hint=row.doc))

    def _check_attribute(self, name: QualifiedName, raw: str, rows: Mapping[str, Attribute], node: Node) -> None:
        path = f"{node.path}/@{name.local}"
        row = rows.get(name.local)
        if name.namespace or row is None:
            raise self.error(f"unknown attribute {name.local!r}", path, node.line, hint=nearest(name.local, rows))
        text = self.substitute(raw, path, node.line)
        value = self._value(text, row, path, node.line)
        refused = row.support is Support.REFUSED and node.element.support is Support.IMPLEMENTED
        if refused and (row.default is None or value != parse_value(row.default, row)):
            raise self.error(
                f"{row.name}={text} is not available in this version",
                path,
                node.line,
                hint="a client would rely on the feature that is configured here",
            )
        if row.support is Support.NOT_YET and node.element.support is Support.IMPLEMENTED:
            message = f"{row.name} is not implemented in this version and is left aside"
            self.warn(f"attribute {row.name}", message, node, path)
        node.attributes[row.name] = value

    def _value(self, text: str, row: Element | Attribute, path: str, line: int) -> Value:
        if row.kind in (Kind.TEXT, Kind.PATH):
            return text.strip()
        try:
            return parse_value(text, row)
        except ValueError as error:
            hint = nearest(text.strip().upper(), row.choices) or nearest(text.strip(), row.choices)
            raise self.error(str(error), path, line, hint=hint) from None

    def substitute(self, text: str, path: str, line: int) -> str:
        """Replace ``${name}`` and ``${name:default}`` once; values are not expanded again. Raises ConfigError."""
        parts: list[str] = []
        rest = text
        while True:
            before, opening, behind = rest.partition("${")
            parts.append(before)
            if not opening:
                return "".join(parts)
            inside, closing, rest = behind.partition("}")
            if not closing:
                raise self.error(f"'${{{_shorten(inside)}' has no closing brace", path, line)
            name, colon, default = inside.partition(":")
            value = self.properties.get(name.strip(), default.strip() if colon else None)
            if value is None:
                raise self.error(
                    f"property {name.strip()!r} has no value and no default",
                    path,
                    line,
                    hint=nearest(name.strip(), self.properties) or "write ${name:default}",
                )
            parts.append(value)


def _may_be_jms(parent_path: str) -> bool:
    return parent_path == "configuration" or parent_path.partition("/")[0] == JMS.name


def _is_server(node: Node) -> bool:
    return node.element is CORE or node.element is SERVER


def _is_switched_off(node: Node) -> bool:
    """Whether a refused element has its default value, or a refused container has ``enabled`` false."""
    element = node.element
    if is_container(element):
        enabled = node.child("enabled")
        return enabled is not None and enabled.value is False
    return element.default is not None and node.value == parse_value(element.default, element)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the most similar known name; None if there is none."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found and found[0] != name else None


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
