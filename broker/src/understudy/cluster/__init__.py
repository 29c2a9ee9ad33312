"""Cluster: topology, credentials, and the connections between nodes."""
