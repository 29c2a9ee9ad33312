"""Shipped test doubles: a seeded loop, network and disk, clusters built on them, and their judges.

Nothing here runs in a production broker.
"""
