"""Scenarios of the simulation: topologies and the plans that are drawn for them."""
