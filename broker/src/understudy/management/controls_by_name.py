"""Registry of the kinds of managed resources."""

from __future__ import annotations

from typing import Final

from understudy.management import (
    bridge_control,
    broker_clients,
    broker_control,
    broker_quarantine,
    broker_routing,
    broker_settings,
    broker_transactions,
    counter_control,
    divert_control,
    queue_forms,
)
from understudy.management.address_control import AddressControls
from understudy.management.broker_control import BrokerControl
from understudy.management.divert_control import DivertControls
from understudy.management.invocation import ControlFinder, ManagedNode, Requester
from understudy.management.link_controls import AcceptorControls, ClusterConnectionControls
from understudy.management.operations import Operations
from understudy.management.queue_operations import QueueControls


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
