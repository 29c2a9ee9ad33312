"""A managed node that serves AMQP 0-9-1 beside CORE."""

from __future__ import annotations

from support.amqp091 import AmqpNode
from support.managed import ManagedWorld


class ManagedAmqp(AmqpNode, ManagedWorld):
    """Both halves: clients of AMQP 0-9-1, and requests of operators."""
