"""Definitions of a node: addresses, queues, settings, permissions, diverts and users, as one JSON file (ADR 0161).

``values`` has the form of the file and reads it, ``sources`` reads the same values from a node and from broker.xml,
``changes`` compares two sets and makes the changes, ``commands`` is the command line.
"""
