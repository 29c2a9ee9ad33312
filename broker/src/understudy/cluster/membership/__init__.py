"""Membership of a cluster: topology, credentials, and the connections between nodes."""
