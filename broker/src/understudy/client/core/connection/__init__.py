"""One connection of the client and its failovers."""
