"""AMQP 0-9-1: connections and channels, methods to session calls and back (ADR 0185, docs/use/amqp091.md)."""
