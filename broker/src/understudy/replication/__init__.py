"""The two ends of the connection by which a backup gets a copy of the store of the active node (ADR 0057).

The policy that uses them is ``ha.replication``, the files are copied by ``store.replication``.
"""
