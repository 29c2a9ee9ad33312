"""The flows of all cluster connections of a node, and the reports of the other nodes on their queues.

A node reports its queues once, on the link to it. A report concerns the cluster connection that takes the address of
the queue; no address belongs to two of them (``config.cluster_addresses``).

Source: artemis-ha s. 7.2, 7.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from understudy.balancing.flows import MessageFlows
from understudy.balancing.group_notices import GroupNotice
from understudy.balancing.member_flow import MemberFlow
from understudy.balancing.notices import Notice
from understudy.balancing.reports import QueueReports
from understudy.cluster.member_link import MemberLink
from understudy.ports import Entropy
from understudy.wire.core import packets


class NodeReports:
    """The reports of one node, on one link. Implements ``reports.ReportOwner``."""

    def __init__(self, link: MemberLink, flows: Sequence[tuple[MessageFlows, MemberFlow]], entropy: Entropy) -> None:
        """They are asked for at once.

        Args:
            link: To the node.
            flows: To the node, each with those of its cluster connection; at least one.
            entropy: For names.
        """
        self.link = link
        self._flows = flows
        first = flows[0][0].settings
        selectors = [each.selector for each, _ in flows]
        self._reports = QueueReports(
            self,
            link,
            entropy,
            name=first.node_name.replace("::", "_"),
            selector=selectors[0] if len(selectors) == 1 else " OR ".join(f"({each})" for each in selectors),
            management_address=first.management_address,
            notifications=first.notifications,
        )

    def receive(self, packet: packets.Packet) -> None:
        """A packet of the session for reports. Raises RemoteProtocolError."""
        self._reports.receive(packet)

    def close(self) -> None:
        """Nothing is reported any more."""
        self._reports.close()

    # -- ReportOwner ------------------------------------------------------------------------------

    def reset(self) -> None:
        """See ``ReportOwner``."""
        for _, flow in self._flows:
            flow.reset()

    def complete(self) -> None:
        """See ``ReportOwner``."""
        for _, flow in self._flows:
            flow.complete()

    def group_noticed(self, notice: GroupNotice) -> None:
        """See ``ReportOwner``. The grouping handler is that of all cluster connections."""
        self._flows[0][1].group_noticed(notice)

    def noticed(self, notice: Notice) -> None:
        """See ``ReportOwner``."""
        for flows, flow in self._flows:
            if notice.kind == "BINDING_ADDED" and flows.takes(notice.address):
                flow.noticed(notice)
            elif notice.cluster_name in flow.bindings:
                # a queue that was made again at an address of another cluster connection is gone from this one
                gone = notice.kind == "BINDING_ADDED"
                flow.noticed(replace(notice, kind="BINDING_REMOVED") if gone else notice)


class ClusterFlows:
    """Implements ``cluster.membership.LinkObserver``."""

    def __init__(self, flows: Sequence[MessageFlows], entropy: Entropy) -> None:
        """Args:
        flows: Of each cluster connection.
        entropy: For names.
        """
        self.by_cluster = {each.settings.cluster.name: each for each in flows}
        self._entropy = entropy
        self._reports: dict[str, NodeReports] = {}
        """By node id."""
        self._closed = False

    def all(self) -> list[MemberFlow]:
        """Those of all cluster connections to all nodes."""
        return [flow for flows in self.by_cluster.values() for flow in flows.by_node.values()]

    def close(self) -> None:
        """The node is not active any more."""
        self._closed = True
        for reports in self._reports.values():
            reports.close()
        self._reports.clear()
        for flows in self.by_cluster.values():
            flows.close()

    # -- LinkObserver -----------------------------------------------------------------------------

    def link_identified(self, link: MemberLink) -> None:
        """Begin the flows to the node, or continue them over this link."""
        node_id = link.node_id
        wanted = [each for each in self.by_cluster.values() if each.goes_to(link)]
        if self._closed or node_id is None or all(each.is_on(link) for each in wanted):
            return
        before = self._reports.pop(node_id, None)
        if before is not None:
            before.close()
        flows = [(each, flow) for each in wanted if (flow := each.continue_on(link, node_id)) is not None]
        if flows:
            self._reports[node_id] = NodeReports(link, flows, self._entropy)
        for each, _ in flows:
            each.observer.node_joined(node_id)

    def link_received(self, link: MemberLink, packet: packets.Packet) -> None:
        """A packet of the session for reports. Raises RemoteProtocolError."""
        reports = self._reports.get(link.node_id or "")
        if reports is not None and reports.link is link:
            reports.receive(packet)

    def link_lost(self, link: MemberLink) -> None:
        """Nothing is reported on this link any more."""
        for node_id, reports in list(self._reports.items()):
            if reports.link is link:
                reports.close()
                del self._reports[node_id]
        for flows in self.by_cluster.values():
            flows.link_lost(link)
