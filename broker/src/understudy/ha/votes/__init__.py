"""Quorum votes of the nodes of a cluster."""
