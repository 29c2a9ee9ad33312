"""AMQP 0-9-1 as the protocol of a client connection (ADR 0184)."""
