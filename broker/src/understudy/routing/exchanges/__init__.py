"""Exchanges of AMQP 0-9-1 and their bindings to queues of this node (ADR 0185)."""
