"""Conformance: the same cases for the real ports (``runtime``) and the simulated ones (``testing``).

The logic of the broker is proved in the simulation and runs on real machines; it may rely on the behaviour shown here
for both, and on nothing else. A case that only one side could pass is a defect of the other.
"""
