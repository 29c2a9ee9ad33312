"""Sets of changes of broker.xml: each is made in the bytes, and the reader of the broker checks the result.

Not here: writing the file (``runtime.files``). Invariant: bytes outside of the changed elements stay the same, and a
result that the reader refuses is never returned.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from understudy.config.edit.paths import Path, Step, parse_path
from understudy.config.edit.spans import Span, Text, parse
from understudy.config.edit.splices import element_bytes, with_attribute, with_element, with_value, without
from understudy.config.reading.document import Document, nearest
from understudy.config.reading.servers import LoadedConfig
from understudy.config.schema.address_rows import JMS
from understudy.config.schema.grammar import Element, Kind
from understudy.config.schema.schema import BESIDE_CORE, CORE, SERVER, is_container
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.texts import masked_url

ReadFile = Callable[[str], bytes]
#: The reader of the broker: bytes of broker.xml, and the function that reads included files.
Check = Callable[[bytes, ReadFile], LoadedConfig]

_ROOT: Final = Element("configuration", Kind.CONTAINER, "The document.", children=(*BESIDE_CORE, CORE, SERVER, JMS))
_SECRET: Final = re.compile(r"(<[^<>]*(?:password|secret|passphrase)[^<>]*>)[^<]+", re.IGNORECASE)
_SECRET_ATTRIBUTE: Final = re.compile(r"""((?:password|secret|passphrase)\s*=\s*)("[^"]*"|'[^']*')""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Set:
    """A value of an element or attribute; missing elements of the path are made."""

    path: str
    value: str


@dataclass(frozen=True, slots=True)
class Add:
    """An element that is not there yet, such as an entry of a list; missing elements around it are made."""

    path: str
    value: str | None = None
    """Text of the element; None: there is none, or the path has it."""


@dataclass(frozen=True, slots=True)
class Remove:
    """An element, with everything in it, or an attribute that is taken away."""

    path: str


Change = Set | Add | Remove


@dataclass(frozen=True, slots=True)
class Ensure:
    """An element that is made, with missing elements around it, unless it exists."""

    path: str


@dataclass(frozen=True, slots=True)
class Clear:
    """An element that is removed, with everything in it, if it exists."""

    path: str


Target = Set | Ensure | Clear
"""A state of one place that a document is brought to, whatever it is before."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The documents after they were brought to the states of an overlay; nothing of them is written."""

    data: bytes
    """broker.xml."""
    read_file: ReadFile
    """The files that it includes."""
    differs: tuple[bool, ...]
    """Whether each state differs from the document, in the order of the states."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A changed file that is not written yet."""

    file: str
    """The changed file: broker.xml or one that it includes."""
    before: bytes
    after: bytes
    loaded: LoadedConfig
    """The configuration with the changes."""

    def diff(self) -> str:
        """The difference as a unified diff, without the values of passwords; empty if there is none."""
        return difference(self.before, self.after, self.file, self.file)


def difference(before: bytes, after: bytes, old: str, new: str) -> str:
    """Two versions of a file, named ``old`` and ``new``, as a unified diff without the values of passwords."""
    lines, changed = (
        [_masked(line) for line in data.decode("utf-8", "replace").splitlines()] for data in (before, after)
    )
    if lines == changed and before != after:
        return f"{new}: only values of passwords or line ends differ"
    return "\n".join(difflib.unified_diff(lines, changed, old, new, lineterm=""))


def _masked(line: str) -> str:
    """A line of broker.xml without the values of passwords."""
    return _SECRET_ATTRIBUTE.sub(r'\1"***"', _SECRET.sub(r"\1***", masked_url(line)))


def edit(
    data: bytes,
    changes: Sequence[Change],
    *,
    file: str,
    check: Check,
    read_file: ReadFile,
    properties: Mapping[str, str],
) -> Edited:
    """Make changes in broker.xml, or in one file that it includes.

    Args:
        data: The bytes of broker.xml.
        changes: Made one after the other.
        file: Name of broker.xml.
        check: The reader of the broker.
        read_file: Reads an included file; raises OSError.
        properties: Values for ``${name}`` in names of included files.

    Raises:
        ConfigError: a path leads nowhere, a change cannot be made, or the reader refuses the result. It names
            element and line.
    """
    documents = _Documents(data, file, read_file, properties)
    for change in changes:
        documents.apply(change)
    changed = documents.changed()
    if len(changed) > 1:
        raise ConfigError(f"the changes are in several files: {', '.join(changed)}", hint="change one file at a time")
    edited = changed[0] if changed else file
    loaded = check(documents.data(file), documents.data)
    return Edited(edited, documents.before(edited), documents.data(edited), loaded)


