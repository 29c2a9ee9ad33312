"""AMQP 0-9-1 as the protocol of a client connection (ADR 0184): sessions, messages and failovers by its methods."""
