"""The discovery and broadcast groups of a node, made from its configuration (ADR 0061)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from understudy.cluster.discovery.broadcaster import Broadcaster, BroadcastSettings
from understudy.cluster.discovery.carriers import Carrier, Endpoint, Multicast
from understudy.cluster.discovery.group import DiscoverySettings, Group
from understudy.cluster.discovery.jgroups import read_stack
from understudy.cluster.membership.membership import Membership
from understudy.config.discovery import CarrierConfiguration
from understudy.errors import ConfigError
from understudy.limits import JGROUPS_BYTES_MAX
from understudy.runtime.base.environment import Environment
from understudy.runtime.base.node_configuration import NodeConfiguration
from understudy.runtime.base.turn import Turn
from understudy.wire.core.transport import TransportConfiguration

#: Random bytes of a broadcaster id.
_ID_BYTES = 16


def carrier_of(configuration: CarrierConfiguration) -> Carrier:
    """How the broadcasts of a group travel; reads the file of a JGroups stack.

    Raises:
        ConfigError: the file cannot be read, or a protocol in it cannot be mapped.
    """
    path = configuration.jgroups_file
    if path is None:
        return Multicast(
            configuration.group_address,
            configuration.group_port,
            configuration.local_bind_address,
            configuration.local_bind_port,
            channel=configuration.jgroups_channel or None,
        )
    try:
        with Path(path).open("rb") as file:
            data = file.read(JGROUPS_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"jgroups-file cannot be read: {error.strerror}", file=path) from error
    properties = dict(configuration.jgroups_properties)
    return read_stack(data, configuration.jgroups_channel, file=path, properties=properties)


def make_discovery(configuration: NodeConfiguration, environment: Environment, turn: Turn) -> NodeDiscovery:
    """The groups of a node; nothing is opened.

    Discovery groups that no cluster-connection or bridge names are left out: their entries would not be used.

    Raises:
        ConfigError: the stack of a group cannot be used.
    """
    current = configuration.current
    make_endpoint = environment.discovery_endpoint
    if make_endpoint is None:
        return NodeDiscovery((), ())
    shared: dict[Carrier, Endpoint] = {}

    def endpoint(carrier: Carrier) -> Endpoint:
        """The endpoint of a carrier. A list or a directory has one: a second socket would have another port."""
        if isinstance(carrier, Multicast):
            return make_endpoint(carrier, turn)
        if carrier not in shared:
            shared[carrier] = make_endpoint(carrier, turn)
        return shared[carrier]

    own = environment.entropy.token(_ID_BYTES).hex()
    used = {each.discovery_group for each in current.cluster_connections}
    used |= {each.target.discovery_group for each in current.bridges}
    groups = []
    for each in current.discovery_groups:
        if each.name in used:
            carrier = carrier_of(each.carrier)
            settings = DiscoverySettings(each.name, carrier, each.refresh_timeout_ms, each.initial_wait_timeout_ms)
            groups.append(Group(settings, own, endpoint(carrier), environment.clock, turn))
    broadcasters = []
    for one in current.broadcast_groups:
        carrier = carrier_of(one.carrier)
        connectors = [_public(configuration.connectors.transport(name)) for name in one.connectors]
        sent = BroadcastSettings(one.name, carrier, connectors, one.broadcast_period_ms)
        broadcasters.append(Broadcaster(sent, own, endpoint(carrier), turn))
    return NodeDiscovery(groups, broadcasters, only_tls=_groups_with_tls(configuration))


def _groups_with_tls(configuration: NodeConfiguration) -> set[str]:
    """Groups whose members are dialled with TLS only: those of cluster connections whose own connector has it; groups
    of bridges follow the connector of the pair.
    """
    current, own = configuration.current, configuration.own_connector()
    used = {each.discovery_group: False for each in current.cluster_connections}
    for each in current.cluster_connections:
        used[each.discovery_group] |= has_tls(configuration.connectors.transport(each.connector_ref))
    otherwise = own is not None and has_tls(own)
    return {each.name for each in current.discovery_groups if used.get(each.name, otherwise)}


def has_tls(connector: TransportConfiguration) -> bool:
    """Whether connections to the connector are encrypted."""
    return str(connector.parameters.get("sslEnabled", "false")).lower() == "true"


def with_tls(connector: TransportConfiguration) -> TransportConfiguration:
    """The connector with encryption."""
    parameters = {**connector.parameters, "sslEnabled": "true"}
    return TransportConfiguration(connector.name, connector.factory, parameters)


def _public(connector: TransportConfiguration) -> TransportConfiguration:
    """The connector without passwords: every host of the network can read a broadcast."""
    parameters = {key: value for key, value in connector.parameters.items() if "password" not in key.lower()}
    return TransportConfiguration(connector.name, connector.factory, parameters)


class NodeDiscovery:
    """Broadcast and discovery groups of one node."""

    def __init__(
        self, groups: Iterable[Group], broadcasters: Iterable[Broadcaster], *, only_tls: Collection[str] = ()
    ) -> None:
        """Nothing is opened yet.

        Args:
            groups: Discovery groups.
            broadcasters: Broadcast groups.
            only_tls: Names of groups whose connectors are dialled with TLS, whatever their broadcast says.
        """
        self._only_tls = only_tls
        self.groups = {each.settings.name: each for each in groups}
        self.broadcasters = list(broadcasters)

    def start(self) -> None:
        """Listen for other nodes, until ``close``."""
        for each in self.groups.values():
            each.start()

    def close(self) -> None:
        """Broadcast and listen no more."""
        self.stop_broadcasting()
        for each in self.groups.values():
            each.stop()

    def broadcast(self, node_id: str) -> None:
        """Broadcast the connectors of this node, which is active under ``node_id``."""
        for group in self.groups.values():
            group.entries.own_node_id = node_id
        for each in self.broadcasters:
            each.start(node_id)

    def stop_broadcasting(self) -> None:
        """End the broadcasts: this node is not active any more."""
        for group in self.groups.values():
            group.entries.own_node_id = None
        for each in self.broadcasters:
            each.stop()

    def feed(self, membership: Membership, groups: Iterable[str | None]) -> None:
        """Give the connectors heard in the groups to a membership, now and whenever they change."""
        names = [each for each in dict.fromkeys(groups) if each is not None and each in self.groups]
        for name in names:
            self.groups[name].listen(
                lambda: membership.set_discovered([one for each in names for one in self.connectors(each)])
            )

    def all_heard(self, group: str | None) -> bool:
        """Whether initial-wait-timeout of a group has passed; True if it is not listened to."""
        found = self.groups.get(group) if group is not None else None
        return found is None or found.waited

    def connectors(self, group: str | None) -> list[TransportConfiguration]:
        """The connectors of the nodes that were heard in a group; none of a group that is not listened to."""
        found = self.groups.get(group) if group is not None else None
        heard = [] if found is None else found.connectors()
        return [with_tls(each) for each in heard] if group in self._only_tls else heard
