"""The whole configuration schema: the one source of element names, types, defaults and meanings.

``CORE`` is the tree; the tables it is put together from are in ``server_rows``,
``address_rows``, ``cluster_rows`` and ``link_rows``. ``document`` checks files against it,
``model`` takes its defaults from it, and ``reference`` prints it. Not here: what a value means to
the broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from understudy.config.profiles.schema import CONNECTION_FACTORIES
from understudy.config.schema.address_rows import ADDRESS_SETTINGS, ADDRESSES, OLD_QUEUES, SECURITY_SETTINGS
from understudy.config.schema.cluster_rows import (
    CLUSTER_CONNECTIONS,
    HA_POLICY,
    OLD_HA_ROWS,
    OTHER_ROWS,
    WILDCARD_ADDRESSES,
)
from understudy.config.schema.grammar import Attribute, Element, Kind, Value, container, parse_value
from understudy.config.schema.link_rows import LINK_ROWS
from understudy.config.schema.path_rows import NAMED_PATH
from understudy.config.schema.server_rows import SERVER_ROWS
from understudy.config.sockets.schema import SOCKET_ROWS
from understudy.config.sockets.schema_transports import TRANSPORTS

CORE: Final[Element] = container(
    "core",
    "Everything about one broker.",
    *SERVER_ROWS,
    *TRANSPORTS,
    CLUSTER_CONNECTIONS,
    CONNECTION_FACTORIES,
    HA_POLICY,
    *OLD_HA_ROWS,
    ADDRESSES,
    OLD_QUEUES,
    ADDRESS_SETTINGS,
    SECURITY_SETTINGS,
    WILDCARD_ADDRESSES,
    *OTHER_ROWS,
    *LINK_ROWS,
)
"""The root of the schema."""

SERVER: Final[Element] = replace(
    CORE,
    name="server",
    doc="A further server of the process, with the elements of core except name (docs/operate/colocated.md).",
    attributes=(
        Attribute("name", Kind.TEXT, "Its name: letters, digits, '.', '_' and '-'.", required=True),
        Attribute(
            "management",
            Kind.TEXT,
            "Address of its management, host:port, or off. Default: that of core, one port higher per server.",
        ),
        Attribute(
            "settings",
            Kind.CHOICE,
            "core: logins, permissions and settings of addresses that it does not have itself are those of core;"
            " own: it has only its own.",
            "own",
            choices=("own", "core"),
        ),
    ),
    children=tuple(child for child in CORE.children if child.name != "name"),
    repeated=True,
)
"""A further server of the process, beside ``core``."""


BESIDE_CORE: Final[tuple[Element, ...]] = (*SOCKET_ROWS, NAMED_PATH)
"""The elements beside ``core`` that all servers of the process use."""


def _places() -> dict[str, tuple[str, ...]]:
    places: dict[str, list[str]] = {}
    for path, element in CORE.walk():
        for name in (element.name, *element.aliases):
            places.setdefault(name, []).append(path.rpartition("/")[0])
    return {name: tuple(dict.fromkeys(parents)) for name, parents in places.items()}


PLACES: Final[Mapping[str, tuple[str, ...]]] = _places()
"""Paths of the parents of each element, by its name, in schema order."""


def element_at(path: str) -> Element:
    """The row at a path such as ``core/ha-policy/shared-store``; KeyError if there is none."""
    first, *rest = path.split("/")
    element = {each.name: each for each in (CORE, SERVER, *BESIDE_CORE)}[first]
    for name in rest:
        element = element.by_name[name]
    return element


class Defaults:
    """Typed defaults of the children (and attributes) of one element, for the dataclasses of ``model``."""

    def __init__(self, path: str) -> None:
        self._element = element_at(path)

    def _value(self, name: str) -> Value:
        child = self._element.by_name[name]
        if child.default is None:
            raise KeyError(f"{self._element.name}/{name} has no default")
        return parse_value(child.default, child)

    def boolean(self, name: str) -> bool:
        """Default of a true-or-false element."""
        value = self._value(name)
        assert isinstance(value, bool)
        return value

    def number(self, name: str) -> int:
        """Default of an element with a whole number: count, size or time in its row's unit."""
        value = self._value(name)
        assert isinstance(value, int)
        assert not isinstance(value, bool)
        return value

    def decimal(self, name: str) -> float:
        """Default of a decimal element."""
        value = self._value(name)
        assert isinstance(value, float)
        return value

    def text(self, name: str) -> str:
        """Default of an element with text."""
        value = self._value(name)
        assert isinstance(value, str)
        return value


def is_container(element: Element) -> bool:
    """Whether an element holds others instead of a value."""
    return element.kind is Kind.CONTAINER
