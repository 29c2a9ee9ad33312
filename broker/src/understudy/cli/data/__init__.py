"""Commands for the data of a node: verify, compare, compact, salvage, export, import."""
