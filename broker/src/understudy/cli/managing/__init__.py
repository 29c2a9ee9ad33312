"""Commands that are doors onto the management of a node: its model, and its declared operations."""
