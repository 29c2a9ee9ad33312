"""The CORE protocol of Apache ActiveMQ Artemis as bytes: frames, packets, connectors, codes."""
