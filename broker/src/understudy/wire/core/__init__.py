"""Encoding of the CORE protocol of Apache ActiveMQ Artemis: frames, packets, connectors, error codes."""
