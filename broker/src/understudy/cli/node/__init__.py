"""Commands for nodes: create, run, start, status, users."""
