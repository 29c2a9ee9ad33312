"""Services that only CORE connections use, beside those of all protocols."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from understudy.cluster.membership.services import ClusterServices
from understudy.dataclass import dataclass
from understudy.limits import SESSIONS_PER_CONNECTION_MAX
from understudy.protocols.core.reattachment import Reattachments
from understudy.protocols.core.resend import ResendBudget
from understudy.protocols.services import ProtocolServices


@dataclass(slots=True)
class CoreServices:
    """Services given to each ``CoreConnection``; created by ``broker``."""

    shared: ProtocolServices
    cluster: ClusterServices
    reattachments: Reattachments[Any]
    resend_budget: ResendBudget = field(default_factory=ResendBudget)
    sessions_max: int = SESSIONS_PER_CONNECTION_MAX
    """Maximum number of sessions of one connection; acceptor parameter ``sessionsAllowed``."""
