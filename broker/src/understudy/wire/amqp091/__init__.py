"""AMQP 0-9-1 as bytes: frames, methods, field tables, content properties (ADR 0185)."""
