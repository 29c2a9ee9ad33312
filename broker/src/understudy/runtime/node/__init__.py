"""A broker node: its policy, its activation, its store, and its service while it is active or passive."""
