"""What nodes know of each other: topology and the links that carry it."""
