"""The operations of ``acceptor.<name>`` and ``clusterconnection.<name>``.

They cannot be started and stopped one by one: clients could not tell a node with a closed acceptor from a node that
has failed.
"""

from __future__ import annotations

from understudy.config.model import AcceptorConfiguration, ClusterConnectionConfiguration
from understudy.dataclass import dataclass
from understudy.errors import ManagementError, ResourceNotFound
from understudy.management.json_text import to_json
from understudy.management.operations.invocation import Control, ManagedNode, Requester
from understudy.management.operations.table import Operations, operation, text
from understudy.management.transport import ACCEPTOR_FACTORY, acceptor_parameters


@dataclass(frozen=True, slots=True)
class AcceptorControl(Control):
    """Attributes and operations of one acceptor."""

    acceptor: AcceptorConfiguration


@dataclass(frozen=True, slots=True)
class ClusterConnectionControl(Control):
    """Attributes of one cluster connection."""

    cluster: ClusterConnectionConfiguration

    def nodes(self) -> dict[str, str]:
        """Node id to address of the active node, for each known member."""
        return {
            member.node_id: f"{member.primary.host}:{member.primary.port}"
            for member in self.node.topologies.get(self.cluster.name, self.node.topology).members()
            if member.primary is not None
        }

    def metrics(self, node_id: str | None = None) -> dict[str, int]:
        """Counters of the bridges to all members, or to one, with the names of Artemis.

        Raises:
            ManagementError: no messages go to this member.
        """
        members = self.node.members
        flows = {} if members is None else members.flows.by_cluster[self.cluster.name].by_node
        if node_id is not None and node_id not in flows:
            raise ManagementError(f"no bridge to node {node_id!r}")
        counts = [each.bridge.counts for each in flows.values() if node_id in (None, each.node_id)]
        return {
            "messagesPendingAcknowledgement": sum(each.forwarded for each in counts),
            "messagesAcknowledged": sum(each.acknowledged for each in counts),
        }


class AcceptorControls:
    """Controls of acceptors, by name."""

    operations = Operations(
        "acceptor",
        "An acceptor, by name.",
        [
            operation("getName", lambda c: c.acceptor.name, "Its name.", returns=str),
            operation(
                "getFactoryClassName", lambda control: ACCEPTOR_FACTORY, "Name of the factory in Artemis.", returns=str
            ),
            operation(
                "getParameters", lambda c: acceptor_parameters(c.acceptor), "Its parameters.", returns=dict[str, object]
            ),
            operation(
                "isStarted",
                lambda c: c.node.services.connections.accepting,
                "Whether it accepts clients.",
                returns=bool,
            ),
        ],
    )

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> AcceptorControl:
        for acceptor in node.configuration.acceptors:
            if acceptor.name == name:
                return AcceptorControl(node, requester, acceptor)
        raise ResourceNotFound(f"no resource 'acceptor.{name}'")


class ClusterConnectionControls:
    """Controls of cluster connections, by name."""

    operations = Operations(
        "clusterconnection",
        "A cluster connection, by name.",
        [
            operation("getName", lambda c: c.cluster.name, "Its name.", returns=str),
            operation("getAddress", lambda c: c.cluster.address, "Prefix of its addresses; empty = all.", returns=str),
            operation("getNodeID", lambda c: c.node.services.node_id, "Id of this node.", returns=str),
            operation("getNodes", ClusterConnectionControl.nodes, "Known nodes: id to address."),
            operation(
                "getStaticConnectors",
                lambda c: list(c.cluster.static_connectors),
                "Names of its connectors.",
                returns=list[str],
            ),
            operation(
                "getStaticConnectorsAsJSON",
                lambda c: to_json(c.cluster.static_connectors),
                "The same as JSON.",
                returns=str,
            ),
            operation(
                "getDiscoveryGroupName",
                lambda c: c.cluster.discovery_group,
                "Name of its discovery group.",
                returns=str | None,
            ),
            operation("getTopology", lambda c: to_json(c.nodes()), "Known nodes, as JSON.", returns=str),
            operation(
                "isStarted", lambda c: c.node.services.connections.accepting, "Whether it is started.", returns=bool
            ),
            operation(
                "isDuplicateDetection",
                lambda c: c.cluster.use_duplicate_detection,
                "Whether its bridges send duplicate ids.",
                returns=bool,
            ),
            operation(
                "getMessageLoadBalancingType",
                lambda c: c.cluster.message_load_balancing.value,
                "Which members get messages.",
                returns=str,
            ),
            operation("getMaxHops", lambda c: c.cluster.max_hops, "How many nodes away queues may be.", returns=int),
            operation(
                "getMessagesPendingAcknowledgement",
                lambda c: c.metrics()["messagesPendingAcknowledgement"],
                "Messages that its bridges have sent since the activation.",
                returns=int,
            ),
            operation(
                "getMessagesAcknowledged",
                lambda c: c.metrics()["messagesAcknowledged"],
                "Messages that other members have confirmed since the activation.",
                returns=int,
            ),
            operation("getMetrics", ClusterConnectionControl.metrics, "Both, for all members together."),
            operation("getBridgeMetrics", ClusterConnectionControl.metrics, "Both, for one member.", text("nodeId")),
        ],
    )

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> ClusterConnectionControl:
        for cluster in node.configuration.cluster_connections:
            if cluster.name == name:
                return ClusterConnectionControl(node, requester, cluster)
        raise ResourceNotFound(f"no resource 'clusterconnection.{name}'")
