"""The CORE protocol of a server: connections, their channels, and the handlers of packets."""
