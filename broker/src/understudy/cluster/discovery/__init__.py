"""Discovery: brokers that broadcast their connectors, and nodes and clients that listen for them (ADR 0061).

- ``carriers``: how broadcasts travel: by multicast, to a list of hosts, or as files of a directory.
- ``jgroups``: a JGroups stack as one of them.
- ``entries``: the nodes that were heard.
- ``broadcaster`` and ``group``: a broadcast group and a discovery group of a node.

Not here: the datagram (``wire.core.broadcast``), sockets and files (``runtime.members.discovery``, ``client.host``).
"""
