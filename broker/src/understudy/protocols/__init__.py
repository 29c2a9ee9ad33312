"""Protocols: packets on one side, session calls on the other."""
