"""Registry of the kinds of managed resources."""

from __future__ import annotations

from typing import Final

from understudy.management.operations import bridges as bridge_control
from understudy.management.operations import broker as broker_control
from understudy.management.operations import clients as broker_clients
from understudy.management.operations import counters as counter_control
from understudy.management.operations import diverts as divert_control
from understudy.management.operations import quarantine as broker_quarantine
from understudy.management.operations import queue_forms
from understudy.management.operations import routing as broker_routing
from understudy.management.operations import settings as broker_settings
from understudy.management.operations import transactions as broker_transactions
from understudy.management.operations.address import AddressControls
from understudy.management.operations.broker import BrokerControl
from understudy.management.operations.diverts import DivertControls
from understudy.management.operations.invocation import ControlFinder, ManagedNode, Requester
from understudy.management.operations.links import AcceptorControls, ClusterConnectionControls
from understudy.management.operations.queue_table import QueueControls
from understudy.management.operations.table import Operations


class BrokerControls:
    """The control of the node, with the operations of all ``broker_*`` modules."""

    operations = Operations(
        "broker",
        "The node itself, its addresses, queues and clients.",
        [
            *broker_control.OPERATIONS,
            *broker_routing.OPERATIONS,
            *queue_forms.OPERATIONS,
            *broker_settings.OPERATIONS,
            *broker_clients.OPERATIONS,
            *broker_transactions.OPERATIONS,
            *broker_quarantine.OPERATIONS,
            *divert_control.OPERATIONS,
            *counter_control.BROKER_OPERATIONS,
            *bridge_control.BROKER_OPERATIONS,
        ],
    )

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> BrokerControl:
        return BrokerControl(node, requester)


CONTROLS: Final[tuple[ControlFinder, ...]] = (
    BrokerControls(),
    AddressControls(),
    QueueControls(),
    DivertControls(),
    AcceptorControls(),
    ClusterConnectionControls(),
    bridge_control.BridgeControls(),
)
