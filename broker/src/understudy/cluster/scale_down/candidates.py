"""The nodes that may take the messages of a node that is scaled down (artemis-ha s. 6)."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.cluster.membership.services import ClusterServices
from understudy.config.high_availability import ScaleDownConfiguration
from understudy.config.model import Configuration
from understudy.store.setting_record import SettingRecord
from understudy.wire.core.transport import TransportConfiguration


def settings_of(configuration: Configuration) -> ScaleDownConfiguration:
    """Settings of the HA policy; the defaults if a scale-down that was interrupted is not configured any more."""
    return configuration.ha_policy.scale_down or ScaleDownConfiguration()


def candidates(
    settings: ScaleDownConfiguration, cluster: ClusterServices, node_id: str, pending: SettingRecord | None
) -> Sequence[TransportConfiguration]:
    """Connectors, in the order in which they are tried: configured or discovered ones; else the members of the cluster
    in the order of their ids, with a group only those of the group.

    Args:
        cluster: Cluster with the topology.
        pending: Note of an interrupted scale-down, which goes on at the same target; None: there is none.
    """
    if pending is not None:
        urls = (pending.values or {}).get("connectors")
        return [TransportConfiguration.from_url(str(each)) for each in urls] if isinstance(urls, list) else []
    others = sorted(
        (each for each in cluster.topology.members() if each.node_id != node_id), key=lambda each: each.node_id
    )
    if settings.group_name is not None:
        others = [each for each in others if each.scale_down_group == settings.group_name]
    known = [each.primary for each in others if each.primary is not None]
    named = [cluster.connectors.transport(name) for name in settings.connectors]
    if settings.discovery_group is not None:
        named += cluster.discovered(settings.discovery_group)
    if not named and settings.host is None:
        return known
    if settings.host is not None:
        named.append(cluster.connectors.transport(settings.host))
    if settings.group_name is None:
        return named
    return [*known, *(each for each in named if not any(map(each.same_place, known)))]
