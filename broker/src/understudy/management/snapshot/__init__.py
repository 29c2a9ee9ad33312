"""Values of the model, read from an active broker. Not here: the node itself and its cluster, which the shell reads."""
