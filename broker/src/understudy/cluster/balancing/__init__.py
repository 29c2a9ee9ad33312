"""Messages between the members of a cluster: which queues other nodes have, a store-and-forward queue with a bridge for
each node, and redistribution (docs/operate/clustering.md, ADR 0068).

``reports`` learns the queues of one node, ``remote_bindings`` keeps those of all, ``flows`` makes store-and-forward
queues and their bridges, ``redistribution`` moves messages to where consumers are.
"""
