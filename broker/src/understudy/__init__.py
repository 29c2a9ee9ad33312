"""Understudy: a highly available message broker that speaks the Artemis CORE protocol.

The reading order for newcomers is in ``docs/build/architecture.md``.
"""

__version__ = "0.2.0"
