"""The simulated machine: a seeded loop, network, disk, witness and storage server."""
