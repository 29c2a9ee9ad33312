"""Accepted and outgoing connections: sockets, TLS, detection of the protocol, HTTP upgrade."""
