"""Reasons why no active node knows an announced backup, as far as they do not end by themselves (ADR 0120)."""

from __future__ import annotations

from understudy.cluster.membership.membership import Membership, State
from understudy.cluster.membership.topology import Topology


def announcement_fault(membership: Membership, topology: Topology) -> str | None:
    """The nodes of the static connectors refuse the backup, or all of them are active under other node ids; None: it is
    known, or may be soon.

    Args:
        topology: That the membership learns.
    """
    if membership.state is not State.ANNOUNCING or membership.announced_to is not None:
        return None
    links = membership.static_links()
    refused = [f"{link.target.host}:{link.target.port}: {link.refusal}" for link in links if link and link.refusal]
    if refused:
        return f"this backup is announced to no node: {'; '.join(refused)}"
    known = topology.member(membership.node_id)
    reached = [link for link in links if link is not None and link.joined]
    if not reached or len(reached) < len(links) or (known is not None and known.primary is not None):
        return None
    others = ", ".join(f"{each.target.host}:{each.target.port} is node {each.node_id}" for each in reached)
    return f"this backup has the store of node {membership.node_id}, but {others}: is it the same store directory?"
