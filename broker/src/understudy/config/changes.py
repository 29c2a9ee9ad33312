"""Comparison of a changed broker.xml with the configuration of a running node: changes that need a restart.

As in Artemis, a running broker applies changed addresses with their queues, address settings, security settings and
diverts; connection factories concern clients only. Everything else keeps its value until the node is restarted.

Not here: reading the file (``reader``), applying the changes (``routing.addresses.deployment``, ``management``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Final

from understudy.config.model import Configuration
from understudy.config.schema.schema import CORE
from understudy.dataclass import dataclass

#: Fields of ``Configuration`` that a running node applies, and their elements.
RELOADED: Final = {
    "addresses": "addresses",
    "address_settings": "address-settings",
    "security_settings": "security-settings",
    "diverts": "diverts",
    "connection_factories": "connection-factories",
}
#: Fields whose element has another name.
_ELEMENTS: Final = {
    "wildcards": "wildcard-addresses",
    "ha_policy": "ha-policy",
    "cluster_connections": "cluster-connections",
    "broadcast_groups": "broadcast-groups",
    "discovery_groups": "discovery-groups",
}
#: Lists whose entries are named one by one.
_ENTRIES: Final = {
    "acceptors": "acceptor",
    "connectors": "connector",
    "cluster_connections": "cluster-connection",
    "broadcast_groups": "broadcast-group",
    "discovery_groups": "discovery-group",
    "bridges": "bridge",
}
_NAMES: Final = {element.field: element.name for element in CORE.children}


@dataclass(frozen=True, slots=True)
class ConfigurationChange:
    """Effects of a changed file on a running node."""

    configuration: Configuration
    """Configuration of the node with the changes that apply at once."""
    applied: tuple[str, ...]
    """Changed elements that apply at once."""
    restart: tuple[str, ...]
    """Changed elements that keep their value until a restart; entries of lists by name."""


def changes(running: Configuration, read: Configuration) -> ConfigurationChange:
    """Compare the configuration of a node with its changed file."""
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
