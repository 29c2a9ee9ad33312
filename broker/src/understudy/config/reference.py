"""docs/operate/configuration.md, written from the schema: ``python -m understudy.config.reference``.

Not here: names, defaults and descriptions, which are in the schema. The only module of this package
that prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from understudy.config.schema.grammar import Attribute, Element, Kind, Support
from understudy.config.schema.schema import BESIDE_CORE, CORE, SERVER

_HEAD = """\
# Configuration reference

Generated from the schema by `python -m understudy.config.reference`; do not edit.

A broker reads `etc/broker.xml`: `core` within `configuration`, with the namespaces Artemis uses or
none. Further servers of the process are elements `server` beside it ([colocated.md](colocated.md)). In any
container, `<xi:include href="FILE"/>` (`xmlns:xi="http://www.w3.org/2001/XInclude"`) stands for the root element of a
file beside this one. `${name}` and `${name:default}` in values are replaced by properties given at the start.
Sizes take K, M or G (powers of 1024), times a bare number of milliseconds or s, m, h, d.
Anything unknown, misplaced or wrong is an error that names the element and the line.

| Implemented | Meaning |
|---|---|
| yes | acted upon |
| not yet | known, checked and left aside, with a warning |
| no effect | tunes something that this broker does not have; a warning says what |
| refused | a value other than the default is an error, because leaving it aside would be unsafe |

Old names are accepted wherever they are listed. Elements below are within `core`.
"""

#: What the elements below each path wait for, if they are not acted upon. Every such element is below exactly one.
WAITS_FOR: Final = {
    "amqp-": "the AMQP 1.0 protocol",
    "mqtt-": "the MQTT protocol",
    "mirror-": "mirroring over AMQP connections",
    "broker-connections": "the AMQP 1.0 protocol",
    "cluster-connections/": "nothing: the elements of `cluster-connection` say the same",
    "connection-routers": "connection routers, which are not planned yet",
    "federations": "federation, which is not planned yet",
    "security-settings/security-setting-plugin": "nothing: Java classes cannot be loaded",
    "store/database-store": "nothing: there is one store, in files",
}


def left_aside() -> dict[str, list[str]]:
    """The outermost elements that are not yet acted upon, or refused, by the missing feature.

    Raises:
        KeyError: ``WAITS_FOR`` has no entry for an element, or more than one.
    """
    found: dict[str, list[str]] = {}
    outer = ""
    for path, row in CORE.walk():
        if row.support not in (Support.NOT_YET, Support.REFUSED) or (outer and path.startswith(f"{outer}/")):
            continue
        outer, name = path, path.removeprefix("core/")
        reasons = [reason for prefix, reason in WAITS_FOR.items() if name.startswith(prefix)]
        if len(reasons) != 1:
            raise KeyError(name)
        found.setdefault(reasons[0], []).append(name)
    return found


def render() -> str:
    """The whole reference as Markdown."""
    parts = [
        _HEAD,
        "\n## Elements that are not acted upon\n\n| Wait for | Elements, with everything inside them |\n|---|---|\n",
    ]
    parts.extend(
        f"| {reason} | {', '.join(f'`{name}`' for name in names)} |\n" for reason, names in left_aside().items()
    )
    parts.append("\n## Values of the server\n\n")
    parts.extend(_table(child for child in CORE.children if child.kind is not Kind.CONTAINER))
    parts.append(f"\n## server\n\nBeside `core`. {SERVER.doc} (yes)\n\n")
    parts.extend(_head())
    parts.extend(_attributes("", SERVER))
    for beside in BESIDE_CORE:
        parts.append(f"\n## {beside.name}\n\nBeside `core`. {_meaning(beside)} ({_support(beside)})\n")
        parts.extend(_inside(beside))
    for child in CORE.children:
        if child.kind is Kind.CONTAINER:
            parts.append(f"\n## {child.name}\n\n{_meaning(child)} ({_support(child)})\n")
            parts.extend(_inside(child))
    return "".join(parts)


def _inside(element: Element) -> Iterator[str]:
    """The table of the attributes and elements of a container; nothing for an empty one."""
    rows = [(path.removeprefix(f"core/{element.name}/"), row) for path, row in element.walk("core")][1:]
    if rows or element.attributes:
        yield "\n"
        yield from _head()
        yield from _attributes("", element)
        for path, row in rows:
            yield _row(path, row)
            yield from _attributes(path, row)


def _table(rows: Iterator[Element]) -> Iterator[str]:
    yield from _head()
    for row in rows:
        yield _row(row.name, row)
        yield from _attributes(row.name, row)


def _head() -> Iterator[str]:
    yield "| Element | Value | Default | Implemented | Meaning |\n|---|---|---|---|---|\n"


def _row(path: str, row: Element) -> str:
    old = f" Old: {', '.join(f'`{alias}`' for alias in row.aliases)}." if row.aliases else ""
    return _line(f"`{path}`", _value(row), row.default, _support(row), f"{_meaning(row)}{old}")


def _attributes(path: str, row: Element) -> Iterator[str]:
    for attribute in row.attributes:
        support = attribute.support if row.support is Support.IMPLEMENTED else row.support
        default = "required" if attribute.required else attribute.default
        yield _line(f"`{path}@{attribute.name}`", _value(attribute), default, support.value, attribute.doc)


def _line(name: str, value: str, default: str | None, support: str, meaning: str) -> str:
    shown = "" if default is None else default if default == "required" else f"`{default}`" if default else "empty"
    # within a table a vertical bar ends the cell, even inside of code
    shown = shown.replace("|", "\\|")
    return f"| {name} | {value} | {shown} | {support} | {meaning} |\n"


def _value(row: Element | Attribute) -> str:
    if row.kind is Kind.CHOICE:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    return str(row.kind.value)


def _support(row: Element) -> str:
    return str(row.support.value)


def _meaning(row: Element) -> str:
    required = " Required." if row.required else ""
    reason = f" {row.note[0].upper()}{row.note[1:]}." if row.note and row.support is not Support.IMPLEMENTED else ""
    return f"{row.doc}{required}{reason}"


if __name__ == "__main__":
    sys.stdout.write(render())
