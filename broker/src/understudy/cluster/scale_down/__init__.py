"""Scale-down: all messages of a node that stops, or whose backup takes over, move to another member of the cluster
(docs/operate/scale-down.md, ADR 0070).

``transfer`` is the machine: it finds the node that takes the messages, and carries out the ``work`` there; ``messages``
sends those of queues, ``transactions`` prepared ones, ``remote_queues`` finds and makes the queues at the target.
"""
