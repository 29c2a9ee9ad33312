"""High availability: which node serves, decided by declared machines that use only ports."""
