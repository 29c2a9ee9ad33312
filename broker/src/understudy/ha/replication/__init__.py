"""Replication of a store to another node: the link, the policy, permission to be active (ADR 0057)."""
