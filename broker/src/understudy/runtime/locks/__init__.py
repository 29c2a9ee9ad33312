"""Locks outside of the process: lock files, ZooKeeper, and witnesses."""
