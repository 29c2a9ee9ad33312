"""Channels of AMQP 0-9-1 that a client finds again after its connection was lost (ADR 0195)."""
