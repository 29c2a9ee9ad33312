"""The store: one log of records, byte-identical everywhere, and what is built from it.

Reading order: ``docs/journal-format.md``, ``records``, ``segment``, ``log_chain``, ``state``,
``journal``, ``message_store``, ``follower``, ``activation``.
"""
