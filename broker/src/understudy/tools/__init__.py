"""Offline tools: programs that read a store whose node is stopped, or rewrite it while they hold its lock.

Only ``understudy data`` and tests import them; a running broker does not. Reading order: ``inspect``, ``log_copy``,
``contents``, ``compare``; ``export``; ``retained``; ``compaction``, ``salvage``.
"""
