"""Functions that know frames of AMQP 0-9-1, native or in Python as ``kernel`` has chosen (ADR 0193)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.kernel import ACTIVE
from understudy.kernel.amqp091.values import DeliveryFrame, PublishLimits, PublishTarget

if TYPE_CHECKING or ACTIVE == "python":
    from understudy.kernel.amqp091.deliveries import run_deliveries
    from understudy.kernel.amqp091.publishes import split_publishes
else:
    from understudy_kernel import run_deliveries, split_publishes

__all__ = ["DeliveryFrame", "PublishLimits", "PublishTarget", "run_deliveries", "split_publishes"]
