"""Sessions of AMQP 0-9-1 that move from one node of a cluster to another (ADR 0199)."""
