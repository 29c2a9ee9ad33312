"""Runs of a scenario: simulated clusters, applications, faults, and the checks at their end."""
