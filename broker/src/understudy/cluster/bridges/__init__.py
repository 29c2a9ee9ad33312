"""Core bridges: messages of a local queue are sent to an address of another broker (docs/operate/bridges.md, ADR 0063).

``bridge`` is the machine of one bridge; ``forwarding`` takes messages from the queue, ``target`` sends them,
``conversion`` changes them on the way; ``bridges`` are those of a node.
"""