def merge(
    data: bytes, targets: Sequence[Target], *, file: str, read_file: ReadFile, properties: Mapping[str, str]
) -> Merged:
    """Bring broker.xml and the files that it includes to states, one after the other. Arguments as of ``edit``.

    Raises:
        ConfigError: a path is none of the schema, or leads to several elements.
    """
    documents = _Documents(data, file, read_file, properties)
    differs = []
    for target in targets:
        before = documents.version
        documents.reach(target)
        differs.append(documents.version != before)
    return Merged(documents.data(file), documents.data, tuple(differs))


@dataclass(frozen=True, slots=True)
class _Place:
    """An element of a document, with its row of the schema."""

    text: Text
    span: Span
    row: Element

    def error(self, message: str, path: object, hint: str | None = None) -> ConfigError:
        return ConfigError(message, path=str(path), file=self.text.file, line=self.span.line, hint=hint)


class _Documents:
    """Changes of broker.xml and of the files that it includes."""

    def __init__(self, data: bytes, file: str, read_file: ReadFile, properties: Mapping[str, str]) -> None:
        self._file = file
        self._before = {file: data}
        self._texts = {file: parse(data, file)}
        self._read_file = read_file
        self._properties = properties
        self.version = 0
        """Number of changes of bytes."""

    def data(self, file: str) -> bytes:
        """The present bytes of a file. Raises OSError: it cannot be read."""
        text = self._texts.get(file)
        return self._read_file(file) if text is None else text.data

    def before(self, file: str) -> bytes:
        """The bytes of a file before the changes."""
        return self._before[file]

    def changed(self) -> list[str]:
        """The files that have changed."""
        return [file for file, data in self._before.items() if self._texts[file].data != data]

    def apply(self, change: Change) -> None:
        """Apply one change to the documents."""
        path = parse_path(change.path)
        if isinstance(change, Remove):
            self._remove(path)
        elif isinstance(change, Set):
            self._set(path, change.value)
        elif path.attribute is not None:
            place = self._made(path)
            if path.attribute in place.span.attributes:
                raise place.error("exists already", path)
            self._set(path, change.value or "")
        else:
            self._add(path, change.value)

    def reach(self, target: Target) -> None:
        """Bring the documents to one state."""
        path = parse_path(target.path)
        if isinstance(target, Set):
            self._set(path, target.value)
        elif isinstance(target, Ensure):
            self._made(path)
        elif self._exists(path):
            self._remove(path)

    # --- changes ---------------------------------------------------------------------------------------------------

    def _remove(self, path: Path) -> None:
        place = self._existing(path)
        if path.attribute is None:
            if place.span is place.text.root:
                raise place.error("the root element of a file cannot be removed", path)
            self._keep(place, without(place.text, place.span))
            return
        if place.text.attribute(place.span, path.attribute) is None:
            raise place.error(f"there is no attribute {path.attribute!r}", path)
        self._keep(place, with_attribute(place.text, place.span, path.attribute, None))

    def _set(self, path: Path, value: str) -> None:
        place = self._made(path)
        if path.attribute is not None:
            known = [each.name for each in place.row.attributes]
            if path.attribute not in known:
                hint = nearest(path.attribute, known)
                raise place.error(f"{place.row.name} has no attribute {path.attribute!r}", path, hint)
            self._keep(place, with_attribute(place.text, place.span, path.attribute, value))
            return
        if is_container(place.row):
            raise place.error(f"{place.row.name} has elements and no value", path)
        if place.span.children:
            raise place.error(f"{place.row.name} has an element in it, and should have a value", path)
        self._keep(place, with_value(place.text, place.span, value))

    def _add(self, path: Path, value: str | None) -> None:
        *around, step = path.steps
        parent = self._made(Path(tuple(around))) if around else self._whole()
        row = _row(parent, step, path)
        like = list(self._matching(parent, step if row.repeated else Step(step.name)))
        if like and (not row.repeated or step.key is not None or step.text is not None):
            raise _Place(*like[0], row).error("exists already", path)
        self._insert(parent, row, step, step.text if value is None else value, path)

    def _insert(self, parent: _Place, row: Element, step: Step, value: str | None, path: Path) -> None:
        if step.number is not None or (parent.row is _ROOT and (not row.repeated or len(path.steps) > 1)):
            # a mistyped name in a longer path would make a server
            raise parent.error(f"there is no {step}", path)
        if value is not None and is_container(row):
            raise parent.error(f"{row.name} has elements and no value", path)
        attributes = {} if step.key is None else dict([step.key])
        new = element_bytes(parent.text, parent.span.prefix + row.name, attributes, value)
        names = {
            name: number for number, child in enumerate(parent.row.children) for name in (child.name, *child.aliases)
        }
        self._keep(parent, with_element(parent.text, parent.span, row.name, new, names))

    def _keep(self, place: _Place, data: bytes) -> None:
        self.version += data != place.text.data
        self._texts[place.text.file] = parse(data, place.text.file)

    # --- places ----------------------------------------------------------------------------------------------------

    def _made(self, path: Path) -> _Place:
        """The element of a path; those that are missing are made, beside ``core`` only the last one of a path.

        Raises:
            ConfigError: the schema has no such place, or several elements are meant.
        """
        place, first = self._start(path)
        for number, step in enumerate(path.steps[first:], first):
            found = list(self._matching(place, step))
            if not found:
                row = _row(place, step, path)
                self._insert(place, row, step, step.text, path)
                return self._made(path)
            place = self._only(place, step, found, Path(path.steps[: number + 1]))
        return place

    def _existing(self, path: Path) -> _Place:
        """The element of a path. Raises ConfigError: there is none, or more than one."""
        place, first = self._start(path)
        for number, step in enumerate(path.steps[first:], first):
            here = Path(path.steps[: number + 1])
            found = list(self._matching(place, step))
            if not found:
                _row(place, step, here)
                hint = nearest(str(step), [_named(span) for _, span in self._children(place)])
                raise place.error(f"there is no {step}", here, hint)
            place = self._only(place, step, found, here)
        return place

    def _exists(self, path: Path) -> bool:
        """Whether there is an element of a path, or more than one. Raises ConfigError: the schema has none."""
        place, first = self._start(path)
        for number, step in enumerate(path.steps[first:], first):
            _row(place, step, path)
            found = list(self._matching(place, step))
            if not found:
                return False
            place = self._only(place, step, found, Path(path.steps[: number + 1]))
        return path.attribute is None or path.attribute in place.span.attributes

    def _start(self, path: Path) -> tuple[_Place, int]:
        """The element where a path starts, and how many of its steps lead there."""
        whole, first = self._whole(), path.steps[0]
        if whole.text.root.local == CORE.name:
            if first == Step(CORE.name):
                return _Place(whole.text, whole.text.root, CORE), 1
            raise whole.error(f"there is no {first}", path, "the root element is core")
        return whole, 0

    def _whole(self) -> _Place:
        """The root element of broker.xml."""
        text = self._texts[self._file]
        return _Place(text, text.root, _ROOT)

    def _only(self, parent: _Place, step: Step, found: list[tuple[Text, Span]], path: Path) -> _Place:
        row = _row(parent, step, path)
        if len(found) > 1:
            lines = ", ".join(str(span.line) for _, span in found)
            hint = "give its name, [@name='...'], its text, [.='...'], or its number, [2]"
            raise parent.error(f"{len(found)} elements are meant, on lines {lines}", path, hint)
        return _Place(*found[0], row)

    def _matching(self, parent: _Place, step: Step) -> Iterator[tuple[Text, Span]]:
        """Child elements that one step of a path selects."""
        row = parent.row.by_name.get(step.name)
        same = [
            (text, span) for text, span in self._children(parent) if row and parent.row.by_name.get(span.local) is row
        ]
        for number, (text, span) in enumerate(same, 1):
            if (
                (step.key is None or span.attributes.get(step.key[0]) == step.key[1])
                and (step.text is None or span.text.strip() == step.text)
                and step.number in (None, number)
            ):
                yield text, span

    def _children(self, place: _Place) -> Iterator[tuple[Text, Span]]:
        """The elements in another one; the root elements of included files in the place of the includes."""
        for span in place.span.children:
            if span.local != "include":
                yield place.text, span
                continue
            document = Document(place.text.file, self._properties)
            href = document.substitute(span.attributes.get("href", ""), "include", span.line).strip()
            file = posixpath.normpath(posixpath.join(posixpath.dirname(place.text.file), href))
            if file not in self._texts:
                try:
                    data = self._read_file(file)
                except OSError as error:
                    raise place.error(f"{file} cannot be read: {error.strerror}", "include") from error
                self._before[file] = data
                self._texts[file] = parse(data, file)
            yield self._texts[file], self._texts[file].root


def _row(parent: _Place, step: Step, path: Path) -> Element:
    """The row of a step. Raises ConfigError: the schema has no such element there, or no such attribute."""
    row = parent.row.by_name.get(step.name)
    if row is None:
        hint = nearest(step.name, parent.row.by_name)
        raise parent.error(f"{parent.row.name} has no element {step.name!r}", path, hint)
    if step.key is not None and step.key[0] not in {each.name for each in row.attributes}:
        hint = nearest(step.key[0], [each.name for each in row.attributes])
        raise parent.error(f"{row.name} has no attribute {step.key[0]!r}", path, hint)
    return row


def _named(span: Span) -> str:
    """An element as a step with its first attribute."""
    key = next(iter(span.attributes.items()), None)
    return str(Step(span.local, key))
