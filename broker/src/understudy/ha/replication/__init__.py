"""Replication: the policy of a pair, the life of a passive node, permission to be active (ADR 0057)."""
