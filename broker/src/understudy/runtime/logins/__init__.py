"""Files of users that the node changes, and connections to directories of users."""
