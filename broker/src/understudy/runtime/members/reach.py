"""The members of the cluster that the static connectors of a node reach, without starting it (``run --check``).

Nothing is announced: the node connects, proves the cluster password and learns the topology, as a passive node does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from understudy.cluster.membership.member_link import MemberLink
from understudy.cluster.membership.membership import Membership
from understudy.cluster.membership.network import ClusterNetwork
from understudy.cluster.membership.topology import Member
from understudy.config.model import Configuration
from understudy.runtime.base.environment import system_environment
from understudy.runtime.node.assembly import make_parts
from understudy.security.authorization import SecurityPolicy
from understudy.wire.core.transport import TransportConfiguration

#: Longest wait for the connections, and the time for the members that a reached node reports.
WAIT_S: Final = 2.0
REPORTS_S: Final = 0.3
_STEP_S: Final = 0.05


async def reached_members(configuration: Configuration, security: SecurityPolicy) -> list[str]:
    """Lines about each static connector and each member that was learnt; empty without a cluster connection.

    Args:
        configuration: Configuration of the node, which does not run.

    Raises:
        ConfigError: a TLS file of a connector cannot be used.
    """
    # the lines say which connection was refused
    logging.getLogger("understudy").addHandler(logging.NullHandler())
    parts = make_parts(configuration, system_environment(asyncio.get_running_loop()), security, None, None)
    lines: list[str] = []
    for network in parts.networks:
        network.membership.watch("")
    end_s = parts.loop.time() + WAIT_S
    while parts.loop.time() < end_s and any(map(_is_open, parts.networks)):
        await asyncio.sleep(_STEP_S)
    if any(link.joined for network in parts.networks for link in network.membership.links.values()):
        await asyncio.sleep(REPORTS_S)
    for network in parts.networks:
        lines += _lines(network.membership, network.topology.members())
        network.membership.leave()
    return lines


def _is_open(network: ClusterNetwork) -> bool:
    """Whether a connection has neither been made nor failed."""
    return any(not link.joined and not link.failures for link in network.membership.links.values())


def _lines(membership: Membership, members: list[Member]) -> Iterator[str]:
    for link in membership.links.values():
        yield f"connector {_at(link.target)}: {_result(link)}"
    for each in members:
        active = "no active node" if each.primary is None else f"active at {_at(each.primary)}"
        passive = "" if each.backup is None else f", backup at {_at(each.backup)}"
        group = "" if each.backup_group is None else f", group {each.backup_group}"
        yield f"member {each.node_id}: {active}{passive}{group}"


def _result(link: MemberLink) -> str:
    if link.joined:
        return "reaches " + ("an active node" if link.node_id is None else f"node {link.node_id}")
    return f"reaches no active node ({link.error or f'no answer within {WAIT_S:.0f} s'})"


def _at(connector: TransportConfiguration) -> str:
    return f"{connector.host}:{connector.port}"
