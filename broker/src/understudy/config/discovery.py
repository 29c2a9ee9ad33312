"""The elements ``broadcast-groups`` and ``discovery-groups`` as values (artemis-ha s. 7.1)."""

from __future__ import annotations

from typing import Final

from understudy.config.schema.schema import Defaults
from understudy.dataclass import dataclass

_BROADCAST_GROUP: Final = Defaults("core/broadcast-groups/broadcast-group")
_DISCOVERY_GROUP: Final = Defaults("core/discovery-groups/discovery-group")


@dataclass(frozen=True, slots=True)
class CarrierConfiguration:
    """How broadcasts travel: by multicast, or as a JGroups stack says (artemis-ha s. 7.1)."""

    local_bind_address: str | None = None
    local_bind_port: int = _DISCOVERY_GROUP.number("local-bind-port")
    group_address: str = ""
    group_port: int = 0
    jgroups_file: str | None = None
    """Absolute when the reader had a base directory; then the group is not used."""
    jgroups_channel: str = ""
    """Name that separates clusters with one carrier; without a file the carrier is the multicast group."""
    jgroups_properties: tuple[tuple[str, str], ...] = ()
    """Values for ``${name}`` in the file of the stack: those of broker.xml."""


@dataclass(frozen=True, slots=True)
class BroadcastGroupConfiguration:
    """A group in which this node broadcasts its connectors."""

    name: str
    carrier: CarrierConfiguration
    connectors: tuple[str, ...]
    """Names of the connectors that are broadcast."""
    broadcast_period_ms: int = _BROADCAST_GROUP.number("broadcast-period")


@dataclass(frozen=True, slots=True)
class DiscoveryGroupConfiguration:
    """A group in which this node listens for the broadcasts of others."""

    name: str
    carrier: CarrierConfiguration
    refresh_timeout_ms: int = _DISCOVERY_GROUP.number("refresh-timeout")
    initial_wait_timeout_ms: int = _DISCOVERY_GROUP.number("initial-wait-timeout")
