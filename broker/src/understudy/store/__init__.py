"""The store: one log of records, byte-identical everywhere, and the state built from it.

``log`` has the records, the segments, writing and reading them; ``snapshots`` shortens the log; beside them are the
messages, the references of queues, large bodies, pages and the locks of the store.

Reading order: ``docs/build/journal-format.md``, ``log.records``, ``log.segment``, ``log.chain``, ``state``,
``log.journal``, ``message_store``, ``log.follower``, ``log.epoch``.
"""
