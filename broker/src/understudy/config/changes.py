"""A changed broker.xml beside the configuration of a running node: what counts at once, what needs a restart.

As in Artemis a running broker takes addresses with their queues, address settings, security settings and
diverts from a changed file. Everything else keeps its value until the node is started again.

Not here: reading the file (``reader``), applying what changed (``routing.deployment``, ``management``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from understudy.config.model import Configuration
from understudy.config.schema import CORE

#: Fields of ``Configuration`` that a running node takes, and the elements they come from.
RELOADED: Final = {
    "addresses": "addresses",
    "address_settings": "address-settings",
    "security_settings": "security-settings",
    "diverts": "diverts",
}
#: Fields whose element has another name.
_ELEMENTS: Final = {
    "wildcards": "wildcard-addresses",
    "ha_policy": "ha-policy",
    "cluster_connections": "cluster-connections",
}
#: Lists whose entries are named one by one.
_ENTRIES: Final = {"acceptors": "acceptor", "connectors": "connector", "cluster_connections": "cluster-connection"}
_NAMES: Final = {element.field: element.name for element in CORE.children}


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """What a changed file means for a running node."""

    configuration: Configuration
    """That of the node, with what it takes from the file."""
    applied: tuple[str, ...]
    """Elements that changed and count at once."""
    restart: tuple[str, ...]
    """Elements that changed and keep their value until a restart; entries of lists by name."""


def changes(running: Configuration, read: Configuration) -> ConfigurationChange:
    """Compare the configuration of a node with what its file says now."""
    taken = {name: getattr(read, name) for name in RELOADED}
    applied = tuple(element for name, element in RELOADED.items() if getattr(running, name) != taken[name])
    restart = tuple(
        element
        for field in fields(Configuration)
        if field.name not in RELOADED
        for element in _differences(field.name, getattr(running, field.name), getattr(read, field.name))
    )
    return ConfigurationChange(replace(running, **taken), applied, restart)


def _differences(field: str, before: Any, after: Any) -> Iterator[str]:
    if before == after:
        return
    element = _ELEMENTS.get(field) or _NAMES.get(field) or field.replace("_", "-")
    entry = _ENTRIES.get(field)
    if entry is None:
        yield element
        return
    old, new = ({each.name: each for each in entries} for entries in (before, after))
    for name in old | new:
        if old.get(name) != new.get(name):
            yield f"{element}/{entry}[@name='{name}']"
