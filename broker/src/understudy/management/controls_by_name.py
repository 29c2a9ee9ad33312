"""Everything that can be managed by name: one entry per kind of resource."""

from __future__ import annotations

from typing import Final

from understudy.management.address_control import AddressControls
from understudy.management.broker_control import BrokerControls
from understudy.management.divert_control import DivertControls
from understudy.management.invocation import ControlFinder
from understudy.management.link_controls import AcceptorControls, ClusterConnectionControls
from understudy.management.queue_control import QueueControls

CONTROLS: Final[tuple[ControlFinder, ...]] = (
    BrokerControls(),
    AddressControls(),
    QueueControls(),
    DivertControls(),
    AcceptorControls(),
    ClusterConnectionControls(),
)
