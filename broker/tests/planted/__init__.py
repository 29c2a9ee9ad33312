"""Planted bugs: defects that a simulated run puts into the broker and must find (docs/build/simulation.md)."""
