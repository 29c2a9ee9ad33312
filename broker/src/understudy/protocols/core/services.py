"""Services that only CORE connections use, beside those of all protocols."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from understudy.cluster.credentials import ClusterCredentials
from understudy.cluster.topology import Topology
from understudy.protocols.core.reattachment import Reattachments
from understudy.protocols.core.resend import ResendBudget
from understudy.protocols.services import ProtocolServices


@dataclass(slots=True)
class CoreServices:
    """Services given to each ``CoreConnection``; created by ``broker``."""

    shared: ProtocolServices
    topology: Topology
    reattachments: Reattachments[Any]
    credentials: ClusterCredentials | None
    """None when no cluster-connection is configured: connections of other nodes are refused."""
    resend_budget: ResendBudget = field(default_factory=ResendBudget)
