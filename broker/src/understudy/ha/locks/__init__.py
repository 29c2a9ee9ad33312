"""Locks by leases, activation sequences and noted positions at a lock manager."""
