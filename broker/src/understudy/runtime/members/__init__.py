"""Links of a node to the other members of its cluster: discovery, colocation, scale-down."""
