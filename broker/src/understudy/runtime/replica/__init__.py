"""Replication of a store between two nodes: the copy, what the replica executes, and the search for the active node."""
