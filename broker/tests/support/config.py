"""Documents for the tests of the configuration: small ones by hand, and one for any row of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import escape, quoteattr

import pytest

from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.config.schema.grammar import Attribute, Element, Kind, Support
from understudy.config.schema.schema import CORE, element_at
from understudy.errors import ConfigError

FILE = "broker.xml"
CONNECTORS = (
    '<connectors><connector name="own">tcp://a:1</connector><connector name="peer">tcp://b:1</connector></connectors>'
)
PASSWORD = "<cluster-password>a password of our own</cluster-password>"


def core(body: str) -> bytes:
    """A document with ``body`` within core; its first line is line 1."""
    return f'<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">{body}</core></configuration>'.encode()


def read(body: str, *, base_directory: str = "/srv/node", properties: Mapping[str, str] | None = None) -> LoadedConfig:
    """The configuration of ``body`` within core."""
    return read_broker_xml(core(body), file=FILE, base_directory=base_directory, properties=properties)


def sample(row: Element | Attribute) -> str:
    """A value that the row takes."""
    if row.default:
        return row.default
    return {
        Kind.TEXT: "sample of a text",
        Kind.PATH: "data/sample",
        Kind.BOOLEAN: "true",
        Kind.DECIMAL: "1.5",
        Kind.CHOICE: row.choices[0] if row.choices else "",
    }.get(row.kind, str(max(row.minimum, 1)))


def wrong(row: Element | Attribute) -> str:
    """A value that the row cannot take; every kind but text and path has one."""
    return "wrong!"


def opening(row: Element, *, name: str | None = None, changed: Mapping[str, str | None] | None = None) -> str:
    """The start tag with the attributes the row requires; ``changed`` replaces or (None) drops some."""
    attributes: dict[str, str | None] = {each.name: sample(each) for each in row.attributes if each.required}
    attributes.update(changed or {})
    written = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items() if value is not None)
    return f"<{name or row.name}{written}>"


def minimal(row: Element, *, name: str | None = None) -> str:
    """The smallest element the row takes."""
    inside = "".join(minimal(child) for child in row.children if child.required)
    if row.kind is not Kind.CONTAINER:
        inside = escape(sample(row))
    return f"{opening(row, name=name)}{inside}</{name or row.name}>"


def around(path: str, inside: str) -> tuple[bytes, int]:
    """``inside`` at a path below core, every start tag on a line of its own, and the line of ``inside``."""
    steps = path.split("/")
    rows = [element_at("/".join(steps[: place + 1])) for place in range(len(steps))]
    lines = [opening(row) for row in rows] + [inside] + [f"</{row.name}>" for row in reversed(rows)]
    return "\n".join(lines).encode(), len(rows) + 1


def parent_of(path: str) -> str:
    """The path without its last step."""
    return path.rpartition("/")[0]


ROWS = [(path, row) for path, row in CORE.walk() if path != "core"]
"""Every row of the schema below core, with its path."""

REPORTED = [
    (path, row)
    for path, row in ROWS
    if row.support in (Support.NOT_YET, Support.NO_EFFECT)
    and element_at(parent_of(path)).support is Support.IMPLEMENTED
]
"""Rows that are left aside while their parent is not: each must give a warning."""

REFUSED = [
    (path, row)
    for path, row in ROWS
    if row.support is Support.REFUSED and element_at(parent_of(path)).support is Support.IMPLEMENTED
]
"""Rows that are an error unless they say their default, while their parent is fine."""


def fails(body: str) -> ConfigError:
    """The error of a broker.xml with this body, which names the file, the line and the element."""
    with pytest.raises(ConfigError) as caught:
        read(body)
    assert caught.value.file == FILE
    assert caught.value.line is not None
    assert caught.value.path.startswith("core")
    return caught.value


def cluster(inside: str, *, head: str = PASSWORD + CONNECTORS) -> str:
    """A cluster connection with these elements, its connectors and its password."""
    inner = f'<cluster-connection name="c"><connector-ref>own</connector-ref>{inside}</cluster-connection>'
    return f"{head}<cluster-connections>{inner}</cluster-connections>"
