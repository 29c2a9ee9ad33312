"""A broker process: its loop, signals, descriptors and interpreter, and the nodes that run in it."""
