"""Planted bugs: defects that a simulated run puts into the broker on purpose and must find (docs/simulation.md)."""
