"""Files of an instance that a command or a node replaces."""
