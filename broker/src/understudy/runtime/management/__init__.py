"""The management of a node over HTTP: its server, its requests, and the values that it shows."""
