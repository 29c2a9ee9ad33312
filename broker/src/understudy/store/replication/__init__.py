"""The store half of replication: operations as bytes, the copy of the files that exist already, and the execution of
operations on the backup (docs/build/architecture.md, "Replication"). The link carries the bytes; nothing here
knows of it.

For the link:

- ``operation_codec``: ``encode(operations) -> list[bytes]``, ``decode(data) -> list[Operation]``,
  ``replicated(operations)`` without the operations of one machine.
- ``copy_messages``: ``encode_message(message) -> list[bytes]``, ``decode_message(data) -> CopyMessage``. A message
  travels in one ``ReplicationCopy``, in order.
- At the active node ``copy_source.CopySource``, at the backup ``copy_target.CopyTarget``. Both have ``state``,
  ``receive(message)`` for the loop, ``wants_step``, and ``step() -> list[CopyMessage]``, which blocks: while
  ``wants_step``, run it with a ``Worker``, one call at a time, and send the result. ``close()`` gives up.
  When the source's state is ``LITTLE_LEFT``: hold the writers, wait for the end of their jobs, ``freeze(sequence,
  identity)``, go on with steps until ``COMPLETE``, then send every submission and release the writers.
- At the backup, when the target's state is ``READY``: ``replica_log.ReplicaLog(target.log, target.bodies, runner,
  sequence=target.sequence, ...)``, ``receive(index, directory, operations, size_bytes)``, ``finish(ended)``.
- ``replica_state``: ``read_replica_state(disk, directory)``, ``write_replica_state(disk, directory, state)``. The
  target notes ``INCOMPLETE`` and ``IN_SYNC`` itself.
"""
