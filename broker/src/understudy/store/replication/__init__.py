"""The store half of replication: operations as bytes, the copy of the files that exist already, and the execution of
operations on the backup (docs/architecture.md, "Replication"). The link carries the bytes; nothing here knows of it.

For the link:

- ``operation_codec``: ``encode(operations) -> list[bytes]``, ``decode(data) -> list[Operation]``,
  ``replicated(operations)`` without the operations of one machine.
- ``copy_messages``: ``encode_message(message) -> list[bytes]``, ``decode_message(data) -> CopyMessage``. A message
  travels in one ``ReplicationCopy``, in order.
"""
