"""Hosts for tests of deployments: user-mode Linux kernels with Debian 12 or 13, systemd and a network of their own.

Each host has its own kernel, file system, clock tick and network card, and is reached by ssh only. All hosts of one lab
share a network namespace with a bridge, so nothing on them reaches a package index, and labs do not see each other.
"""
