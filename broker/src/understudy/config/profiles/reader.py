"""Reads the elements ``connection-factory``, and makes connectors parts of client URLs."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from understudy.config.model import Configuration, ConnectorConfiguration
from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.config.profiles.schema import SETTINGS, parameter_of
from understudy.config.reading.document import Node


def read_connection_factory(
    references: Callable[[Node], tuple[str, ...]], node: Node, name: str
) -> ConnectionFactoryConfiguration:
    """The factory of an element.

    Args:
        references: Names of the connectors that an element refers to. Raises ConfigError: there is none of a name.
        node: The element.
        name: That of the factory.
    """
    entries = tuple(str(each.value) for each in node.all("entry"))
    given = {child.element.name: child.value for child in node.children}
    parameters = tuple(
        (parameter_of(each.name), _text(given[each.name]))
        for each in SETTINGS
        if given.get(each.name) not in (None, "")
    )
    return ConnectionFactoryConfiguration(name, references(node), entries, parameters)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _place(connector: ConnectorConfiguration) -> str:
    """A connector as part of a client URL, without passwords and paths of files of the broker."""
    shown = {
        name: value
        for name, value in connector.parameters.items()
        if "password" not in name.lower() and "path" not in name.lower()
    }
    query = ";".join(f"{name}={quote(_text(value), safe='/:')}" for name, value in shown.items())
    return connector.url + (f"?{query}" if query else "")


def places_of(configuration: Configuration) -> dict[str, str]:
    """The connectors of a server as parts of a client URL, by their names."""
    return {each.name: _place(each) for each in configuration.connectors}
